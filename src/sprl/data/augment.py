"""Augmentation of whole batches on their device, one draw a picture. Draws come from torch's default generators."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sprl.errors import ensure


def translate(x: Tensor, most: int) -> Tensor:
    """Shift each picture [B, C, H, W] by up to `most` pixels each way, filling with 0. The result is [B, H, W, C] in memory."""
    size, channels, height, width = x.shape
    down, right = torch.randint(-most, most + 1, (2, size), device=x.device)
    padded = torch.nn.functional.pad(x.contiguous(memory_format=torch.channels_last), (most,) * 4).permute(0, 2, 3, 1)
    # every window of a picture as a view: one index a picture then takes whole rows, which a CPU copies faster than pixel by pixel
    windows = padded.flatten(2).unfold(1, height, 1).unfold(2, width * channels, channels)  # [B, 2 most + 1, 2 most + 1, H, W C]
    moved = windows[torch.arange(size, device=x.device), most - down, most - right]
    return moved.unflatten(2, (width, channels)).permute(0, 3, 1, 2)


def flip(x: Tensor) -> Tensor:
    """Mirror each picture left to right with probability one half."""
    mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(mirrored, x.flip(3), x)


def cut_out(x: Tensor, side: int) -> Tensor:
    """Cutout (DeVries & Taylor 2017): hide a square around a random pixel of each picture; what lies beyond the edge hides nothing.

    They fill with the mean colour of the data set; here it is the picture's own, so that pixels may be of any range.
    """
    size, _, height, width = x.shape

    def within(length: int) -> Tensor:
        """[B, length]: where the square lies along one axis."""
        place = torch.arange(length, device=x.device) - torch.randint(length, (size, 1), device=x.device) + side // 2
        return (place >= 0) & (place < side)

    hidden = within(height)[:, None, :, None] & within(width)[:, None, None, :]
    return torch.where(hidden, x.mean((2, 3), keepdim=True), x)


@dataclass(frozen=True)
class Augment:
    """Random translation by up to `shift` pixels, a horizontal flip where mirrored pictures keep their meaning, a hidden square of `cutout`
    pixels a side."""

    shift: int = 0
    mirror: bool = False
    cutout: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        if self.shift:
            x = translate(x, self.shift)
        if self.mirror:
            x = flip(x)
        return cut_out(x, self.cutout) if self.cutout else x

    def __str__(self) -> str:
        pixels = "1 pixel" if self.shift == 1 else f"{self.shift} pixels"
        parts = [f"translation by up to {pixels}"] * bool(self.shift) + ["horizontal flip"] * self.mirror
        parts += [f"a hidden square of {self.cutout} x {self.cutout}"] * bool(self.cutout)
        return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + parts[-1:]) or "none"


def suited_to(shape: tuple[int, ...], asked: bool | None = None, cutout: int | None = None) -> Augment:
    """The paper's: 4 pixels and a flip for colour pictures of 32 x 32, 2 pixels for grey ones of 28 x 28 (mirrored digits are no digits).

    None for tables, and none for very small pictures: measured on 8 x 8 digits, it hides what is to be shown. Whoever asks for it
    nevertheless gets 1 pixel there (and the flip, for colour), and is refused for tables; whoever asks for none gets none. Cutout, which
    the paper has not, comes on top of it.
    """
    picture = len(shape) == 3
    ensure(picture or not asked, "--augment is for pictures, and these rows are features: leave it out")
    ensure(picture or not cutout, "--cutout is for pictures, and these rows are features: leave it out")
    if not picture:
        return Augment()
    side, colour = min(shape[1:]), shape[0] == 3
    hidden = cutout or 0
    ensure(0 <= hidden <= side, f"--cutout {hidden} is out of range: the pictures here take up to {side} pixels a side, 0 for none")
    if asked is False or (asked is None and side < 16):
        return Augment(cutout=hidden)
    return Augment(max(1, side // 8 if colour else side // 14), colour, hidden)
