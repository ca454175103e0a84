"""Datasets read whole, against the items one by one."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sprl.data import dataset, pictures
from sprl.errors import InputError


class Items(Dataset):
    """A map-style dataset of given items."""

    def __init__(self, items, length=None):
        self.items, self.length, self.asked = items, len(items) if length is None else length, []

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        self.asked.append(i)
        return self.items[i]


def test_features_and_labels_each_read_once():
    items = Items([([1, 2], "a"), ([3, 4.5], "b")])
    x, y = dataset.read(items)
    assert x.tolist() == [[1, 2], [3, 4.5]]  # whole numbers first, then floats
    assert y == ["a", "b"]
    assert items.asked == [0, 1]


def test_labels_are_plain_values_whatever_holds_them():
    labels = [torch.tensor(3), np.int64(4), np.array(5), 6, "seven", torch.tensor([8])]
    assert dataset.read(Items([(0.0, label) for label in labels]))[1] == [3, 4, 5, 6, "seven", 8]


def test_pictures_of_tensors_have_their_channels_last_and_arrays_stay_as_they_are():
    tensors = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).view(2, 3, 4, 5)
    x, y = dataset.read(TensorDataset(tensors, torch.tensor([1, 0])))
    assert x.dtype == np.uint8
    assert (x == tensors.permute(0, 2, 3, 1).numpy()).all()
    assert y == [1, 0]
    arrays = tensors.numpy()
    assert (dataset.read(Items([(row, 0) for row in arrays]))[0] == arrays).all()


def test_tensors_of_other_kinds():
    rows = [torch.tensor([1.5, 2], requires_grad=True), torch.tensor([3, 4], dtype=torch.bfloat16)]
    x, _ = dataset.read(Items([(row, 0) for row in rows]))
    assert x.tolist() == [[1.5, 2], [3, 4]]
    assert x.dtype == np.float32


def test_labels_that_are_passed_stand_for_those_of_the_dataset():
    assert dataset.read(Items([([1.0], "a")]), ["b"])[1] == ["b"]
    assert dataset.read(Items([np.ones(2)]), ())[0].tolist() == [[1, 1]]
    assert dataset.read(TensorDataset(torch.ones(1, 2)), ["b"])[0].tolist() == [[1, 1]]


def noise(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)).convert(mode)


def test_images_of_one_size_keep_their_pixels():
    images = [noise(5, 7, seed) for seed in range(3)]
    x, y = dataset.read(Items([(image, i) for i, image in enumerate(images)]))
    assert (x == np.stack([np.asarray(image) for image in images])).all()
    assert y == [0, 1, 2]


@pytest.mark.parametrize("sizes", [[(5, 7)] * 3, [(90, 70), (80, 200), (70, 66)], [(20, 30), (30, 20), (9, 50)], [(100, 100)] * 2])
def test_images_are_resized_as_their_files_would_be(tmp_path, monkeypatch, sizes):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    images = [noise(*size, seed) for seed, size in enumerate(sizes)]
    files = []
    for i, image in enumerate(images):
        image.save(tmp_path / f"{i}.png")
        files.append(pictures.File(str(tmp_path / f"{i}.png"), str(i), "a"))
    data = pictures.load("files", files, ["a"], pictures.How())
    x, _ = dataset.read(Items([(image, 0) for image in images]))
    assert torch.equal(data.x[torch.arange(len(files))], torch.from_numpy(x.transpose(0, 3, 1, 2)))


def test_grey_images_have_one_channel_unless_the_model_takes_three():
    grey = Items([(noise(4, 4, seed, "L"), 0) for seed in range(2)])
    x, _ = dataset.read(grey)
    assert x.shape == (2, 4, 4, 1)
    assert (x[0, ..., 0] == np.asarray(grey.items[0][0])).all()
    for channels in (1, 3):
        assert dataset.read(grey, (), shape=(channels, 3, 3))[0].shape == (2, 3, 3, channels)
    for modes in (("L", "RGB"), ("RGB", "L")):
        assert dataset.read(Items([(noise(4, 4, 0, mode), 0) for mode in modes]))[0].shape == (2, 4, 4, 3)


def test_photos_stay_as_they_were_and_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    noise(400, 600).save(tmp_path / "a.jpg", exif=exif)
    with Image.open(tmp_path / "a.jpg") as photo:
        x, _ = dataset.read(Items([(photo, 0)]), shape=(3, 30, 20))
        assert photo.size == (600, 400)
        upright = np.asarray(photo.transpose(Image.Transpose.ROTATE_270).resize((20, 30), Image.Resampling.BICUBIC))
    assert (x[0] == upright).all()
    noise(40, 60).save(tmp_path / "b.png", exif=exif)
    with Image.open(tmp_path / "b.png") as photo:
        assert dataset.read(Items([(photo, 0)]))[0].shape == (1, 60, 40, 3)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (Items([]), "the dataset is empty"),
        (Items([(np.ones(2), 0), (np.ones(3), 0)]), "differ in shape"),
        (Items([(np.ones(2), 0), (noise(3, 3), 0)]), "differ in shape"),
        (Items([np.ones(2)]), "gives no labels"),
        (TensorDataset(torch.ones(2, 2)), "gives no labels"),
        (Items([{"image": 1, "label": 2}]), r"dicts, but must be \(x, label\)"),
        (Items([()]), "item 0 of the dataset is empty"),
        (Items([(np.ones(2), 0)], length=3), "has no item 1, though its length is 3"),
        (Items([("text", 0)]), "item 0 of the dataset is of the type str"),
        (Items([(np.ones(2), 0), (None, 0)]), "item 1 of the dataset is of the type NoneType"),
        (Items([(np.ones(2), torch.eye(3)[0])]), r"the label of item 0 of the dataset has the shape \(3,\)"),
        (Items([(Image.new("I", (3, 3)), 0)]), "item 0 of the dataset is a picture that cannot be used: more than 8 bits"),
        (Dataset(), "has no length: give a map-style one"),
    ],
)
def test_datasets_that_cannot_be_used(items, message):
    with pytest.raises(InputError, match=message):
        dataset.read(items)


def test_streams_are_refused_even_if_they_know_their_length():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from [(1.0, 0)]

        def __len__(self):
            return 1

    with pytest.raises(InputError, match="give a map-style one"):
        dataset.read(Stream())
