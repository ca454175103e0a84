"""timm's networks: the numbers that timm itself gives, from its own weights, and nothing from the internet unless asked."""

import importlib.util
import itertools
import pickle
import socket
import sys
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from sprl import photos, timm_models
from sprl.data import Data, Preprocess
from sprl.data.decode import Resize, decode
from sprl.data.rows import FileRows
from sprl.errors import InputError
from sprl.networks import build
from sprl.photos import embed, embeddings, freeze, resize_of
from sprl.timm_models import Prepared, import_timm, network

CPU = torch.device("cpu")
SIZE = (3, 160, 160)  # of the models that timm has for tests


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    refuse = Mock(side_effect=AssertionError("a connection was opened"))
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path / "cache"))
    yield
    assert not refuse.called  # even where the error was caught


@pytest.fixture
def timm():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install timm")
    return import_timm()


def trained(timm, name, num_classes=5, **options):
    """A model whose every number differs from a fresh one's, the statistics of its batch norms too."""
    torch.manual_seed(1)
    model = timm.create_model(name, num_classes=num_classes, **options).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.copy_(value * torch.empty_like(value).uniform_(0.8, 1.2) + torch.empty_like(value).uniform_(0.01, 0.02))
    return model


def save(model, path):
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return str(path)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# height x width: taller, wider, smaller, much longer, just the size, between the size and its frame, of the frame
ODD = [(301, 187), (190, 333), (37, 53), (21, 300), SIZE[1:], (167, 168), (183, 182)]


def write_pictures(folder):
    """PNG files of odd sizes, the last of them grey."""
    for i, size in enumerate(ODD):
        Image.fromarray(noise(*size, 3, seed=i)).save(folder / f"{i}.png")
    Image.fromarray(noise(177, 211)).save(folder / "grey.png")
    return sorted(folder.glob("*.png"))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Write a timm of one's own, to be imported in place of the one that is installed."""
    ours = [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]
    kept = {name: sys.modules.pop(name) for name in ours}
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda code: (tmp_path / "timm.py").write_text(code)
    sys.modules.pop("timm", None), sys.modules.pop("timm.part", None)
    sys.modules.update(kept)


def test_without_timm_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="need timm: pip install timm"):
        import_timm()


def test_operators_that_torchvision_lacks_are_declared(fake):
    lacks = "if not hasattr(torch.ops.torchvision, '{0}'): raise RuntimeError('operator torchvision::{0} does not exist')\n"
    part = "import sys, torch\nfresh = 'timm.part' not in sys.modules\nsys.modules['timm.part'] = torch\n"
    fake(part + lacks.format("lost") + lacks.format("gone"))
    assert import_timm().fresh  # what was imported by half is gone
    assert {"lost", "gone"} <= timm_models.DECLARED.keys()


@pytest.mark.parametrize(
    "code", ["raise RuntimeError('operator torchvision::x does not exist')", "raise OSError('no\\nlib')", "import nix"]
)
def test_a_timm_that_cannot_be_imported(fake, code):
    fake(code)
    with pytest.raises(InputError, match="timm cannot be imported: ") as error:
        import_timm()
    assert "\n" not in str(error.value)


def test_nothing_is_declared_where_torchvision_is_fine(fake, monkeypatch):
    monkeypatch.setattr(timm_models, "DECLARED", {})
    fake("fine = True")
    assert import_timm().fine
    assert not timm_models.DECLARED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_resnett", "did you mean 'test_resnet'"),
        ("resnet18.a1_in2k", "did you mean 'resnet18.a1_in1k'"),
        ("~~", "choose from: "),
        ("hf-hub:timm/test_resnet", "unknown timm model"),
        ("hf_hub:timm/test_resnet", "unknown timm model"),
        ("local-dir:/tmp", "unknown timm model"),
    ],
)
def test_names_that_are_refused(timm, name, message):
    for function in (partial(network, SIZE, 2), resize_of):
        with pytest.raises(InputError, match=message) as error:
            function(name)
        assert len(str(error.value)) < 400


def test_models_and_pictures_that_do_not_go_together(timm, monkeypatch):
    with pytest.raises(InputError, match="1 or 3 channels, these have 4"):
        network((4, 160, 160), 2, "test_resnet")
    with pytest.raises(InputError, match="use the network 'mlp'"):
        network((4,), 2, "test_resnet")
    monkeypatch.setattr(timm, "create_model", lambda name, **options: nn.Identity())  # as its parts of language models are
    with pytest.raises(InputError, match="no classifier"):
        network(SIZE, 2, "test_resnet")


