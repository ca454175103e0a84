"""Files of tensors from strangers: what torch.save writes is read as torch reads it, and a lie costs no memory."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sprl import timm_models
from sprl.data import human
from sprl.errors import InputError
from sprl.tensors import HEADER_BYTES
from sprl.torchfile import Array, Foreign, read_torch

KINDS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.half, torch.bfloat16, torch.float, torch.double)


def archive(file, program: bytes, *storages: bytes, packed=zipfile.ZIP_STORED):
    """An archive as torch.save lays it out, around any pickle."""
    with zipfile.ZipFile(file, "w", packed) as made:
        made.writestr("archive/data.pkl", program)
        for key, content in enumerate(storages):
            made.writestr(f"archive/data/{key}", content)
    return file


def refused(file, most=20_000_000):
    """Why, and it must not take more memory than that."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as told:
            timm_models.read_weights(file)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    assert "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_all_kinds(tmp_path, kind):
    whole = torch.arange(24).to(kind).reshape(2, 3, 4)
    shared = nn.Parameter(torch.ones(3, 2))
    state = OrderedDict(a=whole, b=whole[1].T, c=whole[:, :0], d=whole[0, 0, 0], e=shared, f=shared)
    torch.save({"state_dict": state, "epoch": 3, "milestones": Counter([1, 2]), "dtype": kind}, tmp_path / "w.pth")
    found = read_torch(tmp_path / "w.pth")["state_dict"]
    assert found.keys() == state.keys()
    assert all(found[name].dtype == state[name].dtype and torch.equal(found[name], state[name]) for name in state)
    assert found["b"].stride() == state["b"].stride()
    assert found["a"].untyped_storage().data_ptr() == found["b"].untyped_storage().data_ptr()


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner, inner, inner) | st.dictionaries(st.text(max_size=3) | st.integers(-(2**60), 2**60), inner)
    ),
    max_leaves=30,
)


@settings(deadline=None)
@given(plain)
def test_plain_values_are_what_torch_reads(tmp_path_factory, value):
    file = tmp_path_factory.getbasetemp() / "plain.pt"
    torch.save([value, value], file)  # the second from the pickle's memory
    assert read_torch(file) == torch.load(file, weights_only=True) == [value, value]


def test_a_module_of_torch_is_read_whole(tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3, 5, 5)).sum().backward()
    optimizer.step()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "w.pt")
    found, wanted = timm_models.read_weights(tmp_path / "w.pt"), module.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("kind", ["<i8", ">i2", "u1", "int32"])
def test_arrays_of_numpy(tmp_path, kind):
    arrays = {"a": np.arange(6).astype(kind).reshape(2, 3), "b": np.asfortranarray(np.arange(6).astype(kind).reshape(2, 3))}
    torch.save(arrays, tmp_path / "a.pt")
    found = read_torch(tmp_path / "a.pt")
    assert all(isinstance(found[name], Array) and np.array_equal(found[name].values, arrays[name]) for name in arrays)


TEXT = b"X\x64\x00\x00\x00" + b"A" * 100
LAUGHS = b"K\x01q\x00" + b"".join(b"(" + b"h%c" % level * 10 + b"tq%c" % (level + 1) for level in range(8))  # tuples of tuples
SAME_HASH = b"".join(b"\x8a\x0a" + (k * (2**61 - 1)).to_bytes(10, "little") + b"N" for k in range(1, 20_000))
BOMB = b"\x80\x02c%s\n%s\nJ\x00\x00\x00\x70\x85R."  # NAME(1,879,048,192)
TENSOR = (
    b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n"
    b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu%stQ%s\x89NtRs."
)
WHOLE = (b"K\x02", b"K\x00K\x02\x85K\x01\x85")  # two numbers in the storage; offset 0, size (2,), stride (1,)


def test_the_pickle_of_a_tensor_is_as_written_here(tmp_path):
    assert timm_models.read_weights(archive(tmp_path / "w.pth", TENSOR % WHOLE, bytes(8)))["a"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (BOMB % (b"__builtin__", b"bytearray"), "holds __builtin__ bytearray, which no tensor needs; it may hold code"),
        (BOMB % (b"torch", b"FloatTensor"), "may hold code"),
        (BOMB % (b"numpy", b"zeros"), "may hold code"),
        (b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.", "may hold code"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "may hold code"),  # doubles what it is given
        (b"\x80\x02ccollections\nOrderedDict\n]\x85R.", "may hold code"),  # copies it
        (b"\x80\x05\x96\x00\x00\x00\x00\x01\x00\x00\x00.", "not a readable file"),  # a bytearray of 4 GB
        (b"\x80\x04\x8e\x00\x00\x00\x00\x01\x00\x00\x00.", "not a readable file"),
        (b"\x80\x02" + b"}" * 2**21, "the pickle is too long"),
        (b"\x80\x02" + b"N" * 2**25, "too large"),
        (b"\x80\x02}K\x01" + b"q\x00h\x00\x86" * 40 + b"K\x01s.", "may hold code"),  # a key whose hash takes for ever
        (TENSOR % (b"J\x00\x00\x00\x70", WHOLE[1]), "a storage is not of the size that the pickle says"),
        (TENSOR % (b"K\x02", b"K\x00J\x00\x00\x00\x70\x85K\x01\x85"), "a tensor is larger than its storage"),
        (TENSOR % (b"K\x02", b"K\x00J\x00\x00\x00\x70\x85K\x00\x85"), "a tensor is larger than its storage"),  # all numbers are one
        (TENSOR % (b"K\x02", b"K\x01K\x02\x85K\x01\x85"), "not a readable file"),  # ends beyond its storage
        (TENSOR % (b"K\x02", b"K\x00(" + b"K\x01" * 65 + b"tK\x01\x85"), "a tensor is larger than its storage"),
        (TENSOR % (b"K\x02", b"K\x00" + TEXT + b"J\x00\x2d\x31\x01\x86K\x01\x85"), "a tensor is larger than its storage"),
        (b"\x80\x02" + LAUGHS + b")R.", "may hold code"),
        (b"\x80\x02}(" + SAME_HASH + b"u.", "may hold code"),
        (b"\x80\x02}0.", "may hold code"),
        (b"u.", "not a readable file"),
        (b"R.", "not a readable file"),
        (b".", "not a readable file"),
        (b"", "not a readable file"),
    ],
)
def test_a_pickle_that_lies_costs_nothing(tmp_path, program, message):
    assert message in refused(archive(tmp_path / "w.pth", program, bytes(8)), most=200_000_000 if len(program) > 2**20 else 5_000_000)


