"""Pictures as they come: what each becomes, which are refused, and that ids and positions stay right."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from sprl.data import How, cache, decode, pictures
from sprl.data.decode import BadPicture, Resize
from sprl.data.folder import load
from sprl.errors import InputError, SprlWarning

SMALL = Resize(8, 8)
RED, WHITE, BLUE = (255, 0, 0), (255, 255, 255), (0, 0, 255)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SPRL_CACHE", str(tmp_path_factory.mktemp("cache")))


def save(path, picture="L", size=(8, 8), colour=None, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(picture, str):
        picture = Image.new(picture, size, 0 if colour is None else colour)
    picture.save(path, **how)
    return path


def noise(*shape, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def pixels(path, resize=SMALL):
    """[H, W, 3] as decoded."""
    row, _ = decode.decode(os.fsencode(path), resize)
    return np.frombuffer(row, np.uint8).reshape(3, resize.height, resize.width).transpose(1, 2, 0)


def all_rows(data):
    return data.x[torch.arange(len(data.x))]


def test_pixels_are_what_pillow_reads(tmp_path):
    image = noise(8, 8, 3)
    assert np.array_equal(pixels(save(tmp_path / "a.png", image)), np.asarray(image))


@pytest.mark.parametrize(
    ("mode", "colour", "name", "expected"),
    [
        ("L", 7, "a.png", (7, 7, 7)),
        ("1", 1, "a.png", WHITE),
        ("P", 0, "a.png", (0, 0, 0)),
        ("RGBA", (255, 0, 0, 255), "a.png", RED),
        ("RGBA", (255, 0, 0, 0), "a.png", WHITE),  # what is transparent shows a white page
        ("LA", (9, 0), "a.png", WHITE),
        ("LA", (9, 255), "a.png", (9, 9, 9)),
        ("CMYK", (0, 255, 255, 0), "a.tif", RED),
        ("RGB", BLUE, "a.bmp", BLUE),
        ("RGB", RED, "a.webp", RED),
    ],
)
def test_any_kind_becomes_eight_bits_of_red_green_blue(tmp_path, mode, colour, name, expected):
    how = {"lossless": True} if name.endswith("webp") else {}
    assert pixels(save(tmp_path / name, mode, colour=colour, **how)).reshape(-1, 3).tolist() == [list(expected)] * 64


def test_a_transparent_colour_of_a_palette(tmp_path):
    image = Image.new("P", (8, 8), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    assert pixels(save(tmp_path / "a.png", image, transparency=1))[0, 0].tolist() == list(WHITE)
    assert pixels(save(tmp_path / "b.gif", image))[0, 0].tolist() == list(BLUE)


def test_of_an_animation_the_first_picture(tmp_path):
    first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), BLUE)
    assert pixels(save(tmp_path / "a.gif", first, save_all=True, append_images=[second]))[0, 0].tolist() == list(RED)


@pytest.mark.parametrize("turn", range(1, 9))
def test_photos_stand_as_the_camera_was_held(tmp_path, turn):
    from PIL import ImageOps

    image = noise(8, 8, 3)
    exif = Image.Exif()
    exif[0x0112] = turn
    path = save(tmp_path / "a.png", image, exif=exif)
    assert np.array_equal(pixels(path), np.asarray(ImageOps.exif_transpose(Image.open(path))))
    assert (turn == 1) == np.array_equal(pixels(path), np.asarray(image))


def test_the_size_of_a_turned_photo_is_that_which_is_seen(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode.size_of(save(tmp_path / "a.jpg", "RGB", (20, 10), exif=exif)) == (20, 10)


@pytest.mark.parametrize("size", [(8, 8), (16, 16), (30, 9), (9, 31), (5, 3), (8, 200), (7, 8)])
@pytest.mark.parametrize("target", [(8, 8), (6, 10)])
def test_other_sizes_cover_the_target_and_lose_their_margins(tmp_path, size, target):
    """A picture whose left half is red and right half blue keeps its middle in the middle, without a border."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    got = pixels(save(tmp_path / "a.png", image), Resize(*target)).astype(int)
    assert got.shape == (*target, 3)
    assert got[:, 0].tolist() == [list(RED)] * target[0] or size[0] < 9
    assert got[:, -1, 2].min() > 150
    assert got[..., 1].max() < 30


