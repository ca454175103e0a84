"""What the tests of checkpoints and of a run's folder share: a small run, saved part of the way."""

import numpy as np

from sprl.checkpoint import save
from sprl.config import Config
from sprl.data import arrays
from sprl.noise import corrupt
from sprl.run import prepare

CONFIG = Config(data="points", epochs=16, batch_size=128, lr=0.01)


def noisy(points, folder):
    """Clusters, a third of whose labels are wrong."""
    x, clean = points
    np.savez(folder / "points.npz", x=x, y=corrupt(clean, "symmetric:0.33", 4, seed=0), x_test=x, y_test=clean)
    return arrays.load(folder / "points.npz")


def always():
    return True


def begun(data, folder, batches=1):
    """A run saved after so many batches."""
    run = prepare(CONFIG, data)
    for _, _ in zip(range(batches), run.train(always), strict=False):
        pass
    save(folder, run)
    return run
