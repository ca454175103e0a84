"""A convolution whose weights' gradient is computed beside the rest of the backward pass, on a stream of its own.

The gradient of the input is what all earlier layers wait for; the gradient of the weights only the optimizer. Small pictures in the paper's
batches of 128 leave much of a large GPU idle, so the second finds room beside the first and beside batch norm's passes over memory.
Compiled bf16 steps use it (see networks.Conv): there every gradient is handed over at the end of the backward pass, after the last join.
"""

from functools import cache

import torch
from torch import Tensor, library

alone = True  # whether one run has the GPU to itself; several fill it without this, and graphs with two branches get in each other's way
waiting: set[torch.device] = set()  # devices on which a weights' gradient has not been waited for yet


@cache
def beside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def join() -> None:
    """Wait for all gradients of weights, before they are used."""
    for device in waiting:
        torch.cuda.current_stream(device).wait_stream(beside(device))
    waiting.clear()


@library.custom_op("sprl::conv", mutates_args=())
def conv(x: Tensor, weight: Tensor, cast: Tensor, stride: int, padding: int) -> Tensor:
    """The convolution of x [B, C, H, W] with `cast`, which is `weight` in x's type; the gradient goes to `weight`, in its own type."""
    return torch.conv2d(x, cast, None, stride, padding)


@conv.register_fake
def _(x: Tensor, weight: Tensor, cast: Tensor, stride: int, padding: int) -> Tensor:
    return torch.conv2d(x, cast, None, stride, padding)


@library.custom_op("sprl::conv_backward", mutates_args=())
def conv_backward(dy: Tensor, x: Tensor, cast: Tensor, kind: torch.dtype, stride: int, padding: int, first: bool) -> tuple[Tensor, Tensor]:
    """Gradients of x and, as `kind`, of the weights. `first`: x is the data, which needs none (an empty tensor stands for it)."""

    def backward(of_x: bool) -> Tensor:
        mask = [of_x, not of_x, False]
        both = torch.ops.aten.convolution_backward(dy, x, cast, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask)
        return both[0] if of_x else both[1].to(kind)

    if x.device.type != "cuda":
        return dy.new_empty(0) if first else backward(True), backward(False)
    main, side = torch.cuda.current_stream(x.device), beside(x.device)
    if x.device in waiting:
        main.wait_stream(side)  # the layer before this one in the backward pass: its gradient is used from here on at the earliest
    side.wait_stream(main)
    with torch.cuda.stream(side):
        of_weights = backward(False)
    for tensor in (dy, x):
        tensor.record_stream(side)  # their memory is not given to others before `side` has read them
    of_x = dy.new_empty(0) if first else backward(True)
    waiting.add(x.device)
    if first:
        main.wait_stream(side)
        waiting.discard(x.device)
    return of_x, of_weights


@conv_backward.register_fake
def _(dy: Tensor, x: Tensor, cast: Tensor, kind: torch.dtype, stride: int, padding: int, first: bool) -> tuple[Tensor, Tensor]:
    return dy.new_empty(0) if first else torch.empty_like(x), torch.empty_like(cast, dtype=kind)


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, weight, cast, ctx.stride, ctx.padding = inputs
    ctx.kind = weight.dtype
    ctx.save_for_backward(x, cast)


def backward(ctx, dy):  # type: ignore[no-untyped-def]
    first = not ctx.needs_input_grad[0]
    of_x, of_weights = conv_backward(dy, *ctx.saved_tensors, ctx.kind, ctx.stride, ctx.padding, first)
    return None if first else of_x, of_weights, None, None, None


conv.register_autograd(backward, setup_context=keep)