def test_large_jpegs_are_decoded_smaller_with_nearly_the_same_result(tmp_path):
    y, x = np.mgrid[:600, :800]
    image = Image.fromarray(np.stack([x * 255 // 800, y * 255 // 600, (x + y) % 256], -1).astype(np.uint8)).resize((800, 600))
    path = save(tmp_path / "a.jpg", image, quality=95)
    plain = np.asarray(Image.open(path).resize((42, 32), Image.Resampling.BICUBIC).crop((5, 0, 37, 32)), int)
    assert np.abs(pixels(path, Resize(32, 32)).astype(int) - plain)[..., :2].mean() < 2


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "RGB"])
def test_strip_by_strip_it_shows_the_same_white_page(mode):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (2 * decode.STRIP + 7, 9, 4), dtype=np.uint8), "RGBA")
    if mode == "P":
        image = image.convert("RGB").quantize(16)
        image.info["transparency"] = 3
    else:
        image = image.convert("RGB").quantize(16).convert("PA") if mode == "PA" else image.convert(mode)
        image.info |= {"transparency": image.getpixel((0, 0))} if mode == "RGB" else {}
    whole = image.convert("RGBA")
    page = Image.new("RGBA", image.size, "white")
    page.alpha_composite(whole)
    assert decode.on_white(image).tobytes() == page.convert("RGB").tobytes()


