"""report.html: the suspects as a page to go through by keyboard, in one file that loads nothing and sends nothing.

Names are other people's text: they travel as JSON that cannot end its element, and the page's script only ever sets them as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sprl.atomic import written
from sprl.audit import Verdict
from sprl.errors import printable

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

BUDGET = 15_000_000  # bytes of the whole file: what a browser opens in a moment and a mail may carry
MOST = 20_000  # suspects; nobody looks at more
FEWEST, FAINT = 100, 0.01  # labels this unlikely to be wrong are left out, unless there would be fewer suspects than that
LARGEST_ROW = BUDGET // 100  # bytes: no single suspect takes the place of a hundred others
FEATURES, LETTERS = 24, 120  # shown of a row without a picture: so many, so long
POINTS = 400  # of a curve: more than its picture has pixels

SMALL, LARGE = 32, 96  # pixels of a thumbnail's longer side
FORMATS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp"}
SCRIPTS = ("corrections.js", "review.js", "drawing.js", "gallery.js", "cards.js", "page.js")
CURVES = (("test accuracy", "test_accuracy", 1), ("labels chosen", "chosen", 100), ("labels contradicted", "contradicted", 100))


@dataclass(frozen=True)
class Page:
    """What the page shows, of one run."""

    title: str  # the data's name
    classes: list[str]
    labels: pd.DataFrame  # labels.csv; a true_label in it stays out of the page
    verdict: Verdict
    rows: list[dict[str, Any]]  # metrics.jsonl
    run_id: str
    labels_hash: str
    picture: Callable[[int], bytes | None] | None  # of a position in `labels`: a PNG, JPEG or WebP
    features: Callable[[int], Iterable[tuple[str, str]]] | None  # names and values of a row without a picture
    command: str  # that takes the corrections in


def write(path: Path, page: Page) -> None:
    """The page as one file of at most BUDGET bytes."""
    style = source("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(source(name) for name in SCRIPTS) + "})();\n"
    names = list(dict.fromkeys([*page.classes, *texts(page.labels, "given_label"), *texts(page.labels, "predicted_label")]))
    values = {
        "policy": f"default-src 'none'; img-src data:; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape(printable(page.title)),
        "style": style,
        "script": script,
        "about": as_json(about(page, names)),
    }
    before, after = (Template(part).substitute(values).encode() for part in source("page.html").split("$suspects"))
    rows = fitting(suspects(page, names), BUDGET - len(before) - len(after))
    with written(path) as file:
        file.write(before + b",\n".join(rows) + after)


def source(name: str) -> str:
    return (files("sprl") / "page" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """What the page's policy knows an inline text by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def as_json(value: Any) -> str:
    """In ASCII, and without the characters that mean something to HTML."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def texts(labels: pd.DataFrame, column: str) -> list[str]:
    return [str(name) for name in labels[column].tolist()]


def about(page: Page, names: list[str]) -> dict[str, Any]:
    """All but the suspects. `above` and `expected`: for each threshold in percent, how many of all labels, and wrong ones among them."""
    wrong = chances(page.labels)
    tails = [wrong[wrong >= percent / 100] for percent in range(101)]
    return {
        "title": page.title,
        "run": page.run_id,
        "labels": page.labels_hash,
        "command": page.command,
        "classes": names,
        "total": len(wrong),
        "flagged": int(page.labels["is_label_issue"].sum()),
        "rate": page.verdict.rate,
        "low": page.verdict.low,
        "high": page.verdict.high,
        "clear": page.verdict.clear,
        "above": [len(tail) for tail in tails],
        "expected": [round(float(tail.sum()), 1) for tail in tails],
        "epochs": [row["epoch"] for row in thinned(page.rows)],
        "curves": [[name, values] for name, key, scale in CURVES if (values := curve(page.rows, key, scale))],
    }


def chances(labels: pd.DataFrame) -> NDArray[np.float64]:
    """Of being wrong, as the page holds them."""
    return labels["wrong_probability"].to_numpy(np.float64).round(4)


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[:: -(-len(rows) // POINTS) or 1]


def curve(rows: list[dict[str, Any]], key: str, scale: float) -> list[float | None]:
    """In percent, None where an epoch has no such number; empty if none has."""
    values = [scale * float(row.get(key, math.nan)) for row in thinned(rows)]
    return [round(v, 2) if math.isfinite(v) else None for v in values] if any(map(math.isfinite, values)) else []


def suspects(page: Page, names: list[str]) -> Iterator[bytes]:
    """A row of JSON each: position, id, given, suggestion, chance of being wrong, picture, features."""
    place = {name: i for i, name in enumerate(names)}
    wrong, ids = chances(page.labels), texts(page.labels, "id")
    given, suggestion = texts(page.labels, "given_label"), texts(page.labels, "predicted_label")
    for at in ranked(page.labels).tolist():
        picture = page.picture(at) if page.picture else None
        uri = data_uri(picture) if picture else None
        features = [[cut(k), cut(v)] for k, v in islice(page.features(at), FEATURES)] if page.features and not uri else None
        yield as_json([at, ids[at], place[given[at]], place[suggestion[at]], wrong[at], uri, features]).encode()


def ranked(labels: pd.DataFrame) -> NDArray[np.int64]:
    """Positions of the rows to show: the flagged ones first, in each part the most suspicious first."""
    wrong, quality = (labels[name].to_numpy(np.float64) for name in ("wrong_probability", "label_quality"))
    first = np.lexsort((quality, -wrong, ~labels["is_label_issue"].to_numpy(bool)))[:MOST]
    worth = first[wrong[first] >= FAINT]
    return worth if len(worth) >= FEWEST else first[:FEWEST]


def fitting(rows: Iterator[bytes], room: int) -> Iterator[bytes]:
    """As many as there is room for, with two bytes between them; without those that are too large for anybody's good."""
    for row in rows:
        if len(row) > LARGEST_ROW:
            continue
        room -= len(row) + 2
        if room < 0:
            return
        yield row


def data_uri(picture: bytes) -> str | None:
    """None if it is of no kind that every browser shows."""
    kind = next((kind for mark, kind in FORMATS.items() if picture.startswith(mark)), None)
    return kind and f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def thumbnail(pixels: NDArray[np.uint8] | NDArray[np.floating[Any]]) -> bytes:
    """A picture file of pixels [C, H, W] from 0 to 255, C being 1 or 3, or of grey values [H, W] from 0 to 1.

    Tiny pictures are enlarged pixel by pixel, and like all up to LARGE exact; larger ones are reduced to it.
    """
    from PIL import Image

    if pixels.dtype != np.uint8:
        pixels = np.round(np.nan_to_num(pixels).clip(0, 1) * 255).astype(np.uint8)
    if pixels.ndim == 3:
        pixels = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    longest = max(pixels.shape[:2])
    if longest < SMALL:
        times = -(-SMALL // longest)
        pixels = pixels.repeat(times, 0).repeat(times, 1)
    image = Image.fromarray(pixels)
    if longest <= LARGE:
        return saved(image, "PNG")  # WebP would be about an eighth smaller and take many times as long
    image.thumbnail((LARGE, LARGE), Image.Resampling.LANCZOS)
    return saved(image, "WEBP", quality=85)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
