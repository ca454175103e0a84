"""scikit-learn's digits: 1,797 pictures of 8 x 8 pixels, which come with it and need no download."""

import numpy as np

from sprl.data import Data, Preprocess


def load() -> Data:
    """1,347 training and 450 test pictures; the same split whatever the run's seed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x = np.round(digits.images * (255 / 16)).astype(np.uint8)
    y = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(y)), test_size=450, stratify=y, random_state=0)
    train.sort()
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
