"""Networks: sizes, shapes, initial weights, and what the factory says about mistakes."""

import math

import pytest
import torch
from torch import nn

from sprl.errors import InputError
from sprl.networks import Conv, ResidualBlock, build, choose, cnn, convnet, factory, mlp, resnet18

PICTURE = (3, 32, 32)


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def layers_before_first_block(network):
    children = list(network)
    return [type(layer) for layer in children[: [isinstance(layer, ResidualBlock) for layer in children].index(True)]]


@pytest.mark.parametrize(("make", "count"), [(resnet18, 11_173_962), (convnet, 3_121_802)])
def test_parameter_counts_of_the_papers_networks(make, count):
    assert parameters(make(PICTURE, 10)) == count


@pytest.mark.parametrize("name", ["resnet18", "resnet18:stem=released", "convnet", "cnn", "mlp"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_pictures_give_one_logit_a_class_and_train_every_weight(name, shape):
    torch.manual_seed(0)
    (network,) = build(name, shape, 7)
    assert network.training
    logits = network(torch.rand(2, *shape))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_convnet_takes_no_smaller_pictures_than_it_says():
    assert build("convnet", (1, 12, 12), 3)[0](torch.rand(2, 1, 12, 12)).shape == (2, 3)
    with pytest.raises(InputError, match=r"at least 12 x 12 pixels, these are 11 x 12: use the network 'mlp'"):
        convnet((1, 11, 12), 3)


def test_residual_stages_halve_the_picture_and_double_the_channels():
    network, x, shapes = resnet18(PICTURE, 10), torch.rand(1, *PICTURE), []
    for layer in network.eval():
        x = layer(x)
        if isinstance(layer, ResidualBlock):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(64, 32, 32)] * 2 + [(128, 16, 16)] * 2 + [(256, 8, 8)] * 2 + [(512, 4, 4)] * 2


def test_the_released_stem_is_a_bare_convolution():
    assert layers_before_first_block(resnet18(PICTURE, 10)) == [Conv, nn.BatchNorm2d, nn.ReLU]
    released = resnet18(PICTURE, 10, stem="released")
    assert layers_before_first_block(released) == [Conv]
    assert parameters(released) == 11_173_962 - 128


def test_convnet_starts_from_he_initialisation():
    torch.manual_seed(0)
    weights = [m.weight for m in convnet(PICTURE, 10).modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(weights) == 10
    for weight in weights:
        deviation = math.sqrt(2 / (1 + 0.1**2) / weight[0].numel())  # for a leaky ReLU of slope 0.1
        tolerance = 5 / math.sqrt(weight.numel())
        assert weight.std().item() == pytest.approx(deviation, rel=tolerance)
        assert abs(weight.mean().item()) < tolerance * deviation


def test_convnet_drops_half_after_each_pooling():
    layers = list(convnet(PICTURE, 10))
    after_pooling = [layers[i + 1] for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    assert [(type(layer), layer.p) for layer in after_pooling] == [(nn.Dropout, 0.5)] * 2


def test_fields_after_the_name_reach_the_network():
    network = factory("mlp:width=16,depth=1")((5,), 3)
    assert [tuple(p.shape) for p in network.parameters() if p.ndim == 2] == [(16, 5), (3, 16)]
    assert layers_before_first_block(factory("resnet18:stem=released")(PICTURE, 10)) == [Conv]
    assert {m.p for m in factory("convnet:dropout=0.25")(PICTURE, 10) if isinstance(m, nn.Dropout)} == {0.25}


def test_mlp_takes_tables_and_pictures():
    assert build("mlp", (4,), 3)[0](torch.rand(5, 4)).shape == (5, 3)
    assert build("mlp", (1, 8, 8), 10)[0](torch.rand(5, 1, 8, 8)).shape == (5, 10)


@pytest.mark.parametrize("make", [resnet18, convnet, cnn])
def test_picture_networks_refuse_tables(make):
    with pytest.raises(InputError, match=rf"{make.__name__} takes pictures, but each row here has 4 features: use the network 'mlp'"):
        make((4,), 3)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(InputError, match=r"unknown network 'resnet'; did you mean 'resnet18'\?"):
        factory("resnet")


def test_an_unknown_stem_is_named():
    with pytest.raises(InputError, match=r"stem cannot be 'papr': it must be 'paper' or 'released'"):
        build("resnet18:stem=papr", PICTURE, 10)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("mlp:width=1000000000", "width is 1,000,000,000 but must be from 1 to 65,536"),
        ("mlp:width=0", "width is 0 but"),
        ("mlp:depth=1000000000", "depth is 1,000,000,000 but must be from 0 to 1,000"),
        ("mlp:depth=-1", "depth is -1 but"),
        ("cnn:width=1000000", "width is 1,000,000 but must be from 1 to 1,024"),
        ("cnn:width=0", "width is 0 but"),
        ("convnet:dropout=1.5", "dropout is 1.5 but must be from 0 to 0.99"),
        ("convnet:dropout=-0.1", "dropout is -0.1 but"),
    ],
)
def test_fields_have_bounds(network, message):
    with pytest.raises(InputError, match=message):
        build(network, PICTURE, 10)


def test_an_mlp_of_no_hidden_layer_is_linear():
    (network,) = build("mlp:depth=0", (4,), 3)
    assert [tuple(p.shape) for p in network.parameters()] == [(3, 4), (3,)]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(5, 3), r"the network does not take rows of shape \(4,\)"),
        (nn.Linear(4, 2), r"the network returned \(2, 2\) for two rows but must return one logit a class: \(2, 3\)"),
        (nn.LSTM(4, 3), r"the network returned tuple for two rows"),
        (nn.Linear, r"Linear cannot be made from the rows' shape .* give an instance"),
        (lambda shape, num_classes: "a network", r"the network factory returned str, not a torch.nn.Module"),
    ],
    ids=["input", "output", "tuple", "class", "no module"],
)
def test_a_network_that_does_not_fit_is_told_so(network, message):
    with pytest.raises(InputError, match=message):
        build(network, (4,), 3)


def test_a_module_is_copied_with_its_weights():
    module = nn.Linear(4, 3)
    [copied] = build(module, (4,), 3)
    assert torch.equal(copied.weight, module.weight)
    with torch.no_grad():
        copied.weight += 1
    assert not torch.equal(copied.weight, module.weight)


def test_copies_of_one_module_are_no_two_networks():
    with pytest.raises(InputError, match="trains 2 networks, which must begin with different weights: give a function that makes one"):
        build(nn.Linear(4, 3), (4,), 3, count=2)


def test_a_factory_gives_each_network_its_own_weights():
    torch.manual_seed(0)
    first, second = build(mlp, (4,), 3, count=2)
    assert not torch.equal(first[1].weight, second[1].weight)


def test_the_check_leaves_batch_norm_as_it_was():
    (network,) = build("mlp", (4,), 3)
    assert {int(m.num_batches_tracked) for m in network if isinstance(m, nn.BatchNorm1d)} == {0}


@pytest.mark.parametrize(
    ("shape", "device", "name"),
    [
        ((30,), "cpu", "mlp"),
        ((30,), "cuda", "mlp"),
        ((1, 8, 8), "cuda", "mlp"),
        ((1, 28, 28), "cpu", "cnn"),
        ((3, 32, 32), "cuda", "resnet18"),
    ],
)
def test_auto_suits_the_data_and_the_device(shape, device, name):
    assert choose(shape, torch.device(device))[0] == name
