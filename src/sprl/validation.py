"""The tenth of the labels, noisy like the rest, that is held out to judge by."""

import torch
from torch import Tensor

from sprl.functional import shares, smallest
from sprl.seeds import stream_seed

FEWEST_ROWS, FEWEST_PICTURES = 60, 200  # features are learned in an epoch or two, and memorised soon after; pictures take longer


def a_tenth(y: Tensor, num_classes: int, fewest: int, seed: int) -> Tensor | None:
    """A tenth of each class of labels y [N] on the host, drawn at random, as a mask [N]; None under `fewest`, or under five of a class."""
    sizes = torch.bincount(y, minlength=num_classes)
    if len(y) < fewest or int(sizes[sizes > 0].min()) < 5:
        return None
    draw = torch.rand(len(y), generator=torch.Generator().manual_seed(stream_seed(seed, "holdout")))
    return smallest(draw, y, shares(len(y) // 10, sizes))
