"""The methods, one file each. To add one: write its file, add its line here."""

from sprl.core import Method
from sprl.methods.curriculum import Curriculum
from sprl.methods.distillation import Distillation
from sprl.methods.label_smoothing import LabelSmoothing
from sprl.methods.sprl import SPRL
from sprl.methods.standard import Standard

__all__ = ["METHODS", "SPRL", "Curriculum", "Distillation", "LabelSmoothing", "Standard"]

METHODS: dict[str, type[Method]] = {
    "sprl": SPRL,
    "standard": Standard,
    "curriculum": Curriculum,
    "distillation": Distillation,
    "label-smoothing": LabelSmoothing,
}
