"""Independent random streams from one seed: the same wrong labels for every method, the same first weights for every batch order."""

from typing import Literal

import numpy as np

# draws: augmentation and dropout; labeller: a whole run before the run, whose network gives the labels; rows: which of them to train on
STREAMS = ("noise", "weights", "batches", "holdout", "draws", "labeller", "rows")


def stream_seed(seed: int, stream: Literal["noise", "weights", "batches", "holdout", "draws", "labeller", "rows"], rank: int = 0) -> int:
    """A seed for one stream, and of several processes for each, statistically independent of the others'."""
    words = [seed, STREAMS.index(stream), *([rank] if rank else [])]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
