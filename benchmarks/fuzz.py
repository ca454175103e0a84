"""Damaged files against every reader: each must be read or refused with one line, without a crash, code run, or memory spent on lies.

python benchmarks/fuzz.py [--count 1000] [--seed 0] [FORMAT ...]
"""

import argparse
import gzip
import io
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load as safetensors_load

from sprl import checkpoint, corrections, files, model, run, store
from sprl.config import Config
from sprl.corrections import labels_hash
from sprl.data import How, Preprocess, arrays, cifar, clothing1m, decode, food101, human, idx, mini_imagenet, pictures, sets
from sprl.data.catalogue import load, relabel
from sprl.errors import InputError
from sprl.timm_models import read_weights

MEMORY = 512  # MB that reading a file of a few kB may take on top
PATIENCE = 20  # seconds for one file
HUGE = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\xff" * 8, b"99999999999", b"\x00" * 4)


@dataclass(frozen=True)
class Format:
    name: str  # of the file that is damaged
    make: Callable[[], bytes]
    read: Callable[[Path], Any]
    wrap: Callable[[bytes], bytes] = bytes  # after the damage: behind an archive's checksums


def zipped(x: bytes) -> bytes:
    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", x)
            archive.writestr("y.npy", saved(lambda file: np.save(file, Y)))

    return saved(write)


def saved(write: Callable[[io.BytesIO], Any]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), np.arange(30) % 3
NPZ = {"x": X, "y": Y, "x_test": X[:5], "y_test": Y[:5]}
CSV = "id,label,width,colour,split\n" + "".join(
    f"r{i},{'abc'[y]},{X[i, 0]:.3f},{'rg'[i % 2]},{'train' if i < 25 else 'test'}\n" for i, y in enumerate(Y)
)
STATE = {"stem.weight": torch.zeros(3, 4), "fc.bias": torch.zeros(3)}


def parquet() -> bytes:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=Y, colour=["r", "g", "b"] * 10)
    return saved(lambda file: frame.to_parquet(file))


def safetensors() -> bytes:
    from safetensors.torch import save

    return save(STATE)


