"""SPRL's curriculum alone (Eq. 5), an ablation of Shi et al. 2021."""

from dataclasses import dataclass
from typing import Literal

from sprl.methods.sprl import SPRL


@dataclass(frozen=True)
class Curriculum(SPRL):
    """SPRL without the resistance loss: the growing curriculum of likely labels alone (Eq. 5, 6, 13). Its gamma_d has no effect.

    In the end every sample is chosen, wrong labels included. Differences from the reference: SPRL's.
    """

    against: Literal["nothing"] = "nothing"
