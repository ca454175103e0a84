"""NoisyLabelClassifier: scikit-learn's contract, and what it adds."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import clusters, write_shots
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.utils.data import TensorDataset

from sprl import SPRL, InputError, NoisyLabelClassifier, SprlWarning
from sprl.noise import corrupt

quick = {"epochs": 12, "lr": 1e-2, "random_state": 0, "device": "cpu"}


# check_array_api_input needs SCIPY_ARRAY_API and skips itself without it: this estimator takes NumPy arrays.
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([NoisyLabelClassifier(epochs=20, random_state=0, device="cpu")])
def test_the_contract_of_scikit_learn(estimator, check):
    assert check(estimator) is None


@pytest.fixture
def noisy(points):
    x, clean = points
    return x, corrupt(clean, "symmetric:0.33", 4, seed=0), clean


def test_it_learns_through_wrong_labels_and_names_them(noisy):
    x, y, clean = noisy
    names = np.array(["ant", "bee", "cat", "dog"])
    model = NoisyLabelClassifier(**quick).fit(x, names[y])
    assert (model.predict(x) == names[clean]).mean() > 0.97
    issues = model.label_issues()
    assert list(issues) == ["is_label_issue", "label_quality", "wrong_probability", "given_label", "predicted_label", "confidence"]
    assert (issues["is_label_issue"] == (y != clean)).mean() > 0.95
    assert model.pred_probs().sum(1) == pytest.approx(1, abs=1e-5)
    assert (model.pred_probs().argmax(1) == clean).mean() > 0.95
    low, high = model.noise_rate_interval_
    assert low <= (y != clean).mean() <= high
    assert model.noise_rate_clear_
    assert issues["given_label"].tolist() == names[y].tolist()
    assert model.noise_rate_ == pytest.approx((y != clean).mean(), abs=0.05)
    assert [row["epoch"] for row in model.history_] == list(range(1, 13))
    assert 1 <= model.T1_ <= 3


def test_what_cannot_be_told_is_called_a_guess_each_time(points):
    x, y = points
    model = NoisyLabelClassifier(**quick, method="standard").fit(x, y)  # no label is wrong
    assert not model.noise_rate_clear_
    for _ in range(2):
        with pytest.warns(SprlWarning, match=r"is_label_issue and wrong_probability are guesses then: review by rank"):
            model.label_issues()


def test_few_rows_are_warned_of():
    x, y = clusters(30, num_classes=2)
    with pytest.warns(SprlWarning, match="30 rows, of which 30 are in classes of more than 3, are too few"):
        NoisyLabelClassifier(**quick, method="standard").fit(x, y)


def test_pickle_and_clone(noisy):
    x, y, _ = noisy
    model = NoisyLabelClassifier(**quick, method=SPRL(T1=2)).fit(x, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x), model.predict_proba(x))
    again = clone(model).fit(x, y)
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
    assert clone(model).get_params()["method"] == SPRL(T1=2)


def test_pipeline_and_grid_search(noisy):
    x, y, _ = noisy
    pipeline = make_pipeline(MinMaxScaler(), NoisyLabelClassifier(**quick))
    search = GridSearchCV(pipeline, {"noisylabelclassifier__method": ["standard", SPRL(T1=1)]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.5


@pytest.mark.parametrize("form", ["grey", "colour", "floats", "dataset"])
def test_pictures_and_datasets(form):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = rng.integers(0, 100, (80, 8, 8), dtype=np.uint8)
    x[y == 1, :4] += 120
    model = NoisyLabelClassifier(**quick, method=SPRL(T1=1))
    if form == "dataset":
        data = TensorDataset(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y))
        assert (model.fit(data).predict(data) == y).mean() == 1
        return
    x = {"grey": x, "colour": np.stack([x] * 3, axis=3), "floats": x / 3.0}[form]
    assert (model.fit(x, y).predict(x) == y).mean() == 1
    with pytest.raises(InputError, match="trained on pictures of 8 x 8 pixels, as"):
        model.predict(x[:, :5])
    other, message = (x.astype(np.uint8), "than uint8 pixels, these are uint8") if form == "floats" else (x / 255, "these are float64")
    with pytest.raises(InputError, match=message):
        model.predict(other)


@pytest.mark.parametrize("labels", [["yes", "no"], [("a", 1), ("b", 2)], [True, False], [1, "one"]])
def test_labels_of_any_hashable_kind(points, labels):
    x, y = points
    given = [labels[i % 2] for i in y]
    model = NoisyLabelClassifier(**quick, method="standard").fit(x, given)
    assert (np.array([a == b for a, b in zip(model.predict(x), given, strict=True)])).mean() > 0.95


@pytest.mark.filterwarnings("ignore:the curriculum began at its lower bound")
def test_networks_and_optimizers_of_ones_own(noisy):
    x, y, clean = noisy

    def factory(shape, num_classes):
        return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, num_classes))

    module = factory((6,), 4)
    before = [p.clone() for p in module.parameters()]
    for network in (factory, module):
        model = NoisyLabelClassifier(**quick, network=network, optimizer=torch.optim.AdamW).fit(x, y)
        assert (model.predict(x) == clean).mean() > 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))  # copied, not trained in place


def test_the_normalised_form_under_sgd(noisy):
    x, y, clean = noisy
    method = SPRL(T1=1, normalised=True)
    model = NoisyLabelClassifier(epochs=12, lr=0.1, random_state=0, method=method, optimizer=torch.optim.SGD).fit(x, y)
    assert (model.predict(x) == clean).mean() > 0.97


class WithAid(nn.Linear):
    """A network with an auxiliary output while it is trained."""

    def forward(self, x):
        return (super().forward(x), x) if self.training else super().forward(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "spl"}, "did you mean 'sprl'"),
        ({"network": "resnet"}, "did you mean 'resnet18'"),
        ({"epochs": 0}, "0 epochs is too few"),
        ({"batch_size": 1}, "batch norm needs at least 2"),
        ({"epochs": 4.5}, "epochs cannot be 4.5"),
        ({"augment": "off"}, "augment cannot be 'off'"),
        ({"method": SPRL}, "give the method as an instance"),
        ({"method": "standard", "noise_rate": 5}, "noise rate is 5"),
        ({"network": None}, "must be a name, a torch.nn.Module or a factory"),
        ({"lr": -1.0}, "learning rate is -1"),
        ({"noise_rate": 1.5}, "noise rate is 1.5"),
        ({"method": SPRL(T1=50)}, "less than the 12 epochs"),
        ({"network": nn.Linear(6, 3)}, "must return one logit a class"),
        ({"network": lambda shape, num_classes: None}, "returned NoneType, not a torch.nn.Module"),
        ({"network": nn.Linear(6, 4).requires_grad_(False)}, "no weights to train"),
        ({"network": lambda shape, num_classes: WithAid(6, num_classes)}, "in training mode the network returns a tuple"),
    ],
)
def test_mistakes_are_value_errors_with_one_line(noisy, change, message):
    x, y, _ = noisy
    with pytest.raises(InputError, match=message):
        NoisyLabelClassifier(**{**quick, **change}).fit(x, y)


def test_bad_rows_and_labels(points):
    x, y = points
    broken = x.copy()
    broken[7, 3] = np.nan
    for rows, labels, message in [
        (broken, y, "column 3 holds NaN in row 7"),
        (x, np.zeros(len(x), int), "one class"),
        (x[:1], y[:1], "1 sample is too few"),
        (x, y[:5], "X has 400 rows but y has 5 labels"),
        (x, None, "y is None"),
        (x, np.eye(4)[y], r"one label a row, got shape \(400, 4\): of one-hot labels take y.argmax\(1\)"),
    ]:
        with pytest.raises(InputError, match=message):
            NoisyLabelClassifier(**quick).fit(rows, labels)


LISTS = (list, tuple, lambda names: [name if pd.isna(name) else ("is", name) for name in names])
ARRAYS = (
    lambda names: np.array(names, dtype=object),
    lambda names: pd.Series(names, dtype=object),
    lambda names: pd.Series(names, dtype="string"),
    lambda names: pd.Series(names, dtype="category"),
)


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("given", [*LISTS, *ARRAYS])
def test_a_missing_label_is_no_class(points, gap, given):
    names = [gap, *np.array(["ant", "bee", "cat", "dog"])[points[1][1:]].tolist()]
    with pytest.raises(InputError, match=r"^y lacks a label \(NaN or None\) in row 0: every row needs a label$"):
        NoisyLabelClassifier(**quick).fit(points[0], given(names))


def test_missing_whole_numbers_are_missed_too(points):
    x, y = points
    with pytest.raises(InputError, match=r"in row 3 and in 1 more: every row needs a label"):
        NoisyLabelClassifier(**quick).fit(x, pd.Series(y, dtype="Int64").mask(np.isin(np.arange(400), (3, 9))))


def test_data_frames_name_their_features(points):
    x, y = points
    frame = pd.DataFrame(x, columns=list("abcdef"), index=[f"row {i}" for i in range(400)])
    model = NoisyLabelClassifier(**quick).fit(frame, pd.Series(y, index=np.arange(400)[::-1]))
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert (model.predict(frame) == y).mean() > 0.97
    with pytest.warns(SprlWarning, match="review by rank"):  # no label is wrong
        assert model.label_issues().index.equals(frame.index)
    nullable = NoisyLabelClassifier(**quick, method="standard").fit(frame, pd.Series(y, dtype="Int64"))
    assert nullable.classes_.dtype.kind in "iO"
    assert nullable.classes_.tolist() == [0, 1, 2, 3]


def put(cell):
    return lambda cells: cells.astype(object).mask(np.arange(len(cells)) == 7, cell)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (put("u"), "holds 'u' in row r7, not a number: mend it, or give a path"),
        (put("u"), 'missing cells are filled: fit("table.csv")'),
        (lambda cells: put("u")(cells).astype("category"), "holds 'u' in row r7, not a number"),
        (lambda cells: pd.to_datetime(cells), "holds date cells, not numbers"),
        (lambda cells: [[1.0]] * len(cells), "holds list cells, not numbers"),
        (lambda cells: put(np.nan)(cells).astype(float), "holds NaN in row r7: mend it"),
        (put(None), "holds NaN in row r7"),
        (lambda cells: cells.round().astype("Int64").mask(cells.index == "r7"), "holds NaN in row r7"),
        (lambda cells: put(-np.inf)(cells).astype(float), "holds inf in row r7: fill or drop"),
    ],
)
def test_what_is_no_number_in_a_data_frame_is_named(points, change, holds):
    x, y = points
    frame = pd.DataFrame(x, columns=list("abcdef"), index=[f"r{i}" for i in range(400)])
    model = NoisyLabelClassifier(**{**quick, "epochs": 2}, method="standard").fit(frame.astype(object), y)  # numbers all the same
    broken = frame.assign(e=change(frame["e"]))
    for give in (lambda: model.fit(broken, y), lambda: model.predict(broken)):
        with pytest.raises(InputError, match=r"^the column 'e' .*" + re.escape(holds)):
            give()


def test_pictures_are_augmented_as_by_the_command_line(monkeypatch):
    rng, hidden = np.random.default_rng(0), []
    monkeypatch.setattr("sprl.data.augment.cut_out", lambda x, side: hidden.append(side) or x)
    x, y = rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8), [0, 1] * 30
    for network, augment, sides in (("cnn", "auto", []), ("resnet18", None, []), ("resnet18", "auto", [4])):
        NoisyLabelClassifier("standard", network, epochs=1, augment=augment, device="cpu").fit(x, y)
        assert set(hidden) == set(sides)


@pytest.mark.filterwarnings("ignore:8 rows")
def test_the_method_is_what_suits_the_network():
    x, y = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8), [0, 1] * 4
    made = [(x, "auto", "cnn"), (x, "sprl", "cnn"), (x[..., 0], "auto", "cnn"), (x, "auto", "mlp"), (x, SPRL(T1=1), "cnn")]
    found = [NoisyLabelClassifier(method, network, epochs=2, device="cpu").fit(rows, y).T1_ for rows, method, network in made]
    assert found == [None, 1, 1, 1, 1]  # plain training has none


def test_ctrl_c_keeps_what_was_learned(points, capsys):
    x, y = points
    calls = []

    def interrupt(batch):
        calls.append(1)
        if len(calls) > 40:
            raise KeyboardInterrupt
        return batch

    model = NoisyLabelClassifier(**quick, method=SPRL(T1=1), augment=interrupt, verbose=True)
    with pytest.warns(SprlWarning, match="stopped after epoch 3 of 12"):
        model.fit(x, y)
    assert len(model.history_) == 3
    assert (model.predict(x) == y).mean() > 0.9
    assert re.search(r"epoch 3/12  agrees +\d+ %  trained on +\d+ %\n", capsys.readouterr().err)


def test_ctrl_c_just_after_the_run_began_anew_leaves_nothing_to_keep(points):
    x, y = points

    class Stopped(SPRL):
        def found(self, t, p):
            return 5

        def search(self, epochs):
            return super().search(epochs)._replace(afresh_from=1)

        def refresh(self, memory, y, clock, predict):
            if self.T1 == 5:
                raise KeyboardInterrupt
            return super().refresh(memory, y, clock, predict)

    with pytest.raises(KeyboardInterrupt):
        NoisyLabelClassifier(**quick, method=Stopped()).fit(x, y)


def test_a_path_brings_its_labels_and_column_rules(tmp_path, points):
    x, y = points
    frame = pd.DataFrame(x, columns=list("abcdef")).assign(
        kind=np.array(["ant", "bee", "cat", "dog"])[y], colour=np.array(["r", "g"])[y % 2]
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match="label"):
        NoisyLabelClassifier().fit(tmp_path / "t.csv")
    model = NoisyLabelClassifier(**quick).fit(str(tmp_path / "t.csv"), label_column="kind")
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    with pytest.warns(SprlWarning, match="review by rank"):  # no label is wrong
        assert model.label_issues().index.tolist() == [str(i) for i in range(len(y))]
    predicted = model.predict(tmp_path / "t.csv")
    assert (predicted == frame["kind"]).mean() > 0.9
    shuffled = frame[["colour", "f", "a", "e", "b", "d", "c"]]
    assert (model.predict(shuffled) == predicted).all()  # by name, not by position


def test_a_folder_of_pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    write_shots(tmp_path / "shots", 40)
    (tmp_path / "shots" / "day" / "bad.png").write_bytes(b"x")
    with pytest.raises(InputError, match="skip_bad=True"):
        NoisyLabelClassifier().fit(tmp_path / "shots")
    with pytest.warns(SprlWarning):
        model = NoisyLabelClassifier(**quick).fit(tmp_path / "shots", skip_bad=True)
    with pytest.warns(SprlWarning, match="review by rank"):
        assert "day/0.png" in model.label_issues().index
    assert set(model.predict(tmp_path / "shots" / "night")) == {"night"}
    with pytest.raises(InputError, match=r"^one picture cannot be read: bad\.png .*\. Mend or remove them$"):
        model.predict(tmp_path / "shots" / "day")
