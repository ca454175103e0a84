"""NoisyLabelClassifier: the same training behind scikit-learn's contract."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch.utils.data import Dataset

from sprl.audit import judge
from sprl.config import default_cutout, default_method, find_device, find_precision, make_method, settle
from sprl.core import Method
from sprl.data import Array, How, Preprocess, channels_first, check_learnable, encode
from sprl.data.augment import suited_to
from sprl.data.catalogue import load
from sprl.data.columns import NUMBER, TEXT, kind_of, refuse_infinite
from sprl.data.columns import numbers as numbers_of
from sprl.data.dataset import read as read_dataset
from sprl.data.rows import FileRows, Streamed, place
from sprl.data.unseen import read as read_unseen
from sprl.engine import label_issues, predict, start
from sprl.errors import InputError, SprlWarning
from sprl.labels import GUESSES, pred_probs, warn_if_few, warn_of_doubts
from sprl.networks import Factory
from sprl.show import numbers
from sprl.state import State, Task, adam
from sprl.stepping import find_stepper
from sprl.training import train


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for labels that may be wrong.

    X: features (N, D), standardised inside; pictures (N, H, W) or (N, H, W, C); a torch `Dataset` of (x, label); or a path to a folder of
    pictures, a table or an .npz file, as `sprl train` takes it. y: any hashable labels; not needed where X brings them.

    Parameters
    ----------
    method : a name of METHODS ("sprl", "standard", "co-teaching", ...), a method such as SPRL(gamma_d=50), or "auto": "sprl", but
        "standard" for colour pictures with the small CNN, which SPRL keeps from learning
    network : "auto", a name ("resnet18", "convnet", "cnn", "mlp", "timm:NAME"), an nn.Module (copied) or a factory
        (shape, num_classes) -> Module
    epochs, batch_size, lr : None for what suits the data
    noise_rate : share of wrong labels, if known
    optimizer : a torch optimizer or a function (parameters, lr=...) of that kind; None for Adam. Any that steps without a closure; its
        learning rate and, where it has one, beta1 follow the paper's plan. With SGD use SPRL(normalised=True)
    augment : "auto": pictures are shifted, in colour flipped, and for ResNet18 a square is hidden (docs/data.md); None; or a function on a
        batch of pictures [B, C, H, W]
    random_state, device : as usual; device "auto" takes the GPU where there is one
    precision : "bf16", "fp32", or "auto": bf16 on a GPU that has it in hardware, else fp32
    graph : whether steps on a GPU are captured as CUDA graphs; None: for the networks named above, not for a module, timm or your optimizer
    verbose : print a line an epoch: the share of labels that the network agrees with, and of those it trained on

    After fit: `classes_, history_` (a dict an epoch), `noise_rate_` (estimated), `noise_rate_interval_` (90 %), `noise_rate_clear_`
    (False: wrong and right labels do not stand apart, and rate and flags are guesses: review by rank), `T1_`; `label_issues()`,
    `pred_probs()`.
    """

    def __init__(
        self,
        method: str | Method = "auto",
        network: str | torch.nn.Module | Factory = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        noise_rate: float | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        augment: str | Callable[[torch.Tensor], torch.Tensor] | None = "auto",
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        precision: str = "auto",
        graph: bool | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.noise_rate = noise_rate
        self.optimizer = optimizer
        self.augment = augment
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.graph = graph
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = self.random_state is None
        return tags

    def fit(self, X: Any, y: Any = None, *, label_column: str = "label", skip_bad: bool = False) -> NoisyLabelClassifier:
        """Train. Ctrl-C ends it early and keeps what was learned.

        Of a path: `label_column` is the column of a table that holds the labels; `skip_bad` goes on without pictures that cannot be read.
        """
        index = X.index if isinstance(X, pd.DataFrame) else None
        if isinstance(X, (str, os.PathLike)):
            data = load(os.fspath(X), how=How(label=label_column, skip_bad=skip_bad))
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            index, rows = data.ids, data.x
            self.preprocess_, self.resize_, self.columns_ = data.preprocess, data.resize, data.columns
            self.n_features_in_ = int(np.prod(data.shape))
            number, self.classes_ = (data.y, np.array(data.classes)) if y is None else encode(self._labels(y))
        else:
            if isinstance(X, Dataset):
                X, y = read_dataset(X, y)
            if y is None:
                raise InputError("This estimator requires y to be passed, but the target y is None: fit(X, y)")
            x = self._rows(X, reset=True)
            self.preprocess_, self.resize_, self.columns_ = Preprocess.fit(x), None, None
            number, self.classes_ = encode(self._labels(y))
            rows = self.preprocess_(x)
        if len(number) != len(rows):
            raise InputError(f"X has {len(rows)} rows but y has {len(number)} labels")
        check_learnable(number, len(self.classes_))
        warn_if_few(number)
        task, state = self._start(rows, number)

        history: list[dict[str, Any]] = []
        try:
            for epoch in train(task, state):
                row = epoch.row()
                history[epoch.t - 1 :] = [row]
                if self.verbose:
                    print(f"epoch {epoch.t}/{task.epochs}  {numbers(row)}", file=sys.stderr)
        except KeyboardInterrupt:
            del history[state.t :]  # of a search, after which the run began anew
            if not history:
                raise
            warnings.warn(f"stopped after epoch {len(history)} of {task.epochs}; what was learned is kept", SprlWarning, stacklevel=2)
        self.history_ = history
        self.T1_ = getattr(state.method, "T1", None)
        self.networks_ = state.networks.eval()
        self._issues = label_issues(task, state, self.classes_).set_axis(index if index is not None else range(len(rows)))
        self._pred_probs = pred_probs(state.memory)
        verdict = judge(self._issues["label_quality"].to_numpy(), number)
        self.noise_rate_, self.noise_rate_interval_, self.noise_rate_clear_ = verdict.rate, (verdict.low, verdict.high), verdict.clear
        warn_of_doubts(self._issues, state.memory)
        return self

    def _start(self, x: torch.Tensor | FileRows, number: Array) -> tuple[Task, State]:
        device = find_device(str(self.device))
        shape = tuple(x.shape[1:])
        network, _, epochs, batch_size, lr = settle(
            self.network, self.epochs, self.batch_size, self.lr, n=len(number), shape=shape, device=device
        )
        if isinstance(self.augment, str) and self.augment != "auto":
            raise InputError(f'augment cannot be {self.augment!r}: it must be "auto", None or a function on a batch of pictures')
        augment = suited_to(shape, cutout=default_cutout(network, shape)) if isinstance(self.augment, str) else self.augment
        task = Task(
            x=place(x, device),
            y=torch.from_numpy(number).to(device),
            num_classes=len(self.classes_),
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            augment=augment or (lambda x: x),
            optimizer=self.optimizer or adam,
            precision=find_precision(str(self.precision), device),
            channels_last=True,
        )
        ours = isinstance(network, str) and not network.startswith("timm:") and self.optimizer is None
        stepper = find_stepper(device, self.graph, compile=None, ours=ours)
        method = default_method(network, shape, device) if isinstance(self.method, str) and self.method == "auto" else self.method
        return task, start(task, make_method(method, {}, self.noise_rate), network, stepper)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities [N, C], columns as in `classes_`."""
        check_is_fitted(self)
        if isinstance(X, (str, os.PathLike)):
            how = How(mend="Mend or remove them")  # rows are known by their place alone: none may be left out
            rows = read_unseen(Path(X), self.preprocess_, self.preprocess_.shape[0], self.resize_, self.columns_, how)[1]
        else:
            if isinstance(X, Dataset):
                X = read_dataset(X, (), self.preprocess_.shape)[0]
            columns = self.columns_ if isinstance(X, pd.DataFrame) else None
            rows = self.preprocess_(self._rows(X, reset=False) if columns is None else columns(X))
        device = next((p.device for p in self.networks_.parameters()), rows.device)
        return predict(self.networks_, Streamed(rows, device)).double().cpu().numpy()

    def predict(self, X: Any) -> Array:
        """The most likely class of each row, one of `classes_`."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(1)]

    def label_issues(self) -> pd.DataFrame:
        """A row for each training row, under X's own index, of a path the rows' ids: `is_label_issue`, `label_quality`,
        `wrong_probability`, `given_label`, `predicted_label`, `confidence`."""
        check_is_fitted(self)
        if not self.noise_rate_clear_:
            warnings.warn(GUESSES, SprlWarning, stacklevel=2)
        return self._issues.copy()

    def pred_probs(self) -> Array:
        """The last probabilities [N, C] of each training row while it was trained on, in-sample, in the form that cleanlab takes."""
        check_is_fitted(self)
        return self._pred_probs.copy()

    def _rows(self, X: Any, reset: bool) -> Array:
        dimensions = X.ndim if hasattr(X, "ndim") else np.ndim(X) if isinstance(X, (list, tuple)) else 2
        if dimensions in (3, 4):
            x = np.asarray(X)
            if reset:
                self.n_features_in_ = int(np.prod(channels_first(x).shape[1:]))
            return x
        if isinstance(X, pd.DataFrame):
            check_numbers(X)
        return validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=1)

    def _labels(self, y: Any) -> Any:
        """y as a list or a 1-D array; scikit-learn's checks where scikit-learn knows the type."""
        if isinstance(y, (list, tuple)):
            check_labelled(pd.Series(list(y), dtype=object))
            if any(isinstance(v, tuple) for v in y) or len({type(v) for v in y}) > 1:
                return list(y)
        if isinstance(y, pd.Series):
            check_labelled(y)
            y = y.array.to_numpy()  # nullable integers stay whole
        if getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:
            raise InputError(f"y should be a 1d array, one label a row, got shape {tuple(y.shape)}: of one-hot labels take y.argmax(1)")
        y = column_or_1d(y, warn=True)
        if y.dtype == object:
            check_labelled(y)
        else:
            check_classification_targets(y)
            if y.dtype.kind == "f" and not np.isfinite(y).all():
                raise InputError("y holds NaN or inf: every row needs a label")
        return y


def check_numbers(frame: pd.DataFrame) -> None:
    """Of a cell that is no number scikit-learn tells neither the column nor what to do."""
    advice = 'mend it, or give a path, of which text is encoded and missing cells are filled: fit("table.csv")'
    for name, cells in frame.items():
        kind = kind_of(cells)
        if kind not in (NUMBER, TEXT):
            raise InputError(f"the column {name!r} holds {kind} cells, not numbers: {advice}")
        found, odd = numbers_of(cells)
        if odd.any():
            raise InputError(f"the column {name!r} holds {cells[odd].iloc[0]!r} in row {cells.index[odd][0]}, not a number: {advice}")
        refuse_infinite(str(name), found[:, None], cells)
        missing = np.isnan(found)
        if missing.any():
            raise InputError(f"the column {name!r} holds NaN in row {cells.index[missing][0]}: {advice}")


def check_labelled(y: Any) -> None:
    """What stands for a missing label is no class; sets would even take each NaN for one of its own."""
    lacking = np.flatnonzero(pd.isna(y))
    if len(lacking):
        more = f" and in {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
        raise InputError(f"y lacks a label (NaN or None) in row {lacking[0]}{more}: every row needs a label")
