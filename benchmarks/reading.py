"""How fast data is read: CIFAR-10's files, a folder of 50,000 PNG files, streamed against on-device training, peak memory.

python benchmarks/reading.py [--data-dir DIR] [--out FILE.json]      CIFAR-10's binary version is looked for in DIR (default: ./data)
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from measure import CORES, Record, save
from PIL import Image

from sprl.config import find_device
from sprl.data import Data, How, cache, cifar, folder, sets
from sprl.data.augment import suited_to
from sprl.data.rows import FileRows, Streamed, place
from sprl.engine import run_epoch, start
from sprl.methods import SPRL
from sprl.state import Task


def seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def plain_decoding(paths: list[Path]) -> int:
    """What anybody would write."""
    for path in paths:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB"))
    return len(paths)


def write_pictures(x: np.ndarray, y: np.ndarray, to: Path) -> list[Path]:
    """A folder a class of PNG files."""
    paths = [to / str(label) / f"{i:06}.png" for i, label in enumerate(y)]
    for label in set(y.tolist()):
        (to / str(label)).mkdir(parents=True)
    for path, picture in zip(paths, x, strict=True):
        Image.fromarray(picture).save(path, compress_level=1)
    return paths


def reading(data: Data, scratch: Path) -> Record:
    """First and later reading of the PNG folder, and plain Pillow on as many cores before and after, the faster of the two counted."""
    paths = write_pictures(data.x.permute(0, 2, 3, 1).numpy(), data.y, scratch / "png")
    blocks = [paths[i : i + 250] for i in range(0, len(paths), 250)]

    def load() -> None:
        nonlocal read
        read = place(folder.load(scratch / "png", How()).x, torch.device("cpu"))

    read: object = None
    with get_context("fork").Pool(CORES) as pool:
        pool.map(plain_decoding, blocks)  # the files come into the page cache, the workers warm up
        plain, first = [], []
        for _ in range(3):
            plain.append(seconds(lambda: pool.map(plain_decoding, blocks, chunksize=1)))
            cache.clear()
            first.append(seconds(load))
    later = [seconds(load) for _ in range(3)]
    order = np.argsort(data.y, kind="stable")
    assert isinstance(read, torch.Tensor)
    assert torch.equal(read, data.x[order])
    n = len(paths)
    return {
        "pictures": n,
        "plain_pillow_per_second": n / min(plain),
        "first_per_second": n / min(first),
        "first_seconds": min(first),
        "share_of_plain": min(plain) / min(first),
        "later_seconds": max(later),
    }


def training(data: Data, scratch: Path, network: str, device: torch.device, n: int) -> Record:
    """Seconds of an epoch on the device and streamed, in turns."""
    (scratch / "x.rows").write_bytes(data.x[:n].numpy().tobytes())
    rows = FileRows(scratch / "x.rows", np.arange(n), 3072, (3, 32, 32))
    times: dict[str, list[float]] = {"on_device": [], "streamed": []}
    runs = {}
    for kind, x in (("on_device", data.x[:n].to(device)), ("streamed", Streamed(rows, device))):
        task = Task(x, torch.from_numpy(data.y[:n]).to(device), 10, epochs=100, batch_size=128, augment=suited_to((3, 32, 32)))
        runs[kind] = task, start(task, SPRL(T1=1), network)
    losses = []
    for turn in range(4):
        for kind, (task, state) in runs.items():
            began = time.perf_counter()
            losses.append(run_epoch(task, state).loss)
            if turn:
                times[kind].append(time.perf_counter() - began)
    best = {kind: min(values) for kind, values in times.items()}
    same = losses[0::2] == losses[1::2]
    return {
        "network": network,
        "rows": n,
        "device": str(device),
        **best,
        "ratio": best["on_device"] / best["streamed"],
        "same_losses": same,
    }


def memory(scratch: Path, sizes: tuple[int, int] = (4000, 16000)) -> list[Record]:
    """Peak memory of whole runs over folders of 64 x 64 pixels, the larger four times the smaller."""
    rng = np.random.default_rng(0)
    records = []
    for n in sizes:
        where = scratch / f"memory{n}"
        write_pictures(rng.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8), np.arange(n) % 4, where)
        for flags in ([], ["--stream"]):
            command = [
                sys.executable,
                "-c",
                CHILD,
                str(where),
                "--network",
                "cnn:width=4",
                "--epochs",
                "2",
                "--batch-size",
                "128",
                "--device",
                "cpu",
                *flags,
            ]
            out = subprocess.run([*command, "--out", str(scratch / f"run{n}{len(flags)}")], capture_output=True, text=True, check=True)
            records.append({"pictures": n, "streamed": bool(flags), "peak_mb": int(out.stderr.split()[-1]) / 1024})
    return records


CHILD = """
import re, sys
from sprl.cli import main
sys.argv[0] = "sprl"; sys.argv.insert(1, "train")
try:
    main()
finally:
    print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)  # of this program alone
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--out")
    asked = parser.parse_args()
    torch.set_num_threads(CORES)
    where = sets.find(sets.BENCHMARKS["cifar10"], asked.data_dir)
    if where is None:
        sys.exit("CIFAR-10 is not there: sprl data cifar10 --download")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        os.environ["SPRL_CACHE"] = str(scratch / "cache")
        took = max(seconds(lambda: cifar.load(where)) for _ in range(3))
        print(f"CIFAR-10 from disk to tensors: {took:.2f} s (slowest of 3)")
        data = cifar.load(where)
        pngs = reading(data, scratch)
        print(f"50,000 PNG: plain Pillow on {CORES} cores {pngs['plain_pillow_per_second']:,.0f}/s")
        print(f"  first time {pngs['first_per_second']:,.0f}/s ({pngs['first_seconds']:.2f} s), {100 * pngs['share_of_plain']:.0f} % of it")
        print(f"  later {pngs['later_seconds']:.2f} s (slowest of 3)")
        device = find_device("auto")
        on_gpu = device.type == "cuda"
        trained = training(data, scratch, "resnet18" if on_gpu else "cnn", device, 50000 if on_gpu else 10000)
        print(f"{trained['network']} on {device}, {trained['rows']:,} rows: {trained['on_device']:.2f} s an epoch")
        print(f"  streamed {trained['streamed']:.2f} s, {100 * trained['ratio']:.0f} % of the speed, same losses: {trained['same_losses']}")
        peaks = memory(scratch)
        for row in peaks:
            kind = "streamed" if row["streamed"] else "in memory"
            print(f"peak memory, {row['pictures']:,} pictures of 64 x 64 {kind}: {row['peak_mb']:,.0f} MB")
    if asked.out:
        cifar10 = {"part": "cifar10", "seconds": took}
        save(
            Path(asked.out),
            [cifar10, {"part": "folder", **pngs}, {"part": "training", **trained}, *({"part": "memory", **p} for p in peaks)],
        )


if __name__ == "__main__":
    main()
