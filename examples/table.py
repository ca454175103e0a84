"""A table of numbers and text, a quarter of whose labels are wrong. Run: python examples/table.py

The same in the terminal, for a file of your own: sprl train tumours.csv --label-column diagnosis
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import sprl
from sprl.config import Config
from sprl.run import Run, prepare


def write_table(path: Path) -> np.ndarray:
    """569 tumours measured under a microscope, one of the measures told in words. Returns which labels are wrong."""
    tumours = load_breast_cancer(as_frame=True)
    clean = tumours.target.to_numpy()
    train, _ = train_test_split(np.arange(len(clean)), test_size=0.3, stratify=clean, random_state=0)
    y = clean.copy()
    y[train] = sprl.corrupt(clean[train], "symmetric:0.25", num_classes=2, seed=0)

    table = tumours.data.drop(columns="mean area")
    table["size"] = pd.qcut(tumours.data["mean area"], 3, labels=["small", "medium", "large"])
    table["diagnosis"] = tumours.target_names[y]
    table["split"] = np.where(np.isin(np.arange(len(y)), train), "train", "test")
    table.to_csv(path, index=False)
    return y != clean


def train(path: Path, method: str) -> Run:
    run = prepare(Config(data=str(path), label_column="diagnosis", method=method, device="cpu"))
    for _ in run:  # an epoch each
        pass
    return run


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tumours.csv"
        wrong = write_table(path)
        plain = train(path, "standard")
        robust = train(path, "sprl")

    print(f"test accuracy with cross-entropy: {plain.rows[-1]['test_accuracy']:.1f}%")
    print(f"test accuracy with SPRL: {robust.rows[-1]['test_accuracy']:.1f}%")
    issues = robust.labels()  # `index` is the row of the file
    suspects = issues.drop(columns="id").nsmallest(20, "label_quality")
    print(suspects.head(5).to_string(index=False, float_format="{:.3f}".format))
    print(f"really wrong among the 20 labels of lowest quality: {wrong[suspects['index']].sum()}")


if __name__ == "__main__":
    main()