@pytest.mark.parametrize(("pixels", "together"), [(2 * decode.SHARE, False), (decode.SHARE - 1, True)])
def test_decoders_share_their_room(tmp_path, pixels, together):
    """Of pictures that have no room together one waits, until the other is done."""
    fcntl = pytest.importorskip("fcntl")
    program = (
        "import sys; from sprl.data.decode import ROOM, shared_room\n"
        "with open(sys.argv[1], 'r+b') as file, shared_room(file)(ROOM): print('in', flush=True); sys.stdin.read()"
    )
    (tmp_path / "rows").touch()
    at_once = mock.patch.object(fcntl, "LOCK_EX", fcntl.LOCK_EX | fcntl.LOCK_NB)  # rather than wait
    with (tmp_path / "rows").open("r+b") as file, at_once:
        words = [sys.executable, "-c", program, tmp_path / "rows"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout.readline() == "in\n"
            with nullcontext() if together else pytest.raises(BlockingIOError), decode.shared_room(file)(pixels):
                pass
        with decode.shared_room(file)(decode.ROOM):
            pass


@pytest.mark.parametrize(("how", "asked"), [({"format": "png"}, 64 * 48), ({}, 16 * 12), ({"progressive": True}, 64 * 48)])
def test_room_is_asked_for_what_is_decoded(tmp_path, how, asked):
    noise(48, 64, 3).save(tmp_path / "a.jpg", **how)
    seen = []
    decode.decode(str(tmp_path / "a.jpg"), Resize(6, 6), lambda pixels: nullcontext(seen.append(pixels)))
    assert seen == [asked]


def test_more_than_eight_bits_are_refused(tmp_path):
    for name, array in (("grey.png", np.zeros((8, 8), np.uint16)), ("float.tif", np.zeros((8, 8), np.float32))):
        with pytest.raises(BadPicture, match="8 bits"):
            pixels(save(tmp_path / name, Image.fromarray(array)))


def test_sixteen_bits_of_colour_are_refused(tmp_path):
    """Pillow would cut them to eight without a word, and cannot write them: a PNG made by hand."""
    import struct
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(8 * 6) for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    with pytest.raises(BadPicture, match="8 bits"):
        pixels(tmp_path / "a.png")


def test_pillows_limit_of_pixels_is_kept(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", "L", (30, 30))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 899)
    with pytest.warns(Image.DecompressionBombWarning), pytest.raises(BadPicture, match="limit"):
        pixels(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    with pytest.raises(BadPicture, match="limit"):
        pixels(path)


def test_formats_that_run_programs_are_no_pictures(tmp_path):
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(BadPicture, match="not a picture"):
        pixels(tmp_path / "a.png")


# Folders


@pytest.fixture
def pets(tmp_path):
    """train/{cat,dog} with five pictures each, test/{cat,dog} with one."""
    for part, count in (("train", 5), ("test", 1)):
        for label in ("cat", "dog"):
            for i in range(count):
                save(tmp_path / "pets" / part / label / f"{i}.png", noise(8, 8, 3, seed=len(label + part) * 10 + i))
    return tmp_path / "pets"


def test_a_folder_with_train_and_test(pets):
    data = load(pets, How())
    assert data.name == "pets"
    assert data.classes == ("cat", "dog")
    assert data.ids == tuple(f"train/{label}/{i}.png" for label in ("cat", "dog") for i in range(5))
    assert data.y.tolist() == [0] * 5 + [1] * 5
    assert data.y_test.tolist() == [0, 1]
    for i, row in zip(data.ids, all_rows(data), strict=True):
        assert np.array_equal(row.permute(1, 2, 0), np.asarray(Image.open(pets / i)))
    assert data.x_test.shape == (2, 3, 8, 8)


def test_one_tree_without_a_test_part(pets):
    data = load(pets / "train", How())
    assert data.ids[0] == "cat/0.png"
    assert data.x_test is None
    assert data.name == "train"


def test_validation_stands_in_for_a_missing_test_part(pets):
    (pets / "test").rename(pets / "Val")
    assert load(pets, How()).y_test.tolist() == [0, 1]


def test_other_parts_are_left_out_and_told(pets):
    for name in ("val/cat", "Validation/cat", "extra"):
        save(pets / name / "a.png")
    (pets / "notes").mkdir()
    told = "with pictures are left out: Validation, extra, val, as train serves to train on and test to test on"
    with pytest.warns(SprlWarning, match=told):
        data = load(pets, How())
    assert (data.classes, len(data.y), len(data.y_test)) == (("cat", "dog"), 10, 2)


def test_a_class_may_be_called_train_below_train(pets):
    (pets / "train" / "cat").rename(pets / "train" / "train")
    (pets / "test" / "cat").rename(pets / "test" / "train")
    assert load(pets, How()).classes == ("dog", "train")


def test_pictures_all_grey_have_one_channel(tmp_path):
    for i in range(4):
        save(tmp_path / "f" / "ab"[i % 2] / f"{i}.png", noise(8, 8, seed=i))
    data = load(tmp_path / "f", How())
    assert data.shape == (1, 8, 8)
    assert np.array_equal(all_rows(data)[0, 0], np.asarray(Image.open(tmp_path / "f" / data.ids[0])))
    save(tmp_path / "f" / "a" / "colour.png", "RGB", colour=RED)
    assert load(tmp_path / "f", How()).shape == (3, 8, 8)


def test_what_computers_leave_in_folders(pets):
    for name in (".DS_Store", "._0.png", "Thumbs.db"):
        (pets / "train" / "cat" / name).write_bytes(b"\0\1")
    (pets / "train" / ".hidden").mkdir()
    (pets / "__MACOSX" / "cat").mkdir(parents=True)
    assert len(load(pets, How()).y) == 10


def test_empty_classes_and_other_files_are_told(pets):
    (pets / "train" / "emu").mkdir()
    (pets / "train" / "dog" / "notes.txt").write_text("x")
    with pytest.warns(SprlWarning) as heard:
        data = load(pets, How())
    assert data.classes == ("cat", "dog")
    said = " ".join(str(w.message) for w in heard)
    assert "without pictures are left out: emu" in said
    assert "1 .txt" in said


def test_links_are_followed_but_never_in_circles(pets, tmp_path):
    (pets / "train" / "cat" / "again").symlink_to(pets / "train")
    (pets / "train" / "cat" / "itself").symlink_to(pets / "train" / "cat" / "itself")
    save(tmp_path / "far" / "x.png", "RGB", colour=RED)
    (pets / "train" / "dog" / "far").symlink_to(tmp_path / "far")
    with pytest.warns(SprlWarning, match="no pictures by their names"):  # the link that leads nowhere
        data = load(pets, How())
    assert "train/dog/far/x.png" in data.ids
    assert len(data.ids) == 11


def test_names_that_are_no_text(pets):
    name = os.path.join(os.fsencode(pets), b"train", b"dog", b"b\xffd\n;,.png")
    with open(name, "wb") as file:
        noise(8, 8, 3).save(file, "png")
    data = load(pets, How())
    assert "train/dog/b\\xffd\n;,.png" in data.ids
    "".join(data.ids).encode()  # can be written


def test_damaged_pictures_are_all_told_at_once(pets):
    (pets / "train" / "cat" / "1.png").write_bytes(b"no picture")
    whole = (pets / "train" / "dog" / "2.png").read_bytes()
    (pets / "train" / "dog" / "2.png").write_bytes(whole[:100])
    (pets / "test" / "dog" / "0.png").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"3 of 12 pictures cannot be read: train/cat/1.png .*; train/dog/2.png .*; test/dog/0.png .*--skip-bad"
    ):
        load(pets, How())
    with pytest.warns(SprlWarning, match=r"left out, as they cannot be read, 3 of 12 pictures: train/cat/1.png"):
        data = load(pets, How(skip_bad=True))
    assert data.skipped == ("train/cat/1.png", "train/dog/2.png", "test/dog/0.png")
    assert data.index.tolist() == [0, 2, 3, 4, 5, 6, 8, 9]
    assert data.ids == tuple(f"train/{'cat' if i < 5 else 'dog'}/{i % 5}.png" for i in data.index)
    assert data.y.tolist() == [0] * 4 + [1] * 4
    assert data.y_test.tolist() == [0]
    for i, row in zip(data.ids, all_rows(data), strict=True):
        assert np.array_equal(row.permute(1, 2, 0), np.asarray(Image.open(pets / i)))


def test_more_files_than_a_worker_takes_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "BLOCK", 7)
    values = np.random.default_rng(0).integers(0, 256, 230)
    for i, value in enumerate(values):
        save(tmp_path / "f" / "ab"[i % 2] / f"{i:03}.png", "L", (4, 4), int(value))
    seen = []
    data = load(tmp_path / "f", How(progress=lambda what, done, of_all: seen.append((done, of_all))))
    assert all_rows(data)[:, 0, 0, 0].tolist() == [int(values[int(i[2:5])]) for i in data.ids]
    assert max(seen) == (230, 230)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(20, 10)] * 3, (10, 20)),  # width, height: as they are
        ([(64, 64)] * 3, (64, 64)),
        ([(65, 65)] * 3, (64, 64)),
        ([(20, 30), (40, 50), (30, 25)], (25, 25)),
        ([(200, 300), (400, 100)], (64, 64)),
    ],
)
def test_the_rule_of_sizes(tmp_path, sizes, expected):
    paths = [str(save(tmp_path / f"{i}.png", "L", size)) for i, size in enumerate(sizes)]
    assert pictures.find_size(paths)[:2] == expected


