"""A model's folder from a stranger: one line for whatever is wrong with it, no code run, no memory taken."""

import dataclasses
import importlib.util
import json
import os
import pickle
import shutil
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import clusters
from safetensors.torch import load_file, save_file

from sprl.config import Config
from sprl.errors import InputError
from sprl.files import write_config
from sprl.model import load
from sprl.networks import build
from sprl.run import prepare
from sprl.timm_models import import_timm, network

EXTRA = 128 * 2**20  # bytes of memory that a refusal, or a small model, may take
FIRST = "0.1.weight"  # of the run below


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of its first weights, as `sprl train` writes it: 6 features, 4 classes. All that loading imports is there then."""
    with suppress(InputError):
        import_timm()
    path = tmp_path_factory.mktemp("run")
    x, y = clusters(40)
    np.savez(path / "pets.npz", x=x, y=np.array(["ant", "bee", "cat", "dog"])[y])
    run = prepare(Config(data=str(path / "pets.npz"), epochs=1, method="standard", device="cpu"))
    write_config(path, run)
    save_file(run.state.networks.state_dict(), path / "model.safetensors")
    assert load(path).classes == ("ant", "bee", "cat", "dog")
    return path


@pytest.fixture
def folder(whole, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(whole / name, tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def little_memory_and_time(whole):
    """Asking for more memory fails, waiting for ever ends, and the internet is not there."""
    resource = pytest.importorskip("resource")
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("memory is counted on Linux alone")

    def late(*signal):
        raise TimeoutError("it hangs")

    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, late)
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    signal.alarm(20)
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)


def refusal(folder):
    """The line that `load` says, which names the folder."""
    with pytest.raises(InputError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert len(message.splitlines()) == 1
    assert len(message) < 500 + len(str(folder))
    assert not any(word in message.lower() for word in ("alloc", "memoryerror", "hangs"))  # refused in time, not by the limits above
    return message


def change(folder, config=None, **model):
    """Other fields of the config, and of its part on the model."""
    stored = json.loads((folder / "config.json").read_text())
    stored |= config or {}
    stored["model"] |= model
    (folder / "config.json").write_text(json.dumps(stored))


def test_what_a_run_wrote_is_loaded_bit_for_bit(folder):
    model, written = load(folder), load_file(folder / "model.safetensors")
    assert all(torch.equal(value, written[f"0.{name}"]) for name, value in model.module.state_dict().items())
    assert not model.module.training
    assert set(model.predict(clusters(40)[0])) <= {"ant", "bee", "cat", "dog"}


def test_links_to_files_are_files(whole, tmp_path):
    for name in ("config.json", "model.safetensors"):  # as a cache of downloads holds them
        (tmp_path / name).symlink_to(whole / name)
    assert load(tmp_path).classes == ("ant", "bee", "cat", "dog")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp:width=1000000000", "width is 1,000,000,000 but must be from 1 to 65,536"),
        ("mlp:depth=1000000000", "depth is 1,000,000,000 but must be from 0 to 1,000"),
        ("mlp:width=65536,depth=1000", r"0\.1\.weight is float32 \(256, 6\), but should be float32 \(65536, 6\)"),
        ("mlp:depth=0", r"0\.1\.weight is float32 \(256, 6\), but should be float32 \(4, 6\)"),
        ("mlp:width=1e400", "width cannot be '1e400'"),
        ("cnn", "cnn takes pictures"),
        ("auto", "unknown network 'auto'"),
        ("os.system", "unknown network 'os.system'"),
        ("x" * 4096, "unknown network 'xxx"),
        ("x" * 4097, "network is of the wrong type"),
    ],
)
def test_the_network_is_one_of_ours_and_fits_the_weights(folder, name, message):
    change(folder, {"network": name})
    with pytest.raises(InputError, match=message):
        load(folder)


@pytest.mark.parametrize(
    "shape", [[10**5, 10**5, 3], [10**9], [10**18], [10**30], [1e308], [7], [1, 2, 3, 4], [], [0], [-6], ["six"], [6] * 10**5, 6, None]
)
def test_a_shape_is_what_the_weights_take(folder, shape):
    change(folder, preprocess={"shape": shape, "mean": None, "deviation": None})
    assert "do not fit together" in refusal(folder)


@pytest.mark.parametrize(
    "model",
    [
        {"classes": ["a", "b"]},
        {"classes": ["a"] * 10**5},
        {"classes": "abcd"},
        {"classes": [1, 2, 3, 4]},
        {"classes": [["a"], ["b"], ["c"], ["d"]]},
        {"classes": ["a", "b", "c", "\ud800"]},
        {"preprocess": {"shape": [6], "mean": ["nan"] * 6, "deviation": [1] * 6}},
        {"preprocess": {"shape": [6], "mean": [10**400] * 6, "deviation": [1] * 6}},
        {"preprocess": {"shape": [6], "mean": [0] * 6, "deviation": [0] * 6}},
        {"preprocess": {"shape": [6], "mean": [0] * 6}},
        {"resize": {"height": 31623, "width": 31623, "crop": 1.0, "filter": "bicubic", "squash": False}},
        {"resize": {"height": 8, "width": 8, "crop": 1.0, "filter": "bicubic", "squash": False}},
        {"columns": {"columns": [{"name": f"c{i}", "kind": "number", "mean": [0.0], "values": []} for i in range(7)]}},
        {"columns": {"columns": [{"name": "c", "kind": "list", "mean": [10**400] * 6, "values": []}]}},
        {"columns": {"columns": []}},
    ],
    ids=str,
)
def test_the_parts_of_a_config_fit_together(folder, model):
    change(folder, **model)
    assert "do not fit together" in refusal(folder)


@pytest.mark.parametrize("part", ["classes", "preprocess", "resize", "columns"])
@pytest.mark.parametrize("value", [1, -1.5, True, "text", [1], [[]], {"a": 1}, [None], {"columns": 3}, {"shape": {}}], ids=str)
def test_parts_of_the_wrong_type(folder, part, value):
    change(folder, **{part: value})
    refusal(folder)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Config)])
def test_fields_of_the_wrong_type(folder, field):
    for value in ([1], "x" * 4097, [[[]]]):
        change(folder, {field: value})
        assert f"{field} is of the wrong type" in refusal(folder)


def test_pictures_take_no_memory_and_are_not_scaled_to_absurd_sizes(folder):
    save_file(build("cnn", (3, 64, 64), 4).state_dict(), folder / "model.safetensors")
    change(folder, {"network": "cnn"}, preprocess={"shape": [3, 10**6, 10**6], "mean": None})
    load(folder)
    resize = {"height": 2048, "width": 2048, "crop": 0.5, "filter": "bicubic", "squash": False}
    change(folder, preprocess={"shape": [3, 2048, 2048], "mean": None}, resize=resize)
    assert load(folder).resize.height == 2048
    change(folder, resize={**resize, "crop": 0.4})
    assert "scaled to more than 4096 pixels a side" in refusal(folder)


def test_one_long_name_does_not_make_all_rows_long(folder):
    change(folder, classes=["a", "b", "c", "d" * 2**23])
    assert len(load(folder).predict(clusters(40)[0])) == 40


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"\0" * 100,
        b"\xff\xfe{}",
        '{"model": {}}'.encode("utf-16"),
        b"[" * 10**6,
        b'{"a":' * 10**6,
        b"[" + b"[]," * (2**24 // 3),
        b"[" + b'{"":0},' * (2**24 // 7),
        b'"' + b"x" * 2**24 + b'"',
        b'{"seed": NaN, "model": {}}',
        b'{"lr": 1e999, "model": {}}',
        b'{"lr": -Infinity, "model": {}}',
        b'{"seed": 1, "seed": 2, "model": {}}',
        b'{"seed": ' + b"9" * 5000 + b', "model": {}}',
        b'{"model": []}',
        b'{"model": {}',
        pickle.dumps({"model": {}}),
    ],
    ids=lambda content: repr(content[:20]),
)
def test_a_config_is_plain_json_of_a_sensible_size(folder, content):
    (folder / "config.json").write_bytes(content)
    assert "this is not a run's config" in refusal(folder)


def test_the_largest_config_takes_little_memory(folder):
    """As many values as are let through, of the kind that takes most."""
    text = (folder / "config.json").read_text()
    many = "[" + '{"":0},' * (2**19 - 100) + "0]"
    (folder / "config.json").write_text(text.rstrip().removesuffix("}") + f', "more": {many}' + "}")
    assert load(folder).classes == ("ant", "bee", "cat", "dog")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_of_5_gigabytes_is_not_read(folder, name):
    os.truncate(folder / name, 5 * 10**9)  # zeros that take no room on the disk
    with pytest.raises(InputError, match=f"{name}.*(too large|do not fit)"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["nothing", "folder", "pipe", "zeros", "loop", "nowhere", "socket"])
def test_what_is_no_file_is_not_opened(folder, monkeypatch, name, kind):
    place = folder / name
    place.unlink()
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        monkeypatch.chdir(folder)  # for the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(name)
    elif kind != "nothing":
        place.symlink_to({"zeros": "/dev/zero", "loop": place, "nowhere": folder / "nowhere"}[kind])
    assert f"it holds no {name}" in refusal(folder)


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))  # root may read anything
    assert "Permission denied" in refusal(folder)


class Code:
    def __reduce__(self):
        return open, ("was-here", "w")


def header(length=None, **tensors):
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def weight(shape, first, last, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 100,
        header(length=2**60),
        header(length=100) + b" " * 10,
        header(a=weight([4], 0, 16)) + bytes(15),
        header(a=weight([2**40], 0, 16)) + bytes(16),
        header(a=weight([2**62, 4], 0, 0)),
        header(a=weight([-4], 0, 16)) + bytes(16),
        header(a=weight([4], 16, 0)) + bytes(16),
        header(a=weight([4], 0, 16), b=weight([4], 0, 16)) + bytes(16),
        header(a=weight([4], 2**63, 2**63 + 16)) + bytes(16),
        header(a=weight([4], 0, 16, "F4")) + bytes(16),
        header(a=weight([0, 2**62], 0, 0)),
        header(a=weight([1] * 10**5, 0, 4)) + bytes(4),
        header(**{f"{i:x}": weight([], 4 * i, 4 * i + 4) for i in range(20_000)}) + bytes(80_000),
        struct.pack("<Q", 10**6) + b"[" * 10**6,
        pickle.dumps(Code()),
    ],
    ids=lambda content: repr(content[:20]),
)
def test_what_is_no_file_of_weights(folder, monkeypatch, content):
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").write_bytes(content)
    assert "do not fit together" in refusal(folder)
    assert not (folder / "was-here").exists()


def test_every_truncation_is_refused(folder):
    content = (folder / "model.safetensors").read_bytes()
    for length in (1, 7, 8, 9, 100, 1000, len(content) // 2, len(content) - 1):
        (folder / "model.safetensors").write_bytes(content[:length])
        assert "do not fit together" in refusal(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda w: w.pop(FIRST), "0.1.weight is nothing, but should be float32 (256, 6)"),
        (lambda w: w.update(more=torch.zeros(3)), "more is float32 (3,), but should be nothing"),
        (lambda w: w.update({"a\nb\x1b[2J": torch.zeros(3)}), "a b?[2J is float32 (3,)"),
        (lambda w: w.update({FIRST: w[FIRST].double()}), "0.1.weight is float64 (256, 6), but should be float32"),
        (lambda w: w.update({FIRST: w[FIRST].long()}), "0.1.weight is int64"),
        (lambda w: w.update({FIRST: w[FIRST].bfloat16()}), "0.1.weight is bfloat16"),
        (lambda w: w.update({FIRST: w[FIRST].T.contiguous()}), "0.1.weight is float32 (6, 256)"),
        (lambda w: w.update({FIRST: w[FIRST][:0]}), "0.1.weight is float32 (0, 6)"),
        (lambda w: w[FIRST][3, 3].fill_(float("nan")), "some weights are not finite"),
        (lambda w: w["0.2.running_var"][3].fill_(float("inf")), "some weights are not finite"),
    ],
)
def test_weights_that_are_not_the_networks(folder, damage, message):
    weights = {name: value.clone() for name, value in load_file(folder / "model.safetensors").items()}
    damage(weights)
    save_file(weights, folder / "model.safetensors")
    assert message in refusal(folder)


def test_weights_larger_than_the_memory(folder, monkeypatch):
    monkeypatch.setattr("sprl.tensors.free_memory", lambda device: 1000)
    with pytest.raises(InputError, match=r"model.safetensors takes 0 MB, but 0 MB of memory are free: use a larger machine"):
        load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "hf-hub:timm/test_resnet",
        "hf_hub:timm/test_resnet",
        "hf-hub:../../x",
        "local-dir:/tmp",
        "local_dir:.",
        "https://x/y",
        "/etc/passwd",
        "",
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_networks_of_timm_are_its_own(folder, monkeypatch, name, frozen):
    refuse = Mock(side_effect=AssertionError("a connection was opened"))
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    change(folder, {"network": f"timm:{name}", "frozen": frozen, "weights": "pretrained"})
    if frozen:
        shutil.copy(folder / "model.safetensors", folder / "backbone.safetensors")
    else:
        change(folder, preprocess={"shape": [3, 8, 8], "mean": None})
    line = refusal(folder)
    assert "unknown timm model" in line or "pip install timm" in line
    assert not refuse.called


@pytest.fixture
def frozen(folder):
    """A run of a head on a frozen network of timm."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install timm")
    backbone = network((3, 1, 1), 0, "test_resnet")
    width = backbone(torch.zeros(1, 3, 8, 8)).shape[1]
    save_file(build("mlp", (width,), 4).state_dict(), folder / "model.safetensors")
    save_file(backbone.state_dict(), folder / "backbone.safetensors")
    preprocess = {"shape": [width], "mean": [0.0] * width, "deviation": [1.0] * width}
    change(folder, {"network": "timm:test_resnet", "frozen": True, "weights": "w.pth"}, preprocess=preprocess)
    return folder


def test_a_frozen_network_comes_from_the_folder_alone(frozen):
    model, written = load(frozen), load_file(frozen / "backbone.safetensors")
    assert all(torch.equal(value, written[name]) for name, value in model.backbone.state_dict().items())
    assert model.predict_proba(np.zeros((2, 20, 20, 3), np.uint8)).shape == (2, 4)


@pytest.mark.parametrize("name", ["timm:vit_giant_patch14_224", "timm:eva02_enormous_patch14_clip_224", "timm:test_vit", "mlp", "auto"])
def test_another_network_than_the_frozen_one(frozen, name):
    change(frozen, {"network": name})
    line = refusal(frozen)
    assert "config.json and backbone.safetensors do not fit together" in line or "unknown timm model" in line


def test_a_frozen_network_that_is_not_there(frozen):
    (frozen / "backbone.safetensors").unlink()
    assert "it holds no backbone.safetensors" in refusal(frozen)