@pytest.mark.parametrize(("name", "suffix"), [("test_resnet", ".safetensors"), ("test_vit", ".pth"), ("test_byobnet", ".bin")])
def test_pictures_and_weights_give_what_timm_gives(timm, tmp_path, name, suffix):
    model, paths = trained(timm, name), write_pictures(tmp_path)
    file = save(model, tmp_path / f"weights{suffix}")
    settings = timm.data.resolve_data_config(model=model)
    pictures = [Image.open(path).convert("RGB") for path in paths]
    planes = [np.frombuffer(decode(str(path), resize_of(name))[0], np.uint8).reshape(SIZE) for path in paths]
    rows = torch.from_numpy(np.stack(planes))
    unscaled = timm.data.create_transform(**settings, normalize=False)
    assert torch.equal(rows, torch.stack([unscaled(picture) for picture in pictures]))
    model.reset_classifier(0)
    transform = timm.data.create_transform(**settings)
    with torch.inference_mode():
        expected = model(torch.stack([transform(picture) for picture in pictures]))
        ours = network(SIZE, 0, name, file).eval()(rows / 255)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_the_rule_for_pictures_is_the_models_own(timm):
    assert resize_of("resnet18.tv_in1k") == Resize(224, 224, 0.875, "bilinear")
    assert resize_of("vit_base_patch16_384").squash == (timm.get_pretrained_cfg("vit_base_patch16_384").crop_mode == "squash")
    assert resize_of("test_vit") == Resize(160, 160, 0.95, "bicubic")


def still(size, filter, mean=(0, 0, 0), std=(1, 1, 1)):
    return Prepared(nn.Identity(), {"input_size": (3, *size), "interpolation": filter, "mean": mean, "std": std})


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_pixels_are_brought_to_the_models_size_as_pillow_does(filter):
    pixels = noise(3, 40, 50)
    resized = Image.fromarray(pixels.transpose(1, 2, 0)).resize((24, 16), Image.Resampling[filter.upper()])
    expected = torch.from_numpy(np.array(resized)).permute(2, 0, 1)[None] / 255
    torch.testing.assert_close(still((16, 24), filter)(torch.from_numpy(pixels)[None] / 255), expected, atol=2 / 255, rtol=0)
    edge = torch.eye(2).repeat_interleave(6, 0).repeat_interleave(6, 1)
    assert still((24, 24), filter)(edge[None, None]).aminmax() == (0, 1)  # the filter overshoots, pixels do not


def test_grey_becomes_three_channels_each_with_its_mean_and_deviation():
    grey = torch.rand(2, 1, 4, 4)
    expected = torch.cat([(grey - 0.5) / 1, (grey - 0.25) / 2, (grey - 0) / 4], 1)
    assert torch.equal(still((4, 4), "bicubic", (0.5, 0.25, 0), (1, 2, 4))(grey), expected)


def test_a_network_trains_whole(timm):
    (module,) = build(partial(network, name="test_resnet"), (1, 40, 50), 3)
    module(torch.rand(4, 1, 40, 50)).square().mean().backward()
    assert module.model.conv1[0].weight.grad.abs().sum() > 0


def test_the_head_is_fresh_and_the_rest_is_the_files(timm, tmp_path):
    model = trained(timm, "test_resnet", num_classes=5)
    ours = network(SIZE, 5, "test_resnet", save(model, tmp_path / "w.safetensors")).model
    same = {key for key, value in model.state_dict().items() if torch.equal(value, ours.state_dict()[key])}
    assert model.state_dict().keys() - same == {"fc.weight", "fc.bias"}


def test_weights_from_elsewhere(timm, tmp_path):
    model = trained(timm, "test_vit")
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    expected = network(SIZE, 0, "test_vit", save(model, tmp_path / "w.pth")).state_dict()
    for name in ("state_dict", "model"):
        torch.save({name: state, "epoch": 3}, tmp_path / "w.pt")
        found = network(SIZE, 0, "test_vit", str(tmp_path / "w.pt")).state_dict()
        assert all(torch.equal(value, expected[key]) for key, value in found.items())
    # of other pictures' size: timm scales the grid of positions
    file = save(trained(timm, "test_vit", img_size=128), tmp_path / "small.safetensors")
    assert network(SIZE, 0, "test_vit", file).eval()(torch.rand(1, *SIZE)).shape == (1, 64)


