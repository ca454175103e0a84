"""The methods, one file each. To add one: write its file, add its line here; or, from another package, an entry point of `sprl.methods`."""

import warnings
from importlib.metadata import entry_points

from sprl.core import Method
from sprl.errors import SprlWarning
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

METHODS: dict[str, type[Method]] = {
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

for point in entry_points(group="sprl.methods"):
    try:
        METHODS.setdefault(point.name, point.load())
    except Exception as error:  # of other people's packages: ours works without
        warnings.warn(f"the method {point.name} of {point.value} cannot be loaded: {error}", SprlWarning, stacklevel=1)
