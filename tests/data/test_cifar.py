"""CIFAR's binary files, and the labels that people gave to them."""

import hashlib
import os
import pickle
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sprl.data import cifar, human
from sprl.data.catalogue import load, relabel
from sprl.data.cifar import CIFAR10, CIFAR100
from sprl.errors import InputError

SMALL = replace(CIFAR10, train={"data_batch_1.bin": 20, "data_batch_2.bin": 30}, test={"test_batch.bin": 10})


def write(folder: Path, layout=SMALL):
    """Random rows, written byte by byte as the format is described. Returns pictures [N, 32, 32, 3] and labels."""
    rng = np.random.default_rng(0)
    pictures, labels = [], []
    for name, count in (layout.train | layout.test).items():
        content = b""
        for i in range(count):
            picture = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            content += bytes([i % 10]) + b"".join(picture[:, :, colour].tobytes() for colour in range(3))
            pictures.append(picture)
            labels.append(i % 10)
        (folder / name).write_bytes(content)
    return np.array(pictures), np.array(labels)


def test_rows_come_in_the_order_of_the_files(tmp_path):
    pictures, labels = write(tmp_path)
    data = cifar.load(tmp_path, SMALL)
    assert data.name == "cifar10"
    assert data.x.dtype == torch.uint8
    assert torch.equal(data.x, torch.from_numpy(pictures[:50].transpose(0, 3, 1, 2).copy()))
    assert torch.equal(data.x_test, torch.from_numpy(pictures[50:].transpose(0, 3, 1, 2).copy()))
    assert data.x.is_contiguous()
    assert data.shape == (3, 32, 32)
    assert data.y.tolist() == data.clean.tolist() == labels[:50].tolist()
    assert data.y_test.tolist() == labels[50:].tolist()
    assert (data.ids[0], data.ids[49]) == ("cifar10/0", "cifar10/49")
    assert data.index.tolist() == list(range(50))
    assert data.classes == CIFAR10.classes


TWO = replace(CIFAR100, train={"train.bin": 250}, test={"test.bin": 100})


