"""The examples run as a user runs them, and what they print is what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def output(name: str) -> str:
    """What examples/NAME.py prints."""
    done = subprocess.run([sys.executable, f"examples/{name}.py"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(label: str, text: str) -> float:
    """The number that follows `label` and a colon."""
    found = re.search(rf"^{re.escape(label)}: ([\d.]+)%?$", text, re.MULTILINE)
    assert found, f"no {label!r} in:\n{text}"
    return float(found[1])


@pytest.mark.parametrize(
    ("name", "needs"),
    [("plain_loop", ()), ("lightning_module", ("lightning",)), ("hugging_face_trainer", ("transformers", "accelerate"))],
)
def test_sprl_loss_beats_cross_entropy(name: str, needs: tuple[str, ...]) -> None:
    for module in needs:
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'sprl[examples]'")
    text = output(name)
    if name == "lightning_module":
        assert number("epochs that the loss remembers", text) == 60  # 30 before the checkpoint, 30 after
    robust, plain = number("test accuracy with SPRLLoss", text), number("test accuracy with cross-entropy", text)
    assert robust >= 90  # measured 91.3 to 93.3, the plain loop over four seeds
    assert robust >= plain + 20  # measured 31 to 43 more
    assert number("really wrong among the 20 labels of lowest quality", text) >= 18  # measured 20; by chance 10


def test_recorder_finds_wrong_labels_under_another_loss() -> None:
    text = output("recorder")
    assert number("test accuracy with smoothed labels", text) >= 90
    assert number("really wrong among the 20 labels of lowest quality", text) >= 18  # by chance 4
    flagged = re.search(r"^flagged: (\d+) labels, with (\d+) of the (\d+) wrong ones$", text, re.MULTILINE)
    assert flagged, text
    every, right, wrong = map(int, flagged.groups())
    assert right >= 0.9 * wrong
    assert right >= 0.75 * every


def test_own_epoch_loop_stops_early_with_a_good_network() -> None:
    text = output("own_epoch_loop")
    epochs = [int(t) for t in re.findall(r"^epoch (\d+):", text, re.MULTILINE)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) < 60
    assert f"stopped after epoch {len(epochs)} of 60" in text
    assert number("test accuracy with SPRL", text) >= 88
    assert number("really wrong among the 20 labels of lowest quality", text) >= 18  # measured 20; by chance 10


def test_every_example_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in (ROOT / "examples").glob("*.py") if f'"{path.stem}"' not in text] == []


@pytest.mark.parametrize("name", ["table", "text_embeddings"])
def test_wrong_labels_of_tables_and_texts_are_found(name: str) -> None:
    text = output(name)
    robust, plain = number("test accuracy with SPRL", text), number("test accuracy with cross-entropy", text)
    assert robust >= 85  # measured 88.3 to 91.7 over three and four seeds
    assert robust >= plain + 7  # measured 11 to 24 more
    assert number("really wrong among the 20 labels of lowest quality", text) >= 17  # measured 19 and 20
