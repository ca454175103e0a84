"""Self-paced resistance learning: train through wrong labels, and find them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sprl.engine import Epoch, label_issues, predict, start
    from sprl.errors import InputError, SprlWarning
    from sprl.estimator import NoisyLabelClassifier
    from sprl.labels import Recorder
    from sprl.loss import SPRLLoss
    from sprl.methods import (
        METHODS,
        SPRL,
        Bootstrap,
        CoTeaching,
        CoTeachingPlus,
        Curriculum,
        Decoupling,
        Distillation,
        FCorrection,
        LabelSmoothing,
        MentorNet,
        Resistance,
        SelfPaced,
        Standard,
    )
    from sprl.model import Model, load
    from sprl.noise import corrupt
    from sprl.state import State, Task
    from sprl.training import train

# The public names and where they live: imported when first used, so that `sprl --help` need not wait for PyTorch.
_HOMES = {
    "engine": ("Epoch", "label_issues", "predict", "start"),
    "errors": ("InputError", "SprlWarning"),
    "estimator": ("NoisyLabelClassifier",),
    "labels": ("Recorder",),
    "loss": ("SPRLLoss",),
    "methods": (
        *("METHODS", "SPRL", "Standard", "Bootstrap", "FCorrection", "Decoupling", "MentorNet", "CoTeaching", "CoTeachingPlus"),
        *("SelfPaced", "Curriculum", "Distillation", "LabelSmoothing", "Resistance"),
    ),
    "model": ("Model", "load"),
    "noise": ("corrupt",),
    "state": ("State", "Task"),
    "training": ("train",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("engine", "functional", "labels", "methods", "networks", "noise", "schedules")  # of the functions that docs/method.md names
__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sprl.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sprl' has no attribute {name!r}")
    return getattr(import_module(f"sprl.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
