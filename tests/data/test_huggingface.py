"""Saved Hugging Face data sets: their rows as they were, whatever held them."""

import io
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image

from sprl.data import How, huggingface
from sprl.data.decode import Resize
from sprl.errors import InputError, SprlWarning


def test_saved_folders_are_known_without_datasets(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert not huggingface.is_saved(tmp_path)
    (tmp_path / "state.json").write_text("{}")
    assert not huggingface.is_saved(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{}")
    assert huggingface.is_saved(tmp_path)
    with pytest.raises(InputError, match="needs datasets: pip install datasets"):
        huggingface.load(tmp_path, How())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "dataset_dict.json").write_text("{}")
    assert huggingface.is_saved(tmp_path / "other")


def png(value: tuple[int, ...], size: tuple[int, int] = (6, 4)) -> dict[str, object]:
    """A cell with a picture of one colour, grey for one number."""
    file = io.BytesIO()
    Image.new("RGB" if len(value) == 3 else "L", size, value if len(value) == 3 else value[0]).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


class TestSaved:
    @pytest.fixture(autouse=True)
    def datasets(self):
        self.hf = pytest.importorskip("datasets")
        self.hf.disable_progress_bars()

    def load(self, saved, folder, **how):
        if isinstance(saved, dict):
            saved = self.hf.DatasetDict(saved)
        saved.save_to_disk(folder)
        assert huggingface.is_saved(folder)
        return huggingface.load(folder, How(**how))

    def pictures(self, cells, labels):
        features = {"image": self.hf.Image(), "label": self.hf.ClassLabel(names=["dog", "cat", "fox"])}
        return self.hf.Dataset.from_dict({"image": cells, "label": labels}, features=self.hf.Features(features))

    def table(self, **columns):
        columns = {"vector": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "label": ["b", "a", "b"]} | columns
        return self.hf.Dataset.from_dict({name: cells for name, cells in columns.items() if cells is not None})

    def test_pictures(self, tmp_path):
        train = self.pictures([png((i, 0, 9)) for i in range(300)], [i % 2 for i in range(300)])
        test = self.pictures([png((200, 1, 2)), png((7,))], [1, 0])
        seen = []
        data = self.load({"test": test, "train": train}, tmp_path / "pets", progress=lambda *told: seen.append(told[1:]))
        assert data.name == "pets"
        assert data.classes == ("dog", "cat", "fox")  # as named, though no row is a fox
        assert data.shape == (3, 4, 6)
        assert data.resize == Resize(4, 6)
        expected = np.zeros((300, 3, 4, 6), np.uint8)
        expected[:, 0], expected[:, 2] = np.minimum(np.arange(300), 255)[:, None, None], 9
        assert torch.equal(data.x, torch.from_numpy(expected))
        assert data.y.tolist() == [0, 1] * 150
        assert data.x_test[:, :, 0, 0].tolist() == [[200, 1, 2], [7, 7, 7]]
        assert data.y_test.tolist() == [1, 0]
        assert data.index.tolist() == list(range(300))
        assert seen[-1] == (302, 302)

    def test_grey_pictures_have_one_plane_and_sizes_are_brought_to_one(self, tmp_path):
        grey = self.pictures([png((i,), size=(8 + i, 8)) for i in range(4)], [0, 1, 0, 1])
        data = self.load(grey, tmp_path / "a")
        assert data.shape == (1, 8, 8)
        assert data.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        assert self.load(grey, tmp_path / "b", resize=Resize(5, 7)).shape == (1, 5, 7)

    def test_damaged_pictures_are_told_of_together(self, tmp_path):
        cells = [
            png((1, 2, 3)),
            {"bytes": b"junk", "path": "x.png"},
            None,
            png((4, 5, 6)),
            {"bytes": png((7, 8, 9))["bytes"][:45], "path": None},
        ]
        bad = self.pictures(cells, [0, 1, 1, 1, 0])
        with pytest.raises(InputError, match=r"3 of 5 pictures cannot be read: 1 \(not a picture\); 2 \(no picture\); 4 \(.*trunc"):
            self.load(bad, tmp_path / "a")
        with pytest.warns(SprlWarning, match="3 of 5 pictures"):
            data = self.load(bad, tmp_path / "b", skip_bad=True)
        assert data.index.tolist() == [0, 3]
        assert data.ids == ("0", "3")
        assert data.skipped == ("1", "2", "4")
        assert data.y.tolist() == [0, 1]
        assert data.x[:, :, 0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
        with pytest.raises(InputError, match="none of"):
            self.load(self.pictures([None], [0]), tmp_path / "c", skip_bad=True)

    def test_pictures_may_be_kept_as_paths(self, tmp_path):
        (tmp_path / "a.png").write_bytes(png((1, 2, 3))["bytes"])
        cell = {"bytes": None, "path": str(tmp_path / "a.png")}
        assert huggingface.pixels(cell, Resize(1, 1), nullcontext) == (bytes([1, 2, 3]), False)
        assert "no such file" in huggingface.pixels(cell | {"path": str(tmp_path / "b.png")}, Resize(1, 1), nullcontext)

    def test_embeddings_and_other_columns(self, tmp_path):
        train = self.table(id=[7, 8, 9], size=[1, 2, None])
        test = self.table(size=[1, 2, 3], label=["a", "a", "b"]).select([2, 0])
        with pytest.warns(SprlWarning, match=r"'size' \(1 of 5 rows\)"):
            data = self.load({"train": train, "test": test}, tmp_path / "a")
        assert data.classes == ("a", "b")
        assert data.y.tolist() == [1, 0, 1]
        assert data.ids == ("7", "8", "9")
        assert data.columns.names == ("vector[0]", "vector[1]", "size")
        assert data.preprocess.mean == (2.0, 3.0, 1.5)
        assert data.y_test.tolist() == [1, 0]
        assert data.x_test[:, 0].tolist() == data.x[[2, 0], 0].tolist()

    def test_validation_serves_where_there_is_no_test_part(self, tmp_path):
        train, other = self.table(), self.table().select([1])
        assert self.load({"train": train, "validation": other}, tmp_path / "a").y_test.tolist() == [0]
        with pytest.warns(SprlWarning, match="left out: validation, as train serves to train on and test to test on"):
            data = self.load({"validation": train, "train": train, "test": other}, tmp_path / "b")
        assert data.y_test.tolist() == [0]

    def test_parts_of_other_names_are_told(self, tmp_path):
        with pytest.warns(SprlWarning, match="left out: unsupervised, as train serves to train on$"):
            data = self.load({"train": self.table(), "unsupervised": self.table()}, tmp_path / "a")
        assert len(data.y) == 3

    @pytest.mark.parametrize("form", ["numpy", "torch", "pandas"])
    def test_the_form_that_a_user_asked_for_does_not_matter(self, tmp_path, form):
        plain = self.load(self.table(), tmp_path / "a")
        data = self.load(self.table().with_format(form), tmp_path / "b")
        assert torch.equal(data.x, plain.x)
        assert data.y.tolist() == plain.y.tolist()
        pictures = self.pictures([png((1, 2, 3)), png((4, 5, 6))], [0, 1]).with_format(form)
        assert self.load(pictures, tmp_path / "c").x[:, :, 0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_rows_chosen_from_a_data_set_stay_chosen(self, tmp_path):
        data = self.load(self.table().select([2, 1]), tmp_path / "a")
        assert data.y.tolist() == [1, 0]
        assert (data.x[0] > data.x[1]).all()

    @pytest.mark.parametrize(
        ("columns", "label", "message"),
        [
            ({}, "kind", "has no column 'kind', only vector, label: .* --label-column NAME"),
            ({"label": ["a", None, "b"]}, "label", r"the label is missing in one row \(1, counted"),
            ({"label": [0.5, 1.0, 2.0]}, "label", "looks like a quantity"),
            ({}, "vector", "'vector' holds list cells"),
            ({"vector": None, "text": ["one", "two", "three"]}, "label", "no column that can be used .*'text'.* sentence embedding"),
            ({"id": [1, 1, 2]}, "label", "more than one row with the id '1'"),
        ],
    )
    def test_what_cannot_be_used(self, tmp_path, columns, label, message):
        with pytest.raises(InputError, match=message):
            self.load(self.table(**columns), tmp_path / "a", label=label)

    def test_parts_that_cannot_be_used(self, tmp_path):
        table = self.table()
        with pytest.raises(InputError, match="no rows to train on"):
            self.load({"test": table}, tmp_path / "a")
        with pytest.raises(InputError, match="test lacks the columns vector"):
            self.load({"train": table, "test": table.remove_columns("vector")}, tmp_path / "b")
        with pytest.raises(InputError, match="'c' is the label of test rows"):
            self.load({"train": table, "test": self.table(label=["a", "b", "c"])}, tmp_path / "c")
        pictures = [png((1, 2, 3))] * 2
        with pytest.raises(InputError, match=r"test: the label is missing in 2 rows \(0, 1, counted"):
            self.load({"train": self.pictures(pictures, [0, 1]), "test": self.pictures(pictures, [-1, None])}, tmp_path / "d")

    def test_damaged_folders(self, tmp_path):
        self.load(self.table(), tmp_path / "a")
        next((tmp_path / "a").glob("*.arrow")).write_bytes(b"x")
        for name, text in (("state.json", None), ("state.json", "{"), ("dataset_info.json", '{"features": {"a": {"_type": "Nothing"}}}')):
            if text is not None:
                (tmp_path / "a" / name).write_text(text)
            with pytest.raises(InputError, match="is not a readable Hugging Face data set") as told:
                huggingface.load(tmp_path / "a", How())
            assert "\n" not in str(told.value)
