"""Photos for a frozen network of timm: the rows that it takes, and the embeddings that it makes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sprl.data import Data, Preprocess, Progress, cache, quiet
from sprl.data.decode import Resize
from sprl.data.rows import FileRows, Streamed, fetch
from sprl.errors import InputError
from sprl.networks import pixels_to_float
from sprl.timm_models import check_name, import_timm, network

HEAD = "mlp"  # what is trained on the embeddings of a frozen network
BATCH = {"cpu": 16, "cuda": 256}


def resize_of(name: str) -> Resize:
    """How picture files become rows for the model: by its own size, share of the centre and filter."""
    timm = import_timm()
    check_name(timm, name)
    settings = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
    _, height, width = settings["input_size"]
    return Resize(height, width, settings["crop_pct"], settings["interpolation"], settings["crop_mode"] == "squash")


def freeze(
    data: Data,
    name: str,
    weights: str | None,
    device: torch.device,
    progress: Progress = quiet,
    say: Callable[[str], None] = quiet,
) -> tuple[Data, nn.Module]:
    """The data with standardised embeddings in the place of pictures, and the module that makes embeddings of pictures."""
    module = network(data.shape, 0, name, weights)
    x = embeddings(module, data.x, name, device, progress, say).numpy()
    preprocess = Preprocess.fit(x)
    x_test = None if data.x_test is None else preprocess(embeddings(module, data.x_test, name, device, progress, say).numpy())
    return replace(data, x=preprocess(x), x_test=x_test, preprocess=preprocess), module


def embeddings(
    module: nn.Module,
    rows: Tensor | FileRows,
    name: str,
    device: torch.device,
    progress: Progress = quiet,
    say: Callable[[str], None] = quiet,
) -> Tensor:
    """What `embed` gives, from the cache where the same pictures went through the same weights before."""
    width = width_of(module, rows, device)

    def make(path: Path) -> dict[str, Any]:
        embed(module, rows, device, progress).numpy().tofile(path)
        return {"network": name}

    names = (name, import_timm().__version__, device.type, rows.path.name if isinstance(rows, FileRows) else "", str(tuple(rows.shape)))
    held = rows.places if isinstance(rows, FileRows) else rows
    path, _ = cache.entry(
        cache.key(
            [b"embeddings", *(word.encode() for word in names), digest(torch.as_tensor(held)), digest(*module.state_dict().values())]
        ),
        len(rows) * width * 2,
        make,
        say,
    )
    found = torch.from_numpy(np.fromfile(path, np.float16).reshape(len(rows), width))
    if not found.isfinite().all():
        raise InputError(f"{path} has been damaged: clear the cache with `sprl data --clear-cache`")
    return found


def digest(*tensors: Tensor) -> bytes:
    """Of their content, in order."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()


def embed(module: nn.Module, rows: Tensor | FileRows, device: torch.device, progress: Progress = quiet) -> Tensor:
    """Embeddings float16 [N, D] on the CPU of pictures uint8 [N, C, H, W], by a network for 0 classes. bfloat16 inside on a GPU."""
    found = torch.empty(len(rows), width_of(module, rows, device), dtype=torch.float16)
    parts = torch.arange(len(rows)).split(BATCH.get(device.type, BATCH["cpu"]))
    for part, batch in zip(parts, fetch(Streamed(rows, device), parts), strict=True):
        found[part] = forward(module, batch).to("cpu", torch.float16)
        progress("embedding pictures", int(part[-1]) + 1, len(rows))
    if not found.isfinite().all():
        raise InputError("the network gives infinite numbers, or none, for some pictures: its weights are damaged, or another network's")
    return found


def width_of(module: nn.Module, rows: Tensor | FileRows, device: torch.device) -> int:
    """D of an embedding. The module is on the device then, ready to run."""
    if rows.dtype != torch.uint8:
        raise InputError(f"networks of timm take pictures as pixels from 0 to 255 (uint8), these are {str(rows.dtype).split('.')[-1]}")
    one = forward(module.to(device).eval(), torch.zeros(1, *rows.shape[1:], dtype=torch.uint8, device=device))
    if one.ndim != 2:
        raise InputError(f"the network gives an array of shape {tuple(one.shape[1:])} for a picture, not one vector: choose another")
    return one.shape[1]


def forward(module: nn.Module, pixels: Tensor) -> Tensor:
    kind = pixels.device.type
    with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        return module(pixels_to_float(pixels))
