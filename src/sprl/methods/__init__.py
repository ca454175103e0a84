"""The methods, one file each. To add one: write its file, add its line here."""

from sprl.core import Method
from sprl.methods.sprl import SPRL
from sprl.methods.standard import Standard

__all__ = ["METHODS", "SPRL", "Standard"]

METHODS: dict[str, type[Method]] = {
    "sprl": SPRL,
    "standard": Standard,
}