def test_labels_that_people_gave_are_as_careful(tmp_path):
    archive(tmp_path / "CIFAR-10_human.pt", BOMB % (b"__builtin__", b"bytearray"))
    with pytest.raises(InputError, match="nothing in it was run"):
        human.read(tmp_path, "worse", np.arange(3))


def test_compressed_members_are_refused(tmp_path):
    file = archive(tmp_path / "w.pth", TENSOR % (b"J\x00\x00\x00\x04", WHOLE[1]), bytes(2**26), packed=zipfile.ZIP_DEFLATED)
    assert file.stat().st_size < 10**6
    assert "compressed" in refused(file)


def test_members_that_lie_over_one_another_are_refused(tmp_path):
    """Two entries of the directory for the same bytes: twelve of them would be read twelve times."""
    file = archive(tmp_path / "w.pth", TENSOR % WHOLE, bytes(2**16), bytes(2**16))
    content = bytearray(file.read_bytes())
    second = content.rindex(b"archive/data/1")
    content[second - 4 : second] = content[content.rindex(b"archive/data/0") - 4 : content.rindex(b"archive/data/0")]
    entry = content.index(b"archive/data/1")
    del content[entry - 30 : entry + 14 + 2**16]  # its own bytes are not there
    end = content.rindex(b"PK\5\6")
    content[end + 16 : end + 20] = struct.pack("<I", content.index(b"PK\1\2"))
    file.write_bytes(content)
    assert "claims to hold more than it does" in refused(file)


def test_a_name_stands_once(tmp_path):
    with zipfile.ZipFile(archive(tmp_path / "w.pth", TENSOR % WHOLE, bytes(8)), "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("archive/data.pkl", TENSOR % (b"K\x03", WHOLE[1]))
    assert "two members have one name" in refused(tmp_path / "w.pth")


def test_the_archive_that_is_checked_is_the_one_that_is_read(tmp_path):
    """One that torch finds, by the offset in the end record, before one that others find, from the end."""
    inner, outer = io.BytesIO(), io.BytesIO()
    archive(inner, BOMB % (b"__builtin__", b"bytearray"))
    archive(outer, TENSOR % WHOLE, bytes(8))
    (tmp_path / "w.pth").write_bytes(inner.getvalue() + outer.getvalue())
    assert timm_models.read_weights(tmp_path / "w.pth")["a"].tolist() == [0, 0]  # there is one reader, and no other look


@pytest.mark.parametrize("old", [True, False])
def test_formats_of_before_are_refused_with_the_way_to_convert_them(tmp_path, old):
    file = tmp_path / "w.pth"
    if old:
        torch.save({"a": torch.ones(2)}, file, _use_new_zipfile_serialization=False)
    else:
        file.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(Foreign):
        read_torch(file)
    told = refused(file)
    assert "before 1.6 (to convert one that you trust: python -c" in told
    if old:
        program = told.partition('python -c "')[2].partition('"')[0]
        exec(program.replace("OLD", str(file)).replace("NEW", str(file)))
        assert timm_models.read_weights(file)["a"].tolist() == [1, 1]


def test_bytes_in_another_order_are_refused(tmp_path):
    with zipfile.ZipFile(archive(tmp_path / "w.pth", TENSOR % WHOLE, bytes(8)), "a") as made:
        made.writestr("archive/byteorder", "big")
    assert "another kind of machine" in refused(tmp_path / "w.pth")


@pytest.mark.parametrize("claimed", [HEADER_BYTES + 1, 2**62, 0])
def test_the_header_of_safetensors_is_bounded(tmp_path, claimed):
    file = tmp_path / "w.safetensors"
    with file.open("wb") as opened:
        opened.write(claimed.to_bytes(8, "little") + b"{")
        opened.truncate(2 * HEADER_BYTES)
    assert "is not a file of safetensors" in refused(file)