def test_asked_for_a_size(pets):
    assert load(pets, How(resize=Resize(5, 5))).shape == (3, 5, 5)


def test_decoded_once_until_a_file_changes(pets, monkeypatch):
    load(pets, How())
    decode_all = pictures.decode_all
    monkeypatch.setattr(pictures, "decode_all", lambda *_: pytest.fail("decoded again"))
    before = all_rows(load(pets, How()))
    monkeypatch.setattr(pictures, "decode_all", decode_all)
    save(pets / "train" / "cat" / "0.png", "RGB", colour=RED)
    os.utime(pets / "train" / "cat" / "0.png", ns=(1, 1))
    after = all_rows(load(pets, How()))
    assert after[0, :, 0, 0].tolist() == list(RED)
    assert torch.equal(after[1:], before[1:])
    load(pets, How(resize=Resize(4, 4)))
    assert cache.used()[0] == 3


def test_a_worker_that_dies_is_told(pets, monkeypatch, tmp_path):
    worker = tmp_path / "dies.py"
    worker.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(decode, "__file__", str(worker))
    with pytest.raises(InputError, match="the decoder ended with status -11 on one of the pictures"):
        load(pets, How())
    assert cache.used() == (0, 0)


def test_a_pipe_is_no_picture(pets):
    os.mkfifo(pets / "train" / "cat" / "pipe.png")
    with pytest.raises(InputError, match=r"train/cat/pipe.png \(not a file\)"):
        load(pets, How())