def test_heads_of_more_than_one_layer(timm, tmp_path):
    """levit names two layers as its classifier, and each has a batch norm that goes with it."""
    model = trained(timm, "levit_128s")
    file = save(model, tmp_path / "w.safetensors")
    assert not [key for key in network((3, 224, 224), 0, "levit_128s", file).state_dict() if "head" in key]
    ours = network((3, 224, 224), 2, "levit_128s", file).model.state_dict()
    assert torch.equal(ours["head.bn.weight"], model.state_dict()["head.bn.weight"])
    assert ours["head_dist.linear.weight"].shape[0] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("conv1.0.weight"), r"it lacks conv1\.0\.weight: give the weights"),
        (lambda s: s.update(extra=torch.ones(1)), "it has besides extra: give"),
        (lambda s: s.update({"bn1.bias": torch.ones(7)}), r"has in another shape bn1\.bias \(7,\) for \(32,\)"),
        (lambda s: [s.pop(key) for key in list(s) if key.startswith("layer")], r"it lacks layer1\.\S+, \S+, \S+ and \d+ more"),
    ],
)
def test_weights_that_do_not_fit(timm, tmp_path, change, message):
    state = timm.create_model("test_resnet").state_dict()
    change(state)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"w.pth does not fit test_resnet: .*" + message):
        network(SIZE, 2, "test_resnet", str(tmp_path / "w.pth"))


def test_weights_of_another_model(timm, tmp_path):
    file = save(timm.create_model("test_byobnet"), tmp_path / "w.safetensors")
    for name in ("test_resnet", "test_vit", "test_convnext"):
        with pytest.raises(InputError, match=f"does not fit {name}") as error:
            network(SIZE, 2, name, file)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize("name", ["w.pth", "w.pt", "w.bin"])
def test_a_pickle_with_code_is_refused_before_it_runs(tmp_path, name):
    sprung, file = tmp_path / "sprung", tmp_path / name

    class Trap:
        def __reduce__(self):
            return open, (str(sprung), "w")

    for content in (Trap(), {"state_dict": {"a": torch.ones(1)}, "args": Trap()}):
        for write in (lambda content: torch.save(content, file), lambda content: file.write_bytes(pickle.dumps(content))):
            write(content)
            with pytest.raises(InputError, match="may hold code, so it was not read") as error:
                timm_models.read_weights(file)
            assert "\n" not in str(error.value)
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.safetensors", b"no tensors", "not a readable file of weights"),
        ("w.pth", b"PK\x03\x04 no zip", "not a readable file of weights"),
        ("w.npz", b"", "must be 'pretrained' or a file"),
        ("none.pth", None, "no such file of weights"),
        ("w.pth", [torch.ones(1)], "holds no state dict"),
        ("w.pth", {"model": {"a": 1}}, "holds no state dict"),
        ("w.pth", {}, "holds no state dict"),
    ],
)
def test_files_that_are_no_weights(tmp_path, name, content, message):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / name)
    with pytest.raises(InputError, match=message):
        timm_models.read_weights(tmp_path / name)


def test_only_pretrained_weights_are_downloaded_and_their_head_is_not_kept(timm, monkeypatch):
    theirs, asked = trained(timm, "test_resnet", num_classes=3), []
    monkeypatch.setattr(timm, "create_model", lambda name, **options: asked.append((name, options)) or theirs)
    head = theirs.fc.weight.clone()
    ours = network(SIZE, 3, "test_resnet.r160_in1k", "pretrained").model
    assert asked == [("test_resnet.r160_in1k", {"pretrained": True, "num_classes": 3})]
    assert not torch.equal(ours.fc.weight, head)
    monkeypatch.setattr(timm, "create_model", Mock(side_effect=ConnectionError("no route\nto anything")))
    with pytest.raises(InputError, match=r"cannot get the weights of .*: no route: check the connection, or give a file"):
        network(SIZE, 3, "test_resnet", "pretrained")


def test_a_saved_backbone_is_loaded_again(timm, tmp_path):
    first = network(SIZE, 0, "test_byobnet", save(trained(timm, "test_byobnet"), tmp_path / "w.safetensors")).eval()
    again = network(SIZE, 0, "test_byobnet").eval()
    x = torch.rand(2, *SIZE)
    assert not torch.equal(again(x), first(x))
    again.load_state_dict(first.state_dict())
    assert torch.equal(again(x), first(x))


