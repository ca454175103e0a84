"""Augmentation of whole batches against one picture at a time."""

import pytest
import torch

from sprl.data.augment import Augment, cut_out, flip, suited_to, translate
from sprl.errors import InputError


def shifted(picture, down, right):
    """One picture [C, H, W] moved pixel by pixel, zeros where nothing moved in."""
    out = torch.zeros_like(picture)
    _, height, width = picture.shape
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                out[:, row, column] = picture[:, row - down, column - right]
    return out


@pytest.mark.parametrize(("channels", "height", "width", "most"), [(3, 8, 8, 4), (1, 5, 7, 2), (2, 6, 4, 1)])
def test_translate_is_one_shift_a_picture(channels, height, width, most):
    torch.manual_seed(0)
    x = torch.rand(20, channels, height, width) + 1
    before = x.clone()
    torch.manual_seed(1)
    moved = translate(x, most)
    torch.manual_seed(1)
    down, right = torch.randint(-most, most + 1, (2, 20, 1)).squeeze(2).tolist()
    assert torch.equal(moved, torch.stack([shifted(*args) for args in zip(x, down, right, strict=True)]))
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_translate_of_any_layout_and_type_is_laid_out_by_pixels(dtype, layout):
    x = torch.randint(0, 256, (10, 3, 8, 6)).to(dtype).contiguous(memory_format=layout)
    torch.manual_seed(1)
    moved = translate(x, 3)
    torch.manual_seed(1)
    assert torch.equal(moved, translate(x.float().contiguous(), 3).to(dtype))
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_nothing_depends_on_values_so_that_it_can_be_captured():
    """Where tensors have no values, asking for one is an error: no word to the host, no shape that hangs on a draw."""
    assert Augment(shift=4, mirror=True)(torch.empty(7, 3, 32, 32, device="meta")).shape == (7, 3, 32, 32)


def test_every_shift_occurs_and_none_beyond():
    torch.manual_seed(0)
    x = torch.zeros(2000, 1, 9, 9)
    x[:, :, 4, 4] = 1
    places = translate(x, 2).nonzero()[:, 2:]
    assert {tuple(place) for place in places.tolist()} == {(row, column) for row in range(2, 7) for column in range(2, 7)}


def test_what_moves_in_is_zero():
    torch.manual_seed(0)
    sums = translate(torch.ones(500, 1, 4, 4), 3).sum((1, 2, 3))
    assert set(sums.tolist()) == {float(rows * columns) for rows in (1, 2, 3, 4) for columns in (1, 2, 3, 4)}


def test_flip_mirrors_about_half_left_to_right():
    torch.manual_seed(0)
    x = torch.rand(1000, 3, 4, 5)
    out = flip(x)
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    assert torch.equal(out[~mirrored], x[~mirrored])
    assert 400 < int(mirrored.sum()) < 600


def hidden_square(height, width, side, row, column):
    """Which pixels a square of this side around a pixel hides, pixel by pixel."""
    first = (row - side // 2, column - side // 2)
    return [[all(0 <= at - begin < side for at, begin in zip((r, c), first, strict=True)) for c in range(width)] for r in range(height)]


@pytest.mark.parametrize(("height", "width", "side"), [(5, 4, 1), (5, 4, 2), (6, 6, 3), (4, 6, 4)])
def test_cutout_hides_one_square_around_any_pixel_of_each_picture(height, width, side):
    torch.manual_seed(0)
    x = torch.rand(1500, 3, height, width)
    out = cut_out(x, side)
    hidden = (out != x).all(1)
    assert torch.equal((out != x).any(1), hidden)  # in all colours
    mean = x.mean((2, 3), keepdim=True).expand_as(x)
    assert torch.equal(out, torch.where(hidden.unsqueeze(1), mean, x))
    squares = {str(hidden_square(height, width, side, row, column)) for row in range(height) for column in range(width)}
    assert {str(one.tolist()) for one in hidden} == squares


def test_the_default_generator_decides_alone():
    x = torch.rand(50, 3, 8, 8)
    augment = Augment(shift=2, mirror=True, cutout=3)
    torch.manual_seed(5)
    first = augment(x)
    second = augment(x)
    torch.manual_seed(5)
    assert torch.equal(augment(x), first)
    assert not torch.equal(first, second)


def test_no_augmentation_returns_the_batch_itself():
    x = torch.rand(2, 1, 4, 4)
    assert Augment()(x) is x


@pytest.mark.parametrize(
    ("shape", "augment", "words"),
    [
        ((3, 32, 32), Augment(4, True), "translation by up to 4 pixels and horizontal flip"),
        ((3, 64, 96), Augment(8, True), "translation by up to 8 pixels and horizontal flip"),
        ((1, 28, 28), Augment(2, False), "translation by up to 2 pixels"),
        ((1, 8, 8), Augment(0, False), "none"),
        ((3, 8, 8), Augment(0, False), "none"),
        ((30,), Augment(0, False), "none"),
    ],
)
def test_what_suits_which_shape(shape, augment, words):
    assert suited_to(shape) == augment
    assert str(suited_to(shape)) == words
    assert suited_to(shape, asked=False) == Augment()
    assert suited_to(shape, cutout=0) == augment


@pytest.mark.parametrize(
    ("shape", "augment", "words"),
    [
        ((3, 32, 32), Augment(4, True), "translation by up to 4 pixels and horizontal flip"),
        ((1, 28, 28), Augment(2, False), "translation by up to 2 pixels"),
        ((1, 8, 8), Augment(1, False), "translation by up to 1 pixel"),
        ((3, 8, 8), Augment(1, True), "translation by up to 1 pixel and horizontal flip"),
    ],
)
def test_whoever_asks_gets_it_for_any_picture_and_for_no_table(shape, augment, words):
    assert suited_to(shape, asked=True) == augment
    assert str(augment) == words
    with pytest.raises(InputError, match="--augment is for pictures, and these rows are features: leave it out"):
        suited_to((30,), asked=True)


@pytest.mark.parametrize(
    ("shape", "asked", "augment", "words"),
    [
        ((3, 32, 32), None, Augment(4, True, 8), "translation by up to 4 pixels, horizontal flip and a hidden square of 8 x 8"),
        ((1, 28, 28), None, Augment(2, False, 8), "translation by up to 2 pixels and a hidden square of 8 x 8"),
        ((1, 28, 28), False, Augment(0, False, 8), "a hidden square of 8 x 8"),
        ((1, 8, 8), None, Augment(0, False, 8), "a hidden square of 8 x 8"),
    ],
)
def test_cutout_goes_with_whatever_else_is_done(shape, asked, augment, words):
    assert suited_to(shape, asked, cutout=8) == augment
    assert str(augment) == words


@pytest.mark.parametrize(
    ("shape", "cutout", "why"),
    [
        ((30,), 8, "--cutout is for pictures, and these rows are features"),
        ((3, 8, 16), 9, "--cutout 9 is out of range: the pictures here take up to 8 pixels a side, 0 for none"),
        ((3, 8, 16), -1, "--cutout -1 is out of range"),
    ],
)
def test_cutout_that_cannot_be(shape, cutout, why):
    with pytest.raises(InputError, match=why):
        suited_to(shape, cutout=cutout)