def write_two(folder: Path, layout=TWO):
    """CIFAR-100's rows: superclass, class, picture; the class's number is every pixel's value."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (layout.train | layout.test).items():
        (folder / name).write_bytes(b"".join(bytes([99, i % 100]) + bytes([i % 100]) * 3072 for i in range(count)))
    return folder


def test_of_two_labels_the_finer_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "CHUNK", 70)  # rows come in several pieces, the last of them short
    data = cifar.load(write_two(tmp_path), TWO)
    assert data.name == "cifar100"
    assert data.y.tolist() == data.clean.tolist() == [i % 100 for i in range(250)]
    assert data.y_test.tolist() == list(range(100))
    assert torch.equal(data.x, torch.from_numpy(data.y.astype(np.uint8))[:, None, None, None].expand(250, 3, 32, 32))
    assert (len(data.classes), data.classes[0], data.classes[99]) == (100, "apple", "worm")
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"c{i}" for i in range(100)))
    assert cifar.load(tmp_path, TWO).classes[99] == "c99"


def test_a_class_beyond_the_hundredth(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "CHUNK", 70)
    path = write_two(tmp_path) / "train.bin"
    content = bytearray(path.read_bytes())
    content[207 * 3074 + 1] = 100
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"train.bin: row 207 has the label 100, but labels end at 99"):
        cifar.load(tmp_path, TWO)


def test_the_files_of_the_real_sets():
    assert CIFAR10.sizes() == {f"{name}.bin": 30_730_000 for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")}
    assert CIFAR100.sizes() == {"train.bin": 153_700_000, "test.bin": 30_740_000}
    assert len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)


def test_a_folder_of_these_files_is_known_by_them(tmp_path):
    write_two(tmp_path)
    with pytest.raises(InputError, match=r"cifar100 in .*train.bin has 768,500 bytes, not 153,700,000"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "own"),
    [
        (b"\n".join(b"%c" % c for c in b"abcdefghij") + b"\n\n", True),
        (b"a\nb\n", False),
        (b"\n".join([b"same"] * 10), False),
        (b"\n".join(b"%c\x1b" % c for c in b"abcdefghij"), False),
        (b"\n".join(b"%c\xff" % c for c in b"abcdefghij"), False),
    ],
)
def test_names_of_classes(tmp_path, content, own):
    write(tmp_path)
    (tmp_path / "batches.meta.txt").write_bytes(content)
    assert cifar.load(tmp_path, SMALL).classes == (tuple("abcdefghij") if own else CIFAR10.classes)


def test_all_files_that_are_not_right_are_told_at_once(tmp_path):
    write(tmp_path)
    (tmp_path / "data_batch_1.bin").unlink()
    with (tmp_path / "test_batch.bin").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(InputError, match=r"data_batch_1.bin is missing; test_batch.bin has 30,731 bytes, not 30,730$"):
        cifar.load(tmp_path, SMALL)


def test_a_label_that_is_none(tmp_path):
    write(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    content = bytearray(path.read_bytes())
    content[7 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_2.bin: row 7 has the label 10, but labels end at 9"):
        cifar.load(tmp_path, SMALL)


@pytest.mark.parametrize("place", [".", "cifar-10-batches-py", "../cifar-10-batches-py"])
def test_the_pickled_version_is_told_of_and_not_read(tmp_path, place):
    folder = tmp_path / "binary"
    (folder / place).mkdir(parents=True)
    (folder / place / "data_batch_1").write_bytes(pickle.dumps({}))
    with pytest.raises(InputError, match="holds the pickled version, which is not read, as pickles can run code"):
        cifar.load(folder)


def test_the_pickled_version_of_cifar100(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "meta").write_bytes(pickle.dumps({}))
    with pytest.raises(InputError, match="cifar-100-python holds the pickled version, which is not read"):
        cifar.load(tmp_path, CIFAR100)
    assert cifar.remark(tmp_path) == ""


def test_the_check_sees_every_pixel_and_the_labels(tmp_path):
    pictures, _ = write(tmp_path)
    layout = replace(SMALL, sha256=hashlib.sha256(pictures[:50].tobytes()).hexdigest())
    assert cifar.check(tmp_path, layout) == {}
    content = bytearray((tmp_path / "data_batch_2.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "data_batch_2.bin").write_bytes(content)
    assert cifar.check(tmp_path, layout).keys() == {"training pictures"}
    content[-1] ^= 1
    content[0] ^= 1
    (tmp_path / "data_batch_2.bin").write_bytes(content)
    assert cifar.check(tmp_path, layout).keys() == {"training labels"}


CLEAN = np.arange(40) % 10
GIVEN = {kind: (CLEAN + i + 1) % 10 for i, kind in enumerate(human.SOURCES["cifar10"].labels)}


def publish(path: Path, **change):
    """A file as the publishers' has it."""
    labels = {"clean_label": CLEAN} | {human.SOURCES["cifar10"].labels[kind]: y for kind, y in GIVEN.items()} | change
    torch.save({key: y for key, y in labels.items() if y is not None}, path)


@pytest.mark.parametrize("below", [".", "cifar-n"])
@pytest.mark.parametrize("which", GIVEN)
def test_labels_that_people_gave(tmp_path, below, which):
    (tmp_path / below).mkdir(exist_ok=True)
    publish(tmp_path / below / "CIFAR-10_human.pt")
    assert human.read(tmp_path, which, CLEAN).tolist() == GIVEN[which].tolist()
    arrays = {kind: y.astype(np.uint8) for kind, y in GIVEN.items()}
    arrays[which] = arrays[which][::-1]
    np.savez(tmp_path / below / "cifar10n.npz", clean=CLEAN.astype(np.uint8), **arrays)
    found = human.read(tmp_path, which, CLEAN)  # of both files, the one without pickles
    assert found.tolist() == GIVEN[which][::-1].tolist()
    assert found.dtype == np.int64


