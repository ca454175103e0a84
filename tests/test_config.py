"""Defaults that fit the data, and what is said about mistakes."""

import pytest
import torch

from sprl.config import (
    Config,
    counts_from_here,
    default_batch_size,
    default_cutout,
    default_epochs,
    default_lr,
    default_method,
    find_device,
    make_method,
    parse_assignments,
)
from sprl.errors import InputError
from sprl.methods import SPRL, Standard


def test_text_becomes_the_type_of_its_field():
    read = make_method("sprl", {"T1": "5", "gamma_d": "2.5", "normalised": "true", "limit": "none", "noise_rate": "0.2"})
    assert read == SPRL(T1=5, gamma_d=2.5, normalised=True, limit="none", noise_rate=0.2)
    assert isinstance(read.T1, int)
    assert make_method("sprl", {"T1": "auto"}).T1 == "auto"


@pytest.mark.parametrize(
    ("config", "here"),
    [
        (Config(corrupt="symmetric:0.5"), False),
        (Config(data="/data/rows.csv", labels="/data/labels.csv", weights="pretrained"), False),
        (Config(data="rows.csv"), True),
        (Config(labels="labels.csv"), True),
        (Config(weights="rows.csv"), True),
        (Config(corrupt="matrix:labels.csv"), True),
        (Config(data="below", data_dir="sets"), True),
        (Config(data="below", data_dir="/sets"), False),
        (Config(data="mnist"), True),  # in ./data
        (Config(data="/data/cifar10", labels="human:worse"), True),
        (Config(data="mnist", data_dir="/sets"), False),
    ],
)
def test_only_relative_places_count_from_here(config, here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPRL_DATA", raising=False)
    for name in ("rows.csv", "labels.csv", "data", "sets"):
        (tmp_path / name).mkdir()
    assert counts_from_here(config) is here


def test_a_known_rate_reaches_the_methods_that_can_use_it():
    assert make_method("sprl", {}, 0.3).noise_rate == 0.3
    assert make_method("standard", {}, 0.3) == Standard()


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("spl", {}, "unknown method 'spl'; did you mean 'sprl'"),
        ("sprl", {"gama_d": "5"}, "unknown field of sprl 'gama_d'; did you mean 'gamma_d'"),
        ("sprl", {"T1": "five"}, "T1 cannot be 'five': it must be 'auto' or a whole number"),
        ("sprl", {"T1": "2.5"}, "T1 cannot be '2.5'"),
        ("sprl", {"gamma_d": "nan"}, "gamma_d cannot be 'nan'"),
        ("sprl", {"normalised": "perhaps"}, "must be true or false"),
        ("sprl", {"limit": "agree"}, "must be 'none' or 'agreement' or 'auto'"),
        ("standard", {"T1": "3"}, "unknown field of standard 'T1'"),
    ],
)
def test_mistakes_are_named(name, values, message):
    with pytest.raises(InputError, match=message):
        make_method(name, values)


def test_assignments():
    assert parse_assignments(["T1=5", "limit = none"]) == {"T1": "5", "limit": "none"}
    with pytest.raises(InputError, match="must be FIELD=VALUE"):
        parse_assignments(["T1"])


def test_defaults_follow_the_paper_where_it_applies():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert default_epochs((3, 32, 32), gpu) == 200
    assert {default_epochs((3, 32, 32), cpu), default_epochs((1, 8, 8), gpu), default_epochs((20,), gpu)} == {60}
    assert (default_batch_size(50_000), default_batch_size(1347)) == (128, 32)
    assert default_lr("resnet18:stem=released", (1, 28, 28)) == 1e-4
    assert {default_lr("resnet18", (3, 32, 32)), default_lr("convnet", (1, 28, 28))} == {1e-3}
    assert (default_epochs((3, 224, 224), gpu, tuned=True), default_lr("timm:resnet50", (3, 224, 224), tuned=True)) == (20, 1e-4)


def test_a_quarter_of_the_side_is_hidden_where_that_was_found_to_help():
    sides = [default_cutout(network, (3, 32, 48)) for network in ("resnet18", "resnet18:stem=released")]
    assert [*sides, default_cutout("resnet18", (3, 64, 64)), default_cutout("resnet18", (3, 16, 16))] == [8, 8, 16, 4]
    for network in ("convnet", "cnn", "mlp", "timm:resnet18", torch.nn.Linear(2, 2), lambda shape, classes: None):
        assert default_cutout(network, (3, 32, 32)) is None
    for shape in ((1, 28, 28), (4, 32, 32), (3, 15, 32), (512,)):
        assert default_cutout("resnet18", shape) is None


def test_the_small_cnn_is_trained_plainly_on_colour_pictures_alone():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")  # which need not be there
    plain = [("auto", cpu), ("cnn", cpu), ("cnn", gpu), ("cnn:width=8", cpu)]
    assert [default_method(network, (3, 32, 32), device) for network, device in plain] == ["standard"] * 4
    for network in ("resnet18", "convnet", "mlp", "timm:resnet50", torch.nn.Flatten(), lambda shape, classes: None):
        assert default_method(network, (3, 32, 32), cpu) == "sprl"
    assert default_method("auto", (3, 32, 32), gpu) == "sprl"
    for shape in ((1, 28, 28), (3, 8, 8), (20,), (3,)):
        assert default_method("auto", shape, cpu) == "sprl"


def test_devices():
    assert find_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        find_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="0 CUDA devices are to be seen; use --device cpu"):
            find_device("cuda")
