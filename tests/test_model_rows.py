"""What a model that was read back is given to predict."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import clusters, write_shots
from safetensors.torch import save_file

from sprl.config import Config
from sprl.data import How
from sprl.errors import InputError, SprlWarning
from sprl.files import write_config
from sprl.model import load
from sprl.run import prepare

NAMES = ["age", "income", "h", "d", "e", "f"]


def run_of(data, folder):
    """A run of its first weights, as `sprl train` writes it."""
    run = prepare(Config(data=str(data), epochs=1, method="standard", device="cpu"))
    folder.mkdir()
    write_config(folder, run)
    save_file(run.state.networks.state_dict(), folder / "model.safetensors")
    return load(folder)


@pytest.fixture(scope="module")
def frame():
    x, y = clusters(40)
    return pd.DataFrame(x, columns=NAMES).assign(colour=np.array(["r", "g"])[y % 2], label=np.array(["ant", "bee", "cat", "dog"])[y])


@pytest.fixture(scope="module")
def of_table(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("table")
    frame.to_csv(path / "t.csv", index=False)
    model = run_of(path / "t.csv", path / "run")
    return model, model.predict_proba(path / "t.csv")


def test_the_columns_of_a_data_frame_are_found_by_name(frame, of_table):
    model, expected = of_table
    assert len(np.unique(expected.round(3), axis=0)) > 20  # the rows differ, so that a wrong order would show
    for columns in ([*NAMES, "colour"], ["colour", "label", *NAMES[::-1]]):
        assert np.allclose(model.predict_proba(frame[columns]), expected, atol=1e-6)
    assert model.predict(frame[::-1]).tolist() == model.predict(frame)[::-1].tolist()  # whatever their index says, rows keep their order


def test_a_data_frame_is_refused_as_a_file_is(frame, of_table, tmp_path):
    other = frame.drop(columns="d").rename(columns={"income": "incomes"})
    other.to_csv(tmp_path / "q.csv", index=False)
    for rows in (other, tmp_path / "q.csv"):
        message = r"^the table lacks 'income', 'd', which the model was trained on; did you mean 'incomes' for 'income'\?$"
        with pytest.raises(InputError, match=message):
            of_table[0].predict(rows)
    with pytest.raises(InputError, match="the column 'age' held numbers in training, but here 'old' in row 0"):
        of_table[0].predict(frame.assign(age="old"))
    with pytest.warns(SprlWarning, match=r"missing or unknown in 'h' \(1 of 40 rows\)"):
        of_table[0].predict(frame.assign(h=frame["h"].where(frame.index != 3)))


def test_a_model_of_arrays_takes_a_data_frame_as_an_array(frame, tmp_path):
    x = frame[NAMES].to_numpy()
    np.savez(tmp_path / "a.npz", x=x, y=frame["label"].to_numpy(str))
    model = run_of(tmp_path / "a.npz", tmp_path / "run")
    assert np.array_equal(model.predict_proba(frame[NAMES]), model.predict_proba(x))


def test_pictures_that_cannot_be_read_are_not_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    write_shots(tmp_path / "shots", 8)
    model = run_of(tmp_path / "shots", tmp_path / "run")
    (tmp_path / "shots" / "day" / "bad.png").write_bytes(b"x")
    for give in (model.predict, model.predict_proba):
        with pytest.raises(InputError, match=r"^one picture cannot be read: bad\.png .* Mend or .*: sprl predict RUN INPUT --skip-bad$"):
            give(tmp_path / "shots" / "day")
    with pytest.warns(SprlWarning, match="left out"):
        assert len(model.predict_file(tmp_path / "shots" / "day", How(skip_bad=True))[0]) == 4


def test_pixels_are_no_pictures_of_floats(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x / 255, y=np.arange(20) % 2)
    np.save(tmp_path / "q.npy", x)
    model = run_of(tmp_path / "a.npz", tmp_path / "run")
    assert model.predict_proba(x / 255).shape == (20, 2)
    for rows in (x, tmp_path / "q.npy"):
        with pytest.raises(InputError, match="other numbers than uint8 pixels, these are uint8: give them as in training, such as x / 255"):
            model.predict(rows)


@pytest.mark.parametrize("kind", ["table", "features", "pixels"])
def test_the_module_alone_takes_its_inputs(kind, frame, of_table, tmp_path):
    rng = np.random.default_rng(0)
    x = {"table": frame, "features": rng.normal(3, 5, (20, 6)), "pixels": rng.integers(0, 256, (20, 9, 9), dtype=np.uint8)}[kind]
    model = of_table[0]
    if kind != "table":
        np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 2)
        model = run_of(tmp_path / "a.npz", tmp_path / "run")
    expected = model.predict_proba(x)
    assert not any(part.training for part in model.module.modules())  # as it was before
    with torch.no_grad():
        assert np.allclose(model.module(model.inputs(x)).softmax(1), expected, atol=1e-5)


def test_a_model_can_be_exported(of_table, frame):
    model, expected = of_table
    x = model.inputs(frame)
    exported = torch.export.export(model.module, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()
    with torch.no_grad():
        assert np.allclose(exported(x[:7]).softmax(1), expected[:7], atol=1e-5)
