"""Review pages of small data."""

import hashlib

import numpy as np
import pandas as pd

from sprl.audit import judge
from sprl.report import Page

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "=1+1",
    "[red]bold[/red]",
    '"quoted", with comma\nand\r\nlines',
    "\u202egnp.exe",
    "nul\0here\u2028there",
    "<!-- <script> &amp; ]]>",
    "x" * 300,
    "日本語 👩‍👩‍👧",
    "'apostrophe",
    "-1",
    "@SUM(A1)",
    "$suspects ${title}",
]


def table(n, classes, wrong=0.4, seed=0):
    """labels.csv of n rows: given labels in turn, of the wrong ones each is really the next class."""
    rng = np.random.default_rng(seed)
    given = np.arange(n) % len(classes)
    is_wrong = rng.random(n) < wrong
    quality = np.where(is_wrong, rng.beta(2, 20, n), rng.beta(20, 2, n))
    verdict = judge(quality)
    names = np.array(classes, dtype=object)
    return pd.DataFrame(
        {
            "id": [f"row/{i}" for i in range(n)],
            "index": np.arange(n),
            "given_label": names[given],
            "predicted_label": names[np.where(verdict.wrong > 0.5, (given + 1) % len(classes), given)],
            "confidence": np.maximum(verdict.wrong, 1 - verdict.wrong),
            "label_quality": quality,
            "wrong_probability": verdict.wrong,
            "is_label_issue": verdict.wrong > 0.5,
        }
    )


def page(labels, classes, **more):
    digest = hashlib.sha256("".join(f"{id}\t{given}\n" for id, given in zip(labels["id"], labels["given_label"], strict=True)).encode())
    rows = [{"epoch": t, "loss": 1 / t, "test_accuracy": 50 + t, "chosen": 0.1 * t, "contradicted": 0.4} for t in range(1, 11)]
    settings = {
        "title": "pets",
        "classes": list(classes),
        "labels": labels,
        "verdict": judge(labels["label_quality"].to_numpy()),
        "rows": rows,
        "run_id": "0123456789ab",
        "labels_hash": digest.hexdigest()[:16],
        "picture": None,
        "features": None,
        "command": "sprl apply runs/pets-1 corrections.csv",
    }
    return Page(**{**settings, **more})
