"""What a checkpoint costs: seconds to write and to read one, and its size.

python benchmarks/saving.py    writes results/saving.json
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from measure import Record, save

from sprl import checkpoint
from sprl.config import Config
from sprl.data import arrays
from sprl.run import Run, prepare

HERE = Path(__file__).parent
TIMES = 5


def rows(folder: Path, shape: tuple[int, ...], classes: int) -> str:
    """Noise, as .npz."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, shape, np.uint8) if len(shape) == 4 else rng.normal(size=shape).astype(np.float32)
    np.savez(folder / "rows.npz", x=x, y=np.arange(shape[0]) % classes)
    return str(folder / "rows.npz")


CASES = {
    "MLP, 1,347 rows of 64 features, 10 classes": ((1347, 64), 10, "mlp", 32),
    "small CNN, 10,000 pictures, 10 classes": ((10_000, 32, 32, 3), 10, "cnn", 32),
    "ResNet18, 50,000 pictures, 10 classes": ((50_000, 32, 32, 3), 10, "resnet18", 32),
    "MLP, 100,000 rows of 20 features, 1,000 classes": ((100_000, 20), 1000, "mlp", 128),
}


def begun(folder: Path, shape: tuple[int, ...], classes: int, network: str, batch: int) -> Callable[[], Run]:
    """Makes the same run again and again, one batch into its first epoch."""
    config = Config(data=rows(folder, shape, classes), network=network, batch_size=batch, epochs=20, fields={"T1": 2}, device="cpu")
    data = arrays.load(Path(config.data))
    return lambda: prepare(config, data)


def seconds_of(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> None:
    records = list[Record]()
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            make = begun(folder, *case)
            run = make()
            next(run.train(lambda: True))
            writing = median(seconds_of(partial(checkpoint.save, folder, run)) for _ in range(TIMES))
            fresh = make()
            reading = median(seconds_of(partial(checkpoint.load, folder, fresh)) for _ in range(TIMES))
            size = (folder / checkpoint.CHECKPOINT).stat().st_size
        records.append({"case": name, "writing_s": round(writing, 4), "reading_s": round(reading, 4), "MB": round(size / 1e6, 2)})
        print(f"{name:50} write {writing:7.3f} s   read {reading:7.3f} s   {size / 1e6:8.2f} MB", flush=True)
    save(HERE.parent / "results" / "saving.json", records)


if __name__ == "__main__":
    main()
