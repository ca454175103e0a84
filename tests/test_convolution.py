"""The convolution with an overlapped backward pass is the plain one."""

import pytest
import torch
import torch.nn.functional as F
from torch import library

from sprl.convolution import conv


@pytest.mark.parametrize(("stride", "padding", "size"), [(1, 1, 3), (2, 1, 3), (1, 0, 1), (2, 0, 1), (1, 0, 3)])
@pytest.mark.parametrize("of_data", [True, False])
def test_values_and_gradients_are_the_plain_ones(stride, padding, size, of_data):
    torch.manual_seed(0)
    x = torch.randn(5, 4, 9, 9).to(memory_format=torch.channels_last).requires_grad_(not of_data)
    weight = torch.randn(6, 4, size, size).to(memory_format=torch.channels_last).requires_grad_()
    y = conv(x, weight, weight.detach().clone(), stride, padding)
    expected = F.conv2d(x, weight, None, stride, padding)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    wanted = [weight] if of_data else [weight, x]
    for ours, theirs in zip(torch.autograd.grad(y, wanted, dy), torch.autograd.grad(expected, wanted, dy), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_operator_tells_the_truth_about_its_shapes_and_layouts():
    x = torch.randn(3, 4, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(6, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    library.opcheck(conv, (x, weight, weight.detach().clone(), 2, 1))
