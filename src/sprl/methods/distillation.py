"""SPRL with knowledge distillation in place of the resistance loss (Eq. 15), an ablation of Shi et al. 2021."""

from dataclasses import dataclass
from typing import Literal

from sprl.methods.sprl import SPRL


@dataclass(frozen=True)
class Distillation(SPRL):
    """SPRL with the divergence from the previous prediction (Eq. 15) in place of the resistance loss (Eq. 7).

    The two differ by the entropy of the previous prediction, a constant, so that training is the same step by step; the paper's figure
    shows the resistance loss ahead, which its formulae do not explain. Differences from the reference: SPRL's.
    """

    against: Literal["distillation"] = "distillation"
