"""Networks: the paper's ResNet18 (table A1) and 13-layer ConvNet (table A2), a small CNN, an MLP.

A factory takes (shape, num_classes), where shape is (channels, height, width) or (features,), and its own fields as keywords.
"""

import copy
import inspect
import math
import typing
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprl import convolution
from sprl.errors import InputError, pick
from sprl.fields import read_value

Shape = tuple[int, ...]
Factory = Callable[[Shape, int], nn.Module]


class Conv(nn.Conv2d):
    """nn.Conv2d without bias; compiled in bf16, its weights' gradient is computed beside the rest of the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        if not (convolution.alone and torch.compiler.is_compiling() and torch.is_autocast_enabled(device) and torch.is_grad_enabled()):
            return super().forward(x)
        kind = torch.get_autocast_dtype(device)
        return convolution.conv(x.to(kind), self.weight, self.weight.detach().to(kind), self.stride[0], int(self.padding[0]))


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, padding: int = 1) -> nn.Sequential:
    """A convolution and its batch norm."""
    return nn.Sequential(Conv(inputs, outputs, size, stride, padding, bias=False), nn.BatchNorm2d(outputs))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, stride=stride)
        self.second = conv(outputs, outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, size=1, stride=stride, padding=0)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Pool(nn.Module):
    """Global average pooling: any picture size becomes [B, channels]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def resnet18(shape: Shape, num_classes: int, stem: Literal["paper", "released"] = "paper") -> nn.Module:
    """ResNet18 for small pictures (table A1). 10 classes, 3 channels: 11,173,962 parameters.

    stem="paper": convolution, batch norm, ReLU. stem="released": the bare convolution that the authors' code ran, which never called
    its batch norm and had no ReLU there; symmetric noise of 0.8 hangs on it.
    """
    channels = picture_channels("resnet18", shape)
    first = Conv(channels, 64, 3, 1, 1, bias=False)
    layers: list[nn.Module] = [first] if stem == "released" else [first, nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [ResidualBlock(width, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, Pool(), nn.Linear(512, num_classes))


def convnet(shape: Shape, num_classes: int, dropout: float = 0.5) -> nn.Module:
    """The 13-layer ConvNet (table A2), He initialisation. 10 classes, 3 channels: 3,121,802 parameters."""
    bound("dropout", dropout, 0, 0.99)
    width = picture_channels("convnet", shape)
    if min(shape[1:]) < 12:
        raise InputError(f"convnet needs pictures of at least 12 x 12 pixels, these are {shape[1]} x {shape[2]}: use the network 'mlp'")
    layers: list[nn.Module] = []
    # (kernel, padding, channels) of each convolution, and where the picture is halved and dropout applied
    for stage in (((3, 1, 128),) * 3, ((3, 1, 256),) * 3, ((3, 0, 512), (1, 0, 256), (1, 0, 128))):
        if layers:
            layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
        for kernel, padding, outputs in stage:
            layers += [conv(width, outputs, kernel, padding=padding), nn.LeakyReLU(0.1)]
            width = outputs
    network = nn.Sequential(*layers, Pool(), nn.Linear(128, num_classes))
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, a=0.1)
    return network


def cnn(shape: Shape, num_classes: int, width: int = 32) -> nn.Module:
    """A small CNN for a CPU: three convolutions of width, 2 width, 4 width channels."""
    bound("width", width, 1, 1024)
    channels = picture_channels("cnn", shape)
    layers: list[nn.Module] = []
    for outputs in (width, 2 * width, 4 * width):
        # ReLU after pooling: a quarter of the work, the same values
        layers += [conv(channels, outputs), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
        channels = outputs
    return nn.Sequential(*layers, Pool(), nn.Linear(channels, num_classes))


def mlp(shape: Shape, num_classes: int, width: int = 256, depth: int = 2) -> nn.Module:
    """`depth` hidden layers of `width` with batch norm, for tables and very small pictures."""
    bound("width", width, 1, 65_536)
    bound("depth", depth, 0, 1000)
    inputs = math.prod(shape)
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, num_classes))


def bound(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} is {value:,} but must be from {least:,} to {most:,}")


