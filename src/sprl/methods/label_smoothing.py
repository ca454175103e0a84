"""SPRL with label smoothing in place of the resistance loss (Eq. 16), an ablation of Shi et al. 2021."""

from dataclasses import dataclass
from typing import Literal

from sprl.methods.sprl import SPRL


@dataclass(frozen=True)
class LabelSmoothing(SPRL):
    """SPRL with the divergence from equal probabilities (Eq. 16) in place of the resistance loss (Eq. 7).

    Differences from the reference: SPRL's.
    """

    against: Literal["label-smoothing"] = "label-smoothing"
