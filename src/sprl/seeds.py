"""Independent random streams from one seed: the same wrong labels for every method, the same first weights for every batch order."""

from typing import Literal

import numpy as np

# draws: augmentation and dropout; labeller: a whole run before the run, whose network gives the labels; rows: which of them to train on
STREAMS = ("noise", "weights", "batches", "holdout", "draws", "labeller", "rows")


def stream_seed(seed: int, stream: Literal["noise", "weights", "batches", "holdout", "draws", "labeller", "rows"], *parts: int) -> int:
    """A seed for one stream, or for a part of it, statistically independent of the others'."""
    return int(np.random.SeedSequence([seed, STREAMS.index(stream), *parts]).generate_state(1, np.uint64)[0] >> np.uint64(1))