def test_labels_that_people_gave_to_cifar100(tmp_path):
    data = cifar.load(write_two(tmp_path / "cifar-100-binary"), TWO)
    noisy = (data.y + (np.arange(250) % 5 < 2)) % 100
    torch.save({"clean_label": data.y, "noisy_label": noisy, "noisy_coarse_label": noisy // 5}, tmp_path / "CIFAR-100_human.pt")
    assert relabel(data, "human:noisy", str(tmp_path)).tolist() == noisy.tolist()
    (tmp_path / "CIFAR-100_human.pt").unlink()
    np.savez(tmp_path / "cifar100n.npz", clean=data.y.astype(np.uint8), noisy=noisy.astype(np.uint8))
    found = relabel(data, "human:noisy", str(tmp_path))
    assert found.tolist() == noisy.tolist()
    assert (found != data.clean).mean() == 0.4
    with pytest.raises(InputError, match="unknown kind of labels that people gave to cifar100 'worse'; choose from: noisy"):
        relabel(data, "human:worse", str(tmp_path))
    (tmp_path / "cifar100n.npz").unlink()
    with pytest.raises(InputError, match=r"get CIFAR-100_human.pt from http://noisylabels.com"):
        relabel(data, "human:noisy", str(tmp_path))


@pytest.mark.parametrize("kind", [">i2", "<i4", "u1", "<i8"])
def test_numbers_of_any_size(tmp_path, kind):
    publish(tmp_path / "CIFAR-10_human.pt", worse_label=GIVEN["worse"].astype(kind))
    assert human.read(tmp_path, "worse", CLEAN).tolist() == GIVEN["worse"].tolist()


def test_files_of_older_numpy_and_plain_containers(tmp_path):
    path = tmp_path / "CIFAR-10_human.pt"
    publish(path, aggre_label=torch.from_numpy(GIVEN["aggre"]), random_label1=GIVEN["random1"].tolist())
    for which in ("worse", "aggre", "random1"):
        assert human.read(tmp_path, which, CLEAN).tolist() == GIVEN[which].tolist()
    arrays = {"clean_label": CLEAN, "worse_label": GIVEN["worse"]}
    for module in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", re.sub(rb"numpy\._?core\.multiarray", module, pickle.dumps(arrays, protocol=2)))
        assert module in path.read_bytes()
        assert human.read(tmp_path, "worse", CLEAN).tolist() == GIVEN["worse"].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean_label": np.roll(CLEAN, 1)}, "40 of its 40 true labels differ from those of cifar10: its rows have another order"),
        ({"clean_label": CLEAN[:39]}, "clean_label must hold 40 numbers from 0 to 9"),
        ({"worse_label": GIVEN["worse"] + 1}, "worse_label must hold 40 numbers from 0 to 9"),
        ({"worse_label": GIVEN["worse"] - 1}, "worse_label must hold 40 numbers from 0 to 9"),
        ({"worse_label": GIVEN["worse"][:, None]}, "worse_label must hold 40 numbers"),
        ({"worse_label": [*GIVEN["worse"].tolist()[:-1], 0.5]}, "worse_label must hold 40 numbers"),
        ({"worse_label": GIVEN["worse"] / 1.0}, "holds something else than plain arrays"),
        ({"worse_label": GIVEN["worse"].astype(object)}, "holds something else than plain arrays"),
        ({"worse_label": None}, "holds no labels 'worse_label', only: clean_label"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, change, message):
    publish(tmp_path / "CIFAR-10_human.pt", **change)
    with pytest.raises(InputError, match=message):
        human.read(tmp_path, "worse", CLEAN)


class Hostile:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_pickle_runs_nothing(tmp_path, zipped):
    trace = tmp_path / "trace"
    path = tmp_path / "CIFAR-10_human.pt"
    torch.save({"clean_label": CLEAN, "worse_label": Hostile(trace)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="nothing in it was run") as caught:
        human.read(tmp_path, "worse", CLEAN)
    assert "\n" not in str(caught.value)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # so the pickle does what it should not


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1]), b"PK\x03\x04"])
def test_a_damaged_file_of_labels(tmp_path, content):
    (tmp_path / "CIFAR-10_human.pt").write_bytes(content)
    with pytest.raises(InputError, match="or is damaged"):
        human.read(tmp_path, "worse", CLEAN)


def test_labels_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=r"get CIFAR-10_human.pt from http://noisylabels.com .CC BY-NC 4.0"):
        human.read(tmp_path, "worse", CLEAN)
    with pytest.raises(InputError, match="did you mean 'worse'"):
        human.read(tmp_path, "worst", CLEAN)
    with pytest.raises(InputError, match="unknown set with labels that people gave 'mnist'"):
        human.read(tmp_path, "worse", CLEAN, "mnist")
