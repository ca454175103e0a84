"""The methods, one file each. To add one: write its file, add its line here; or, from another package, an entry point of `sprl.methods`."""

from dataclasses import is_dataclass
from typing import Any

from sprl.core import Method
from sprl.errors import ensure
from sprl.methods.bootstrap import Bootstrap
from sprl.methods.co_teaching import CoTeaching
from sprl.methods.co_teaching_plus import CoTeachingPlus
from sprl.methods.curriculum import Curriculum
from sprl.methods.decoupling import Decoupling
from sprl.methods.distillation import Distillation
from sprl.methods.f_correction import FCorrection
from sprl.methods.label_smoothing import LabelSmoothing
from sprl.methods.mentornet import MentorNet
from sprl.methods.resistance import Resistance
from sprl.methods.self_paced import SelfPaced
from sprl.methods.sprl import SPRL
from sprl.methods.standard import Standard
from sprl.registry import Registry

__all__ = [
    "DEMONSTRATIONS",
    "METHODS",
    "SPRL",
    "Bootstrap",
    "CoTeaching",
    "CoTeachingPlus",
    "Curriculum",
    "Decoupling",
    "Distillation",
    "FCorrection",
    "LabelSmoothing",
    "MentorNet",
    "Resistance",
    "SelfPaced",
    "Standard",
]

OURS: dict[str, type[Method]] = {
    "sprl": SPRL,
    "standard": Standard,
    "bootstrap": Bootstrap,
    "f-correction": FCorrection,
    "decoupling": Decoupling,
    "mentornet": MentorNet,
    "co-teaching": CoTeaching,
    "co-teaching+": CoTeachingPlus,
    "self-paced": SelfPaced,
    "curriculum": Curriculum,
    "distillation": Distillation,
    "label-smoothing": LabelSmoothing,
    "resistance": Resistance,
}
DEMONSTRATIONS = ("resistance",)  # they show something and are no contenders: compared only where they are named


def adopted(name: str, found: Any) -> type[Method]:
    """Of another package."""
    parts = ("networks", "init", "refresh", "step")
    proper = isinstance(found, type) and is_dataclass(found) and all(hasattr(found, part) for part in parts)
    ensure(proper, f"it is no dataclass with {', '.join(parts)}")
    return found


METHODS = Registry("method", "sprl.methods", OURS, adopted)