def test_interrupted_decoding_ends_at_once_and_leaves_nothing(pets, monkeypatch, tmp_path):
    worker = tmp_path / "sleeps.py"
    # from the worker, so that it comes while there is one
    worker.write_text("import os, signal, sys, time\nsys.stdin.buffer.read()\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)\n")
    monkeypatch.setattr(decode, "__file__", str(worker))
    began, before = time.monotonic(), signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            load(pets, How())
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 20
    assert cache.used() == (0, 0)


def classes(*names):
    """Makes a folder for each, with a picture straight in it."""
    return lambda folder: [save(folder / name / "a.png") for name in names]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: None, "is empty: it should hold a folder of pictures for each class"),
        (lambda f: save(f / "a.png"), "holds pictures but no folder a class"),
        (lambda f: (f / "cat").mkdir(), "holds no pictures in class folders"),
        (lambda f: save(f / "train" / "a.png"), "train holds pictures but no folder a class"),
        (lambda f: (save(f / "train" / "a" / "a.png"), save(f / "test" / "b" / "a.png")), "test/ holds the class 'b'"),
        (classes("bus", "car", "train"), "pictures in bus, car beside train/, .*: if train is a class, rename its folder"),
        (classes("bus", "car", "train", "test"), "pictures in bus, car beside train/, .*: if train is a class, rename its folder"),
        (classes("bus", "car", "Train/steam", "Train/electric"), "beside Train/, .* such as to Train_; if not, move the others"),
        (classes(*"abcdefg", "train/steam"), "pictures in a, b, c, d, e and 2 more beside train/"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, make, message):
    (tmp_path / "f").mkdir()
    make(tmp_path / "f")
    with pytest.raises(InputError, match=message):
        load(tmp_path / "f", How())


def test_nothing_is_left_after_leaving_out_the_damaged(tmp_path):
    (tmp_path / "f" / "a").mkdir(parents=True)
    (tmp_path / "f" / "a" / "x.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"f: none of 1 pictures can be read, such as a/x.png"):
        load(tmp_path / "f", How(skip_bad=True))


def test_a_picture_so_narrow_that_covering_a_square_would_take_gigabytes_is_refused(tmp_path):
    Image.new("L", (60_000, 1)).save(tmp_path / "line.png")
    with pytest.raises(BadPicture, match=r"so narrow that it would have to be scaled to 3,840,000 x 64 pixels"):
        decode.decode(str(tmp_path / "line.png"), Resize(64, 64))
    assert len(decode.decode(str(tmp_path / "line.png"), Resize(8, 8))[0]) == 3 * 64  # 480,000 x 8 is fine