def picture(kind: str) -> Format:
    image = Image.fromarray(RNG.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    suffix = kind.lower()
    return Format(f"a.{suffix}", lambda: saved(lambda file: image.save(file, kind)), read_picture)


def read_picture(path: Path) -> None:
    try:
        row, _ = decode.decode(os.fsencode(path), decode.Resize(16, 16))
        assert len(row) == 3 * 16 * 16
    except decode.BadPicture as error:
        raise InputError(str(error)) from error


def read_data(path: Path) -> None:
    data = load(str(path), how=How())
    assert len(data.x) == len(data.y) == len(data.ids) == len(data.index)
    assert data.y.max() < len(data.classes)


def read_idx_folder(path: Path) -> None:
    labels = path.with_name("train-labels-idx1-ubyte")
    labels.write_bytes(idx_bytes(Y.astype(np.uint8)))
    idx.load(path.parent, "fuzz")


def read_cifar(path: Path) -> None:
    for name in ("data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        if not (path.parent / f"{name}.bin").exists():
            (path.parent / f"{name}.bin").symlink_to(path.parent / "whole")
    sets.load("cifar10", str(path.parent))


def cifar_bytes() -> bytes:
    return bytes(3073 * 10000)


CIFAR100 = replace(cifar.CIFAR100, train={"train.bin": 20}, test={"test.bin": 10})  # the layout of two labels, in few rows


def read_cifar100(path: Path) -> None:
    path.with_name("test.bin").write_bytes(bytes(3074 * 10))
    data = cifar.load(path.parent, CIFAR100)
    assert data.y.max() < len(data.classes) == 100


def cifar100_bytes() -> bytes:
    return b"".join(bytes([i, 5 * i]) + bytes(3072) for i in range(20))


def read_food101(path: Path) -> None:
    (path.parent / "meta").mkdir(exist_ok=True)
    (path.parent / "meta" / "test.txt").write_text("soup/1\nstew/1\n")
    (path.parent / "meta" / path.name).write_bytes(path.read_bytes())
    check_listing(*food101.read(path.parent), path.parent)


def food101_json() -> bytes:
    return json.dumps({dish: [f"{dish}/{i}" for i in range(10)] for dish in ("soup", "stew")}).encode()


def read_clothing1m(path: Path) -> None:
    """The rest of the set, where it is not there yet."""
    parts = {"noisy_train_key_list": clothing1m_keys(), "clean_test_key_list": clothing1m_keys()[:17]}
    for name, content in (parts | dict.fromkeys(("noisy_label_kv", "clean_label_kv"), clothing1m_labels())).items():
        if not (path.parent / f"{name}.txt").exists():
            (path.parent / f"{name}.txt").write_bytes(content)
    check_listing(*clothing1m.read(path.parent), path.parent)


def clothing1m_keys() -> bytes:
    return b"".join(b"images/%d/%d,%d.jpg\n" % (i % 10, i, i) for i in range(30))


def clothing1m_labels() -> bytes:
    return b"".join(b"%s %d\n" % (key, i % 14) for i, key in enumerate(clothing1m_keys().splitlines()))


def read_mini_imagenet(path: Path) -> None:
    for name in ("val", "test"):
        (path.parent / f"{name}.csv").write_text(f"filename,label\n{name}.jpg,{name}\n")
    check_listing(*mini_imagenet.read(path.parent), path.parent)


def mini_imagenet_list() -> bytes:
    return b"filename,label\n" + b"".join(b"n%d.jpg,n%d\n" % (i, i // 6) for i in range(30))


def check_listing(files: list[pictures.File], classes: tuple[str, ...], folder: Path) -> None:
    root = os.path.abspath(os.fsencode(folder)) + b"/"
    assert all(os.path.abspath(file.path).startswith(root) and file.label in classes for file in files)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_pictures() -> bytes:
    return idx_bytes(RNG.integers(0, 256, (30, 8, 8), dtype=np.uint8))


def human_arrays(which: str) -> bytes:
    return saved(lambda file: np.savez(file, clean=Y.astype(np.uint8), **{which: Y.astype(np.uint8)}))


def human_published(which: str) -> bytes:
    return saved(lambda file: torch.save({"clean_label": Y, which: Y}, file))


def torch_archive(program: bytes) -> bytes:
    """As torch.save lays one out, around a pickle."""

    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(io.BytesIO(weights())) as whole, zipfile.ZipFile(file, "w") as archive:
            for name in whole.namelist():
                archive.writestr(name, program if name.endswith("data.pkl") else whole.read(name))

    return saved(write)


def weights() -> bytes:
    return saved(lambda file: torch.save(STATE, file))


def weights_pickle() -> bytes:
    with zipfile.ZipFile(io.BytesIO(weights())) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def weights_directory() -> bytes:
    """The end of the archive: what lies where, and the end records."""
    return weights()[weights().index(b"PK\1\2") :]


MODEL = {
    "classes": ["a", "b", "c"],
    "preprocess": vars(Preprocess.fit(X)),
    "resize": None,
    "columns": {"columns": [{"name": name, "kind": "number", "mean": [0.5], "values": []} for name in "wxyz"]},
}


def run_config() -> bytes:
    config = Config(data="a.npz", network="mlp:depth=0", method="standard", epochs=3, batch_size=16, lr=0.01)
    return json.dumps({**config.to_json(), "model": MODEL}, indent=2).encode()


def read_run_config(path: Path) -> None:
    """As --resume does, with a checkpoint of the config's own size."""
    config, stored = model.read_config(path)
    model.check_size(path.parent, config, stored, path.stat().st_size)


def labels_csv() -> bytes:
    shares = "0.9,0.5,0.25,False"
    header = ",".join((*files.NAMES, *files.PROBABILITIES, files.FLAG))
    return (header + "\n" + "".join(f"r{i},{'abc'[y]},{'abc'[y]},{shares}\n" for i, y in enumerate(Y))).encode()


def read_labels_csv(path: Path) -> None:
    assert set(files.read_labels(path.parent, MODEL["classes"]).table["given_label"]) <= set(MODEL["classes"])


def corrections_csv() -> bytes:
    rows = "".join(f"r{i},{'abc'[i % 3]},{'abc'[(i + 1) % 3]},accepted\n" for i in range(9))
    return f"# sprl corrections, run=0, labels={labels_hash(ROWS_IDS, GIVEN)}\n{','.join(corrections.COLUMNS)}\n{rows}".encode()


def read_corrections(path: Path) -> None:
    path.with_name("config.json").write_bytes(run_config())
    path.with_name("labels.csv").write_bytes(labels_csv())
    found = corrections.read(path, corrections.Labelled.read(path.parent))
    assert len(found.rows) == len(found.labels) == len(found.verdicts)


ROWS_IDS, GIVEN = [f"r{i}" for i in range(len(Y))], ["abc"[y] for y in Y]
RECORD = min((Path(__file__).parents[1] / "results" / "records").glob("*.json"))


def read_record(path: Path) -> None:
    if store.read(path.parent, path.stem) is None:
        raise InputError("no record")


def begun() -> run.Run:
    """A run in its second epoch."""
    config = Config(data="rows", network="mlp:width=8,depth=1", method="sprl", fields={"T1": 1}, epochs=3, batch_size=10, device="cpu")
    return run.prepare(config, ROWS)


def checkpoint_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        started = begun()
        for _ in zip(range(5), started.train(lambda: True), strict=False):
            pass
        checkpoint.save(Path(folder), started)
        return (Path(folder) / files.CHECKPOINT).read_bytes()


def read_checkpoint(path: Path) -> None:
    fresh = begun()
    assert checkpoint.load(path.parent, fresh)
    assert 0 <= fresh.state.t == len(fresh.rows) <= fresh.task.epochs
    list(fresh.train(lambda: False))  # what was taken can be trained on, or is refused in words


def summed(content: bytes) -> bytes:
    """A checkpoint whose checksum is right again, where it can still be read."""
    length = int.from_bytes(content[:8], "little")
    try:
        tensors, words = safetensors_load(content), json.loads(content[8 : 8 + length])["__metadata__"]
        right = checkpoint.checksum(words["checkpoint"], [tensor for _, tensor in sorted(tensors.items())])
        return content.replace(words["crc32"].encode(), right.encode(), 1)
    except Exception:  # of damaged files there are many kinds
        return content


FORMATS = {
    "checkpoint": Format(files.CHECKPOINT, checkpoint_bytes, read_checkpoint),
    "checkpoint-inside": Format(files.CHECKPOINT, checkpoint_bytes, read_checkpoint, summed),
    "npz": Format("a.npz", lambda: saved(lambda file: np.savez(file, **NPZ)), read_data),
    "npz-compressed": Format("a.npz", lambda: saved(lambda file: np.savez_compressed(file, **NPZ)), read_data),
    "npz-inside": Format("a.npz", lambda: saved(lambda file: np.save(file, X)), read_data, zipped),
    "npy": Format("a.npy", lambda: saved(lambda file: np.save(file, X)), arrays.read_rows),
    "csv": Format("a.csv", CSV.encode, read_data),
    "labels": Format(
        "l.csv", lambda: b"id,label\n" + b"".join(b"%d,%d\n" % (i, y) for i, y in enumerate(Y)), lambda path: relabel(ROWS, str(path))
    ),
    "parquet": Format("a.parquet", parquet, read_data),
    "idx": Format("train-images-idx3-ubyte", idx_pictures, read_idx_folder),
    "idx-gz": Format("train-images-idx3-ubyte.gz", lambda: gzip.compress(idx_pictures()), read_idx_folder),
    "idx-gz-inside": Format("train-images-idx3-ubyte.gz", idx_pictures, read_idx_folder, gzip.compress),
    "cifar": Format("data_batch_1.bin", cifar_bytes, read_cifar),
    "cifar100": Format("train.bin", cifar100_bytes, read_cifar100),
    "food101": Format(
        "train.txt", lambda: b"".join(b"%s/%d\n" % (dish, i) for dish in (b"soup", b"stew") for i in range(20)), read_food101
    ),
    "food101-json": Format("train.json", food101_json, read_food101),
    "clothing1m-labels": Format("noisy_label_kv.txt", clothing1m_labels, read_clothing1m),
    "clothing1m-keys": Format("noisy_train_key_list.txt", clothing1m_keys, read_clothing1m),
    "mini-imagenet": Format("train.csv", mini_imagenet_list, read_mini_imagenet),
    "human": Format("cifar10n.npz", lambda: human_arrays("worse"), lambda path: human.read(path.parent, "worse", Y)),
    "human-pt": Format("CIFAR-10_human.pt", lambda: human_published("worse_label"), lambda path: human.read(path.parent, "worse", Y)),
    "human-100": Format("cifar100n.npz", lambda: human_arrays("noisy"), lambda path: human.read(path.parent, "noisy", Y, "cifar100")),
    "human-100-pt": Format(
        "CIFAR-100_human.pt", lambda: human_published("noisy_label"), lambda path: human.read(path.parent, "noisy", Y, "cifar100")
    ),
    "weights-pth": Format("a.pth", lambda: saved(lambda file: torch.save(STATE, file)), read_weights),
    "weights-pth-inside": Format("a.pth", weights_pickle, read_weights, torch_archive),
    "weights-pth-directory": Format("a.pth", weights_directory, read_weights, lambda end: weights()[: weights().index(b"PK\1\2")] + end),
    "config": Format("config.json", run_config, read_run_config),
    "labels-csv": Format("labels.csv", labels_csv, read_labels_csv),
    "corrections": Format("corrections.csv", corrections_csv, read_corrections),
    "record": Format(RECORD.name, RECORD.read_bytes, read_record),
    "weights-safetensors": Format("a.safetensors", safetensors, read_weights),
    **{kind.lower(): picture(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")},
}


def rows() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "rows.npz", x=X, y=Y)
        return load(str(Path(folder) / "rows.npz"))


ROWS = rows()


def damage(whole: bytes, rng: random.Random) -> bytes:
    """One to three of: cut, flipped bytes, a huge number, a piece doubled, dropped or emptied; near the front as often as elsewhere."""
    content = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not content:
            break
        at = rng.randrange(len(content) if rng.random() < 0.5 else min(len(content), 200))
        length = rng.choice((1, 2, 4, 8, 64, 1000))
        kind = rng.randrange(6)
        if kind == 0:
            del content[at:]
        elif kind == 1:
            for i in range(rng.choice((1, 1, 3, 20))):
                content[(at + 7 * i) % len(content)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            number = rng.choice(HUGE)
            content[at : at + len(number)] = number
        elif kind == 3:
            content[at:at] = content[at : at + length]
        elif kind == 4:
            del content[at : at + length]
        else:
            content[at : at + length] = bytes(length)
    return bytes(content)


def fuzz(name: str, count: int, seed: int, folder: Path) -> Counter[str]:
    """How many damaged files were read, how many refused. Anything else is raised."""
    kind, rng, tally = FORMATS[name], random.Random(f"{name} {seed}"), Counter[str]()
    whole, path = kind.make(), folder / kind.name
    (folder / "whole").write_bytes(whole)
    path.write_bytes(kind.wrap(whole))
    kind.read(path)  # undamaged, it must be read
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        path.write_bytes(kind.wrap(damage(whole, rng)))
        signal.alarm(PATIENCE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.read(path)
            tally["read"] += 1
        except InputError as error:
            tally["refused" if str(error).strip() else "refused without a word"] += 1
        except BaseException as error:
            kept = folder / f"culprit-{i}"
            path.replace(kept)
            raise AssertionError(f"{name} {i} (seed {seed}): {type(error).__name__}: {error}; kept in {kept}") from error
        finally:
            signal.alarm(0)
    spent = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert spent < MEMORY, f"{name}: reading took {spent:.0f} MB"
    assert not tally["refused without a word"], name
    tally["MB"] = round(spent)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[[], *FORMATS], default=[])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process")
    asked = parser.parse_args()
    if asked.here:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tally = fuzz(asked.formats[0], asked.count, asked.seed, Path(tempfile.mkdtemp()))
        print(f"{tally['read']} read, {tally['refused']} refused, {tally['MB']} MB")
        return
    failed = []
    for name in asked.formats or FORMATS:  # each in a process of its own, so that a crash ends that one alone
        command = [sys.executable, __file__, "--here", name, "--count", str(asked.count), "--seed", str(asked.seed)]
        done = subprocess.run(command, capture_output=True, text=True)
        verdict = done.stdout.strip() if done.returncode == 0 else f"FAILED ({done.returncode}): {done.stderr.strip().splitlines()[-1:]}"
        failed += [name] * (done.returncode != 0)
        print(f"{name:<20} {verdict}", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