@pytest.fixture
def module():
    """No model of timm: one that tells pictures apart."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5))


def test_rows_in_a_file_and_in_memory_give_the_same_embeddings(module, tmp_path, monkeypatch):
    monkeypatch.setitem(photos.BATCH, "cpu", 2)  # several batches, the last not full
    pixels = noise(5, 1, 8, 8)
    (tmp_path / "p.rows").write_bytes(pixels.tobytes())
    places, steps = np.array([4, 0, 2]), []
    found = embed(module, FileRows(tmp_path / "p.rows", places, 64, (1, 8, 8)), CPU, lambda *step: steps.append(step))
    assert steps == [("embedding pictures", 2, 3), ("embedding pictures", 3, 3)]
    assert torch.equal(found, embed(module, torch.from_numpy(pixels[places]), CPU))
    expected = module.eval()(torch.from_numpy(pixels[places]) / 255)
    assert torch.equal(found, expected.half())
    assert not found.is_inference()  # a head trains on them


def test_the_cache_gives_back_what_was_computed(timm, module, tmp_path, monkeypatch):
    pixels = torch.from_numpy(noise(3, 1, 8, 8))
    expected = embed(module, pixels, CPU)
    assert torch.equal(embeddings(module, pixels, "some", CPU), expected)
    with monkeypatch.context() as patch:
        patch.setattr(photos, "embed", None)
        assert torch.equal(embeddings(module, pixels, "some", CPU), expected)
    (kept,) = (tmp_path / "cache").glob("*.rows")
    kept.write_bytes(b"\xff" * 30)
    with pytest.raises(InputError, match=r"damaged: clear the cache"):
        embeddings(module, pixels, "some", CPU)


def test_other_pictures_weights_or_models_are_computed_anew(timm, module, tmp_path, monkeypatch):
    count = itertools.count(1)
    monkeypatch.setattr(photos, "embed", lambda module, rows, *args: torch.full((len(rows), 5), next(count), dtype=torch.float16))

    def run(rows, name="some"):
        """Which run the embeddings are from."""
        return int(embeddings(module, rows, name, CPU)[0, 0])

    pixels = torch.from_numpy(noise(4, 1, 8, 8))
    assert [run(pixels), run(pixels.clone())] == [1, 1]
    assert run(pixels.flip(0)) == 2
    assert run(pixels.transpose(2, 3)) == 3
    assert run(pixels.reshape(4, 1, 4, 16)) == 4  # the same bytes
    assert run(pixels, "other") == 5
    with monkeypatch.context() as patch:
        patch.setattr(timm, "__version__", "99")
        assert run(pixels) == 6
    module[1].bias.data[2] += 1
    assert run(pixels) == 7
    module[2].running_var[0] = 2
    assert run(pixels) == 8
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(3 * 64))
    in_file = [FileRows(tmp_path / name, np.array(places), 64, (1, 8, 8)) for name in "ab" for places in ([0, 1], [0, 2])]
    assert [run(rows) for rows in in_file + in_file] == [9, 10, 11, 12] * 2


def test_what_cannot_be_embedded(timm, module, tmp_path):
    pixels = torch.from_numpy(noise(2, 1, 8, 8))
    with pytest.raises(InputError, match=r"from 0 to 255 \(uint8\), these are float32"):
        embed(module, pixels / 255, CPU)
    with pytest.raises(InputError, match=r"shape \(1, 8, 8\) for a picture, not one vector"):
        embed(nn.Identity(), pixels, CPU)
    for value in (1e6, float("nan")):  # the first is beyond float16
        module[2].bias.data[3] = value
        with pytest.raises(InputError, match="infinite numbers, or none"):
            embeddings(module, pixels, "some", CPU)
    assert not list((tmp_path / "cache").glob("*.rows"))


@pytest.mark.parametrize("test_rows", [2, 0])
def test_frozen_data_are_standardised_embeddings(timm, tmp_path, test_rows):
    file = save(trained(timm, "test_vit"), tmp_path / "w.safetensors")
    pixels = torch.from_numpy(noise(6, 1, 32, 32))
    held = pixels[:test_rows] if test_rows else None
    data = Data("d", pixels, np.arange(6) % 2, ("a", "b"), np.arange(6), tuple("abcdef"), Preprocess((1, 32, 32)), held)
    frozen, module = freeze(data, "test_vit", file, CPU)
    vectors = embed(network((1, 32, 32), 0, "test_vit", file), pixels, CPU)
    assert frozen.shape == (64,)
    assert torch.equal(frozen.x, frozen.preprocess(vectors.numpy()))
    torch.testing.assert_close(frozen.x.mean(0), torch.zeros(64), atol=1e-5, rtol=0)
    assert frozen.x_test is None if held is None else torch.equal(frozen.x_test, frozen.x[:test_rows])
    assert torch.equal(embed(module, pixels, CPU), vectors)
    assert (frozen.y is data.y, frozen.ids) == (True, data.ids)
