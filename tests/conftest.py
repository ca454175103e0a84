"""Small data that trains in a moment."""

import numpy as np
import pytest
import torch

from sprl.noise import corrupt
from sprl.state import Task

torch.set_num_threads(1)


def clusters(n: int = 400, num_classes: int = 4, features: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated clouds of points, one a class."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(num_classes, features))
    y = np.arange(n) % num_classes
    return (centres[y] + rng.normal(size=(n, features))).astype(np.float32), y


@pytest.fixture
def points() -> tuple[np.ndarray, np.ndarray]:
    return clusters()


@pytest.fixture
def task() -> Task:
    """Clusters, a third of the labels wrong, 12 epochs, a last batch that is not full."""
    x, clean = clusters(403)
    y = corrupt(clean, "symmetric:0.33", 4, seed=0)
    return Task(torch.from_numpy(x), torch.from_numpy(y), num_classes=4, epochs=12, batch_size=32, lr=1e-2)
