"""2,000 pictures of 224 x 224 pixels through a frozen network of timm: from the folder to labels.csv, and against timm's own embeddings.

python benchmarks/photos.py [--model resnet18] [--out FILE.json]      the weights are random: only time and equality are measured
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import CORES, save
from PIL import Image
from safetensors.torch import load_file, save_file

from sprl.data import How, folder
from sprl.photos import embed, resize_of
from sprl.timm_models import import_timm, network

PICTURES, CLASSES = 2000, 10


def write_photos(to: Path) -> None:
    """JPEG files of smooth noise, sides from 224 to 320 pixels."""
    rng = np.random.default_rng(0)
    for i in range(PICTURES):
        path = to / f"class{i % CLASSES}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        coarse.resize(tuple(rng.integers(224, 321, 2).tolist()), Image.Resampling.BICUBIC).save(path, quality=90)


def largest_difference(photos: Path, name: str, weights: Path, count: int = 64) -> float:
    """Between our embeddings and those of timm's own model and transform, before they become half precision, relative to their size."""
    timm = import_timm()
    theirs = timm.create_model(name, num_classes=0).eval()
    theirs.load_state_dict(load_file(weights), strict=False)
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=theirs), is_training=False)
    data = folder.load(photos, How(resize=resize_of(name)))
    ours = network(data.shape, 0, name, str(weights)).eval()
    rows = torch.linspace(0, PICTURES - 1, count).long()
    with torch.inference_mode():
        expected = theirs(torch.stack([transform(Image.open(photos / data.ids[i]).convert("RGB")) for i in rows.tolist()]))
        exact = ours(data.x[rows].float() / 255)
    half = embed(ours, data.x[rows], torch.device("cpu")).float()
    scale = expected.abs().max()
    found, kept = (float((x - expected).abs().max() / scale) for x in (exact, half))
    print(f"against timm, of the largest number: {found:.1e}, as kept in half precision {kept:.1e}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--out")
    asked = parser.parse_args()
    torch.set_num_threads(CORES)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        os.environ["SPRL_CACHE"] = str(scratch / "cache")
        write_photos(scratch / "photos")
        torch.manual_seed(0)
        save_file(import_timm().create_model(asked.model).state_dict(), scratch / "weights.safetensors")
        options = ["--network", f"timm:{asked.model}", "--weights", scratch / "weights.safetensors", "--frozen", "--device", "cpu"]
        command = [sys.executable, "-m", "sprl", "train", scratch / "photos", *options, "--out"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(CORES)}
        took = []
        for turn in ("first", "again"):
            began = time.perf_counter()
            subprocess.run([*map(str, command), str(scratch / turn)], check=True, capture_output=True, env=environment)
            took.append(time.perf_counter() - began)
            assert len((scratch / turn / "labels.csv").read_text().splitlines()) == PICTURES + 1
            print(f"{PICTURES:,} pictures, timm:{asked.model} --frozen, folder to labels.csv, {turn}: {took[-1]:.0f} s")
        difference = largest_difference(scratch / "photos", asked.model, scratch / "weights.safetensors")
    if asked.out:
        record = {"model": asked.model, "pictures": PICTURES, "seconds_first": took[0], "seconds_again": took[1], "difference": difference}
        save(Path(asked.out), [record])


if __name__ == "__main__":
    main()
