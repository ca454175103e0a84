"""scikit-learn's digits: 1,797 pictures of 8 x 8 pixels, which come with it and need no download."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sprl.data import Data, Preprocess


def read() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Pictures [N, 8, 8] of 0 to 16, and labels. From scikit-learn's file: to import scikit-learn takes a second, to read this none."""
    found = find_spec("sklearn")
    path = None if found is None or found.origin is None else Path(found.origin).parent / "datasets/data/digits.csv.gz"
    if path is None or not path.is_file():  # it may come to lie elsewhere
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.images, digits.target.astype(np.int64)
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64)


def load() -> Data:
    """1,347 training and 450 test pictures; the same split whatever the run's seed (digits_test.txt: drawn once, so many of each class)."""
    images, y = read()
    x = np.round(images * (255 / 16)).astype(np.uint8)
    test = np.loadtxt(Path(__file__).with_name("digits_test.txt"), dtype=np.int64).ravel()
    train = np.setdiff1d(np.arange(len(y)), test)
    preprocess = Preprocess.fit(x)
    return Data(
        name="digits",
        x=preprocess(x[train]),
        y=y[train],
        classes=tuple("0123456789"),
        index=train,
        ids=tuple(f"digits/{i}" for i in train),
        preprocess=preprocess,
        x_test=preprocess(x[test]),
        y_test=y[test],
        clean=y[train],
    )
