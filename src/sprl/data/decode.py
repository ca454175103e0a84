"""One picture file to the bytes of a row. Runs as a program too: many of these at once fill a cache (see pictures.py).

Imports Pillow alone, so that a worker starts in hundredths of a second.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, NamedTuple

from PIL import Image, UnidentifiedImageError

try:
    import fcntl
except ImportError:  # Windows, where each decoder takes what it needs
    fcntl = None  # type: ignore[assignment]

# What may be opened. Formats that call other programs or hold programs (EPS, PDF, ...) are left out.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
GREY = ("L", "1", "LA")
ORIENTATION = 0x0112  # EXIF's tag
FILTERS = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
ROOM, SHARE = 2**27, 2**20  # pixels that all decoders together may hold, at 4 to 16 bytes each; of a smaller picture nobody counts them
STRIP = 256  # rows of pixels
Room = Callable[[int], AbstractContextManager[Any]]
TOO_LARGE = f"more pixels than Pillow's limit of {Image.MAX_IMAGE_PIXELS:,}"


class Resize(NamedTuple):
    """Of a picture of another size the shorter side is scaled so that it covers height x width, and the centre is cut out.

    crop: the share of the scaled picture that is kept (timm's crop_pct; above 1 leaves a black border). A picture of just this size stays
    as it is, unless crop is not 1. squash: both sides are scaled to height x width instead, whatever becomes of their ratio.
    """

    height: int
    width: int
    crop: float = 1.0
    filter: str = "bicubic"
    squash: bool = False

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Resize:
        """What `_asdict` of one gave, read from a file that may not be ours."""
        resize = cls(int(stored["height"]), int(stored["width"]), float(stored["crop"]), stored["filter"], bool(stored["squash"]))
        if not (1 <= resize.height <= 4096 and 1 <= resize.width <= 4096 and 0.1 <= resize.crop <= 2 and resize.filter in FILTERS):
            raise ValueError(f"{resize} is no rule for pictures")
        return resize


class BadPicture(Exception):
    """Why a picture cannot be used."""


def size_of(file: str | bytes | IO[bytes]) -> tuple[int, int] | None:
    """Height and width as they will be seen; None for a file that is no readable picture. Reads the header only."""
    try:
        with Image.open(plain(file), formats=FORMATS) as image:
            return seen_size(image)
    except Exception:  # a damaged file is reported when it is decoded
        return None


def plain(file: str | bytes | IO[bytes]) -> str | bytes | IO[bytes]:
    """`file`, if it is one: to open a pipe would wait for ever."""
    if isinstance(file, (str, bytes)) and not os.path.isfile(file):
        raise BadPicture("not a file" if os.path.exists(file) else "no such file")
    return file


def seen_size(image: Image.Image) -> tuple[int, int]:
    return image.size if is_turned(image) else (image.height, image.width)


def is_turned(image: Image.Image) -> bool:
    """Whether the camera was held upright, so that height and width change places."""
    return image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)


def decode(file: str | bytes | IO[bytes], resize: Resize, room: Room = nullcontext) -> tuple[bytes, bool]:
    """The pixels as planes of red, green and blue, and whether the picture is grey (then the three are equal)."""
    try:
        with Image.open(plain(file), formats=FORMATS) as image:
            return planes(image, resize, room)
    except BadPicture:
        raise
    except UnidentifiedImageError:
        raise BadPicture("not a picture") from None
    except Image.DecompressionBombError:
        raise BadPicture(TOO_LARGE) from None
    except MemoryError:
        raise BadPicture("too large for the memory") from None
    except Exception as error:  # Pillow's readers raise many kinds for damaged files
        reason = getattr(error, "strerror", None) or str(error)
        raise BadPicture(" ".join(reason.split())[:100] or type(error).__name__) from None


def planes(image: Image.Image, resize: Resize, room: Room = nullcontext) -> tuple[bytes, bool]:
    """The same of a picture that is open; `room` says when there is room for its pixels."""
    tiles = getattr(image, "tile", None)
    if image.mode[0] in "IF" or (tiles and ";16" in str(tiles[0][3])):
        raise BadPicture("more than 8 bits a channel: save it with 8")
    if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise BadPicture(TOO_LARGE)  # Pillow itself only warns up to twice as many
    full = image.size
    if image.format == "JPEG":  # decode large photos at a half, a quarter or an eighth, but never below twice the size that is needed
        least = round(2 * max(resize.width, resize.height) / resize.crop)
        image.draft(None, (least, least))
    width, height = full if "progressive" in image.info else image.size  # whose coefficients are all held
    with room(width * height):
        return loaded(image, full, resize)


def loaded(image: Image.Image, full: tuple[int, int], resize: Resize) -> tuple[bytes, bool]:
    target = resize.width, resize.height
    image.load()
    if (image.info or image.format == "TIFF") and image.getexif().get(ORIENTATION, 1) != 1:
        from PIL import ImageOps

        full = full[::-1] if is_turned(image) else full
        image = ImageOps.exif_transpose(image)
    grey = image.mode in GREY
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = on_white(image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    if image.size != target or resize.crop != 1:
        image = cover(image, full, resize)
    pixels = image.tobytes()
    return pixels[0::3] + pixels[1::3] + pixels[2::3], grey


def on_white(image: Image.Image) -> Image.Image:
    """What is transparent shows a white page. Strip by strip, as a large picture has no room for three more of its size."""
    page = Image.new("RGB", image.size)
    for top in range(0, image.height, STRIP):
        part = image.crop((0, top, image.width, min(top + STRIP, image.height))).convert("RGBA")
        white = Image.new("RGBA", part.size, "white")
        white.alpha_composite(part)
        page.paste(white.convert("RGB"), (0, top))
    return page


def cover(image: Image.Image, full: tuple[int, int], resize: Resize) -> Image.Image:
    """Scaled, then the centre cut out, as by the picture's full size, of which `image` may hold a half, a quarter or an eighth.

    For square targets, to the pixel what torchvision's Resize and CenterCrop give.
    """
    width, height = full
    target = resize.width, resize.height
    if resize.squash:
        size = int(resize.width / resize.crop), int(resize.height / resize.crop)
    elif resize.height == resize.width:
        short = int(resize.height / resize.crop)
        size = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    else:
        scale = max(resize.width / width, resize.height / height) / resize.crop
        size = round(scale * width), round(scale * height)
    part = round(width / image.width)
    if Image.MAX_IMAGE_PIXELS and size[0] * size[1] > Image.MAX_IMAGE_PIXELS:
        raise BadPicture(f"is so narrow that it would have to be scaled to {size[0]:,} x {size[1]:,} pixels")
    if size != image.size:
        image = image.resize(size, FILTERS[resize.filter], box=(0, 0, width / part, height / part))
    left, top = (round((have - want) / 2) if have >= want else -((want - have) // 2) for have, want in zip(size, target, strict=True))
    return image.crop((left, top, left + target[0], top + target[1]))


def shared_room(file: IO[bytes]) -> Room:
    """Room for ROOM pixels at a time among all processes that have the file open. Every SHARE of them is a byte of it that is locked, all
    those of a picture at once; the system frees them with the process."""

    @contextmanager
    def room(pixels: int) -> Iterator[None]:
        count = min(pixels, ROOM) // SHARE
        if fcntl is None or not count:
            yield
            return
        start = os.getpid() % (ROOM // SHARE - count + 1)
        fcntl.lockf(file, fcntl.LOCK_EX, count, start)
        try:
            yield
        finally:
            fcntl.lockf(file, fcntl.LOCK_UN, count, start)

    return room


def work(lines: IO[bytes], report: IO[str]) -> None:
    """A worker: the rule, the cache file and blocks of files in; rows written in place, a line a block out.

    In: the rule as JSON, the cache file, the file by which decoders wait for room; then for each block its first row, the count and that
    many paths, NUL after each.
    Out: for each block "BLOCK count grey", after a "BAD row reason" for each picture that cannot be used.
    """
    words = iter(lines.read().split(b"\0"))
    resize = Resize(*json.loads(next(words)))
    nothing = bytes(3 * resize.height * resize.width)
    # paths stay bytes: not every name is text
    with open(next(words), "r+b", buffering=0) as out, open(next(words), "r+b", buffering=0) as shared:
        room = shared_room(shared)
        for first in words:
            if not first:
                break
            start, count, grey = int(first), int(next(words)), True
            rows = []
            for i in range(start, start + count):
                try:
                    row, is_grey = decode(next(words), resize, room)
                    grey = grey and is_grey
                except BadPicture as error:
                    row = nothing
                    report.write(f"BAD {i} {error}\n")
                rows.append(row)
            out.seek(start * len(nothing))
            out.write(b"".join(rows))
            report.write(f"BLOCK {count} {int(grey)}\n")
            report.flush()


if __name__ == "__main__":
    assert isinstance(sys.stdout, io.TextIOWrapper)
    warnings.simplefilter("ignore")  # of odd metadata; what is bad is reported
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    work(sys.stdin.buffer, sys.stdout)
