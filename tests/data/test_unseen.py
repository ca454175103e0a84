"""New rows for a model: what is left out is told, what cannot be read refused."""

from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from sprl.cli import predict
from sprl.data import How
from sprl.data.columns import Columns
from sprl.data.decode import Resize
from sprl.data.unseen import read
from sprl.errors import InputError, SprlWarning


def test_files_that_are_no_pictures_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "new" / "in").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "new" / "a.png")
    for name in ("IMG.HEIC", "in/c.txt", "b.png.bak", "d.txt", "Thumbs.db"):
        (tmp_path / "new" / name).write_text("x")
    with pytest.warns(SprlWarning, match=r"no pictures by their names are left out: 2 .txt, 1 .heic, 1 .bak|2 .txt, 1 .bak, 1 .heic"):
        ids, rows = read(tmp_path / "new", torch.from_numpy, 3, Resize(4, 4), None, How())
    assert (ids, len(rows)) == (["a.png"], 1)


@pytest.mark.parametrize(
    ("resize", "columns", "instead"),
    [
        (Resize(4, 4), None, "a folder of pictures"),
        (None, Columns.fit(pd.DataFrame({"a": np.arange(3.0)})), "a table, as its to_csv writes one"),
        (None, None, "an .npz with x"),
    ],
)
def test_saved_sets_of_hugging_face_are_not_read(tmp_path, resize, columns, instead):
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert "Saved Hugging Face data sets are not read here" in get_type_hints(predict, include_extras=True)["rows"].__metadata__[0].help
    with pytest.raises(InputError, match=f"is a saved Hugging Face data set, from which no new rows are read: give {instead}$"):
        read(tmp_path, torch.from_numpy, 3, resize, columns, How())
