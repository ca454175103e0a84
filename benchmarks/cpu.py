"""What a CPU does faster: layouts of pictures, rows predicted at a time, threads, kinds of Adam, and translation against an index for each
pixel. Two minutes.

python benchmarks/cpu.py [--out FILE.json]      in turns, medians; compare ratios, for a busy machine slows all alike
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from measure import CORES, Record, save
from torch import Tensor

from sprl.data.augment import suited_to, translate
from sprl.engine import predict_logits, run_epoch, start
from sprl.methods import SPRL
from sprl.networks import build
from sprl.state import Task

Job = Callable[[], object]
PICTURE, TABLE = (3, 32, 32), (64,)
augment = suited_to(PICTURE)


def index_each_pixel(x: Tensor, most: int) -> Tensor:
    """`translate` as one would write it."""
    size, height, width = len(x), x.shape[2], x.shape[3]
    down, right = torch.randint(-most, most + 1, (2, size, 1))
    padded = torch.nn.functional.pad(x, (most,) * 4)
    rows, columns = torch.arange(height) + most - down, torch.arange(width) + most - right
    return padded.permute(0, 2, 3, 1)[torch.arange(size)[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def planar(x: Tensor) -> Tensor:
    return augment(x).contiguous(memory_format=torch.contiguous_format)


def steps(network: str, shape: tuple[int, ...], batch_size: int, count: int, **fields: Any) -> Job:
    """An epoch of so many steps."""
    torch.manual_seed(0)
    n = count * batch_size
    x = torch.randint(0, 256, (n, *shape), dtype=torch.uint8) if len(shape) == 3 else torch.randn(n, *shape)
    fields = {"augment": suited_to(shape)} | fields
    task = Task(x, torch.randint(0, 10, (n,)), 10, epochs=10**6, batch_size=batch_size, **fields)
    return partial(run_epoch, task, start(task, SPRL(T1=1), network))


def elsewhere(threads: int, wait: dict[str, str], network: str, shape: tuple[int, ...], batch_size: int, count: int) -> Job:
    """The same in a process of its own: how threads wait for one another is settled as it starts."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **wait}
    command = [sys.executable, __file__, "--serve", json.dumps([network, shape, batch_size, count])]
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdin is not None
    assert child.stdout is not None
    ask, answer = child.stdin, child.stdout

    def job() -> None:
        ask.write("go\n")
        assert answer.readline(), "the process has ended"

    return job  # at the end of ours, what it reads ends too, and so does it


def serve(network: str, shape: list[int], batch_size: int, count: int) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    job = steps(network, tuple(shape), batch_size, count)
    for _ in sys.stdin:
        job()
        print("done", flush=True)


def compare(what: str, jobs: dict[str, Job], steps: int, seconds: float) -> Record:
    """Milliseconds a step of each job and its time over that of the first, as medians over the rounds; and the ratio of the best times,
    which other processes disturb least."""
    for job in jobs.values():
        job()
        job()  # SPRL's second epoch is the first after the warm-up
    times: dict[str, list[float]] = {name: [] for name in jobs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(jobs))]) < 3:
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            times[name].append(1000 * (time.perf_counter() - began) / steps)
    first, *_ = times.values()
    record = {
        "what": what,
        "rounds": len(first),
        "ms": {name: round(median(values), 4) for name, values in times.items()},
        "ratio": {name: round(median(t / f for t, f in zip(values, first, strict=True)), 3) for name, values in times.items()},
        "ratio_of_best": {name: round(min(values) / min(first), 3) for name, values in times.items()},
    }
    parts = (f"{name} {record['ms'][name]:.2f} ms ({record['ratio'][name]:.2f}, {record['ratio_of_best'][name]:.2f})" for name in jobs)
    print(f"{what:<34}" + "  ".join(parts), flush=True)
    return record


def translation() -> Record:
    x = torch.rand(128, *PICTURE)
    torch.manual_seed(0)
    slow = index_each_pixel(x, 4)
    torch.manual_seed(0)
    assert torch.equal(slow, translate(x, 4))
    jobs: dict[str, Job] = {
        "an index a pixel": partial(index_each_pixel, x, 4),
        "translate": partial(translate, x, 4),
        "translate and flip": partial(augment, x),
    }
    return compare("translation of 128 pictures", jobs, 1, 2)


def layouts(network: str, batch_size: int, count: int, seconds: float) -> Record:
    """Planes; pixels side by side as `translate` gives them; and the weights so too (Task.channels_last)."""
    fields: dict[str, dict[str, Any]] = {"planes": {"augment": planar}, "pixels": {}, "pixels, weights": {"channels_last": True}}
    jobs = {name: steps(network, PICTURE, batch_size, count, **more) for name, more in fields.items()}
    return compare(f"layout: {network}, batch {batch_size}", jobs, count, seconds)


def predictions(network: str, rows: int, seconds: float) -> Record:
    """Of so many pictures, by how many at a time."""
    x = torch.randint(0, 256, (rows, *PICTURE), dtype=torch.uint8)
    networks = build(network, PICTURE, 10).to(memory_format=torch.channels_last)

    def job(count: int) -> None:
        with mock.patch("sprl.engine.at_once", return_value=count):
            predict_logits(networks, x)

    return compare(f"prediction: {network}, a row", {f"{count}": partial(job, count) for count in (1024, 128, 32)}, rows, seconds)


def threads(network: str, shape: tuple[int, ...], batch_size: int, count: int, seconds: float) -> Record:
    """One; all; and all, asleep while they wait instead of spinning, which costs a busy machine dearly."""
    kinds = {"1": (1, {}), f"{CORES}": (CORES, {}), f"{CORES}, asleep": (CORES, {"OMP_WAIT_POLICY": "passive"})}
    jobs = {name: elsewhere(*kind, network, shape, batch_size, count) for name, kind in kinds.items()}
    return compare(f"threads: {network}, batch {batch_size}", jobs, count, seconds)


def adams(network: str, shape: tuple[int, ...], batch_size: int, count: int, seconds: float) -> Record:
    kinds: dict[str, dict[str, bool]] = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    jobs = {name: steps(network, shape, batch_size, count, optimizer=partial(torch.optim.Adam, **kind)) for name, kind in kinds.items()}
    return compare(f"Adam: {network}, batch {batch_size}", jobs, count, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/cpu.json"))
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(*asked.serve)
        return
    torch.set_num_threads(1)
    records = [
        translation(),
        layouts("cnn", 128, 2, 10),
        layouts("convnet", 16, 1, 10),
        layouts("resnet18", 16, 1, 10),
        predictions("cnn", 2048, 5),
        predictions("convnet", 1024, 10),
        predictions("resnet18", 1024, 10),
        threads("mlp", TABLE, 32, 10, 5),
        threads("cnn", PICTURE, 128, 1, 8),
        adams("mlp", TABLE, 32, 10, 5),
        adams("cnn", PICTURE, 128, 2, 8),
    ]
    save(asked.out, records)


if __name__ == "__main__":
    main()