def picture_channels(network: str, shape: Shape) -> int:
    if len(shape) != 3:
        raise InputError(f"{network} takes pictures, but each row here has {shape[0]} features: use the network 'mlp'")
    return shape[0]


NETWORKS: dict[str, Callable[..., nn.Module]] = {"resnet18": resnet18, "convnet": convnet, "cnn": cnn, "mlp": mlp}


def choose(shape: Shape, device: torch.device) -> tuple[str, str]:
    """What "auto" stands for, and why."""
    if len(shape) != 3:
        return "mlp", "a table of features"
    size = f"{shape[1]} x {shape[2]} pixels"
    if min(shape[1:]) < 16:
        return "mlp", f"very small pictures, {size}"
    if device.type == "cpu":
        return "cnn", f"pictures of {size} on a CPU"
    return "resnet18", f"pictures of {size}"


def factory(network: str | nn.Module | Factory) -> Factory:
    """A factory from a name ("resnet18", "resnet18:stem=released"), a module (copied with its weights) or a factory."""
    if isinstance(network, nn.Module):
        module = network
        return lambda shape, num_classes: copy.deepcopy(module)
    if callable(network):
        return network
    if not isinstance(network, str):
        raise InputError(f"the network must be a name, a torch.nn.Module or a factory, not {type(network).__name__}")
    name, _, fields = network.partition(":")
    if name == "timm":
        from sprl.timm_models import network as make_timm

        return partial(make_timm, name=fields)
    make = NETWORKS[pick("network", name, NETWORKS)]
    hints = typing.get_type_hints(make)
    known = list(inspect.signature(make).parameters)[2:]
    options: dict[str, Any] = {}
    for field in filter(None, fields.split(",")):
        key, _, value = field.partition("=")
        options[key] = read_value(key, value, hints[pick(f"field of {name}", key, known)])
    return partial(make, **options)


def weight(network: str, shape: Shape, num_classes: int) -> int:
    """Bytes of its parameters; they are made on the meta device, where they take none."""
    with torch.device("meta"):
        return sum(p.numel() * p.element_size() for p in factory(network)(shape, num_classes).parameters())


def build(network: str | nn.Module | Factory, shape: Shape, num_classes: int, count: int = 1) -> nn.ModuleList:
    """`count` networks side by side, checked with one forward pass: [2, *shape] must give [2, num_classes]."""
    if count > 1 and isinstance(network, nn.Module):
        told = "give a function that makes one, such as lambda shape, classes: Net()"
        raise InputError(f"this method trains {count} networks, which must begin with different weights: {told}")
    make = factory(network)
    try:
        modules = [make(shape, num_classes) for _ in range(count)]
    except TypeError as error:
        if not isinstance(network, type):
            raise
        told = "give an instance, or a function (shape, num_classes) that makes one"
        raise InputError(f"{network.__name__} cannot be made from the rows' shape and the number of classes: {told}") from error
    for module in modules:
        if not isinstance(module, nn.Module):
            raise InputError(f"the network factory returned {type(module).__name__}, not a torch.nn.Module")
        module.eval()
        with torch.no_grad():
            try:
                out = module(torch.zeros(2, *shape, device=next(module.parameters(), torch.empty(0)).device))
            except Exception as error:  # whatever a user's module raises
                first = (str(error) or type(error).__name__).splitlines()[0]
                raise InputError(f"the network does not take rows of shape {shape}: {first}") from error
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        if got != (2, num_classes):
            raise InputError(f"the network returned {got} for two rows but must return one logit a class: (2, {num_classes})")
        module.train()
    return nn.ModuleList(modules)


def logits_of(networks: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What each network makes of the rows. [B, *shape] -> [M, B, C]"""
    found = [network(x) for network in networks]
    for logits in found:
        if not isinstance(logits, Tensor):
            told = f"in training mode the network returns a {type(logits).__name__}, not one tensor of logits"
            raise InputError(f"{told}: switch its auxiliary outputs off, or wrap it in a module that returns the first")
    return torch.stack(found)


def pixels_to_float(x: Tensor) -> Tensor:
    """Pixels from uint8 to [0, 1]; features as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()
