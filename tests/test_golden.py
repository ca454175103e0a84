"""A few epochs of every method, as they were: a refactor must not move the numbers.

Exact on the recorded versions, close elsewhere, as are those recorded elsewhere since. When a change is meant to move them:
python tests/test_golden.py
"""

import json
import platform
from pathlib import Path

import pytest
import torch
from conftest import clusters
from torch import nn

from sprl.config import needs_rate
from sprl.engine import start
from sprl.methods import METHODS, SPRL, Bootstrap, CoTeachingPlus, MentorNet, Resistance, SelfPaced
from sprl.noise import corrupt
from sprl.state import Task
from sprl.training import train

FILE = Path(__file__).with_name("golden.json")
VARIANTS = {
    **{name: cls(noise_rate=0.3) if needs_rate(cls) else cls() for name, cls in METHODS.items()},
    "resistance": Resistance(T1=6),
    "sprl as published": SPRL.as_published(T1=2, gamma_d=10.0),
    "sprl as released": SPRL.as_released(T1=2, gamma_d=10.0),
    "sprl limited, normalised": SPRL(T1=2, limit="agreement", normalised=True),
    "bootstrap, soft": Bootstrap(kind="soft"),
    "self-paced, threshold": SelfPaced(growth="threshold"),
    "mentornet, pd": MentorNet(curriculum="pd"),
    "mentornet, learned": MentorNet(mentor="learned", mentor_steps=20),  # so few that rounding does not grow in them
    "mentornet, rate": MentorNet(rate=0.3),
    "co-teaching+, released loss": CoTeachingPlus(noise_rate=0.3, empty="co-teach", released_loss=True),
}


def network(shape, num_classes):
    return nn.Sequential(nn.Linear(shape[0], 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, num_classes))


def curve(method):
    x, clean = clusters(403)
    y = torch.from_numpy(corrupt(clean, "pair:0.3", 4, seed=0))
    task = Task(torch.from_numpy(x), y, num_classes=4, epochs=12, batch_size=32, lr=1e-2)
    return [epoch.loss for epoch in train(task, start(task, method, network))]


def versions():
    """What exact equality depends on: PyTorch, and the processor, for which its libraries choose their kernels."""
    cpuinfo = Path("/proc/cpuinfo")
    model = (
        next((line for line in cpuinfo.read_text().splitlines() if "model name" in line), "") if cpuinfo.exists() else platform.processor()
    )
    return {"torch": torch.__version__, "cpu": model.split(":")[-1].strip(), "capability": torch.backends.cpu.get_cpu_capability()}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_curve_has_not_moved(name):
    golden = json.loads(FILE.read_text())
    losses = curve(VARIANTS[name])
    if golden["versions"] == versions() and name not in golden["elsewhere"]:
        assert losses == golden["losses"][name]
    else:
        assert losses == pytest.approx(golden["losses"][name], rel=0.02)


if __name__ == "__main__":
    FILE.write_text(
        json.dumps(
            {"versions": versions(), "elsewhere": [], "losses": {name: curve(method) for name, method in VARIANTS.items()}}, indent=1
        )
        + "\n"
    )
