"""Archives that are downloaded: unpacked whole, or refused with nothing left behind, whatever is in them."""

import gzip
import io
import os
import tarfile
from dataclasses import replace

import pytest
from serving import Server, md5, no_waiting, one_file, refused, server, tree

from sprl.data.download import download
from sprl.data.sets import BenchmarkSet, Download, File

__all__ = ["no_waiting", "server"]  # fixtures

FILES = {"one.bin": b"first" * 100, "two.bin": b"second" * 100}


def member(name: str, content: bytes = b"", **fields) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


GOOD = [member("batches", type=tarfile.DIRTYPE, mode=0o755), *(member(f"batches/{name}", content) for name, content in FILES.items())]


def archive(server: Server, members, packed=gzip.compress) -> BenchmarkSet:
    """A set whose files come in an archive of these members, which the server has."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    server.content = packed(file.getvalue())
    return replace(
        one_file(server),
        folders=("batches",),
        files=tuple(File(name, len(content)) for name, content in FILES.items()),
        downloads=(Download(f"{server.url}/toy.tar.gz", len(server.content), md5(server.content), unpacks_to="batches"),),
    )


def test_an_archive_is_unpacked_and_removed(tmp_path, server):
    which = archive(server, [*GOOD, member("batches/readme.html", b"notes", mode=0o6777)])
    assert download(which, tmp_path) == tmp_path / "batches"
    assert tree(tmp_path) == {f"batches/{name}": content for name, content in (FILES | {"readme.html": b"notes"}).items()}
    assert (tmp_path / "batches").stat().st_mode & 0o700 == 0o700
    assert not (tmp_path / "batches" / "readme.html").stat().st_mode & 0o7022  # nobody else writes to it or runs as its owner
    download(which, tmp_path)
    assert len(server.asked) == 1


def test_an_archive_mends_a_folder_and_keeps_what_else_is_in_it(tmp_path, server):
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "one.bin").write_bytes(b"cut")
    (tmp_path / "batches" / "mine.txt").write_bytes(b"notes")
    download(archive(server, GOOD), tmp_path)
    assert tree(tmp_path) == {f"batches/{name}": content for name, content in (FILES | {"mine.txt": b"notes"}).items()}


def pictures(server: Server, unpacked: int) -> BenchmarkSet:
    """A list, and a folder of pictures below folders, whose sizes nobody tells."""
    content = {"meta/train.txt": b"a/1\na/2\n", "images/a/1.jpg": b"one", "images/a/2.jpg": b"two" * 500_000}
    which = archive(server, [member(f"batches/{name}", data) for name, data in content.items()])
    files = (File("meta/train.txt"), File("images/"))
    return replace(which, files=files, downloads=(replace(which.downloads[0], unpacked=unpacked),), told_by_folder=True)


def test_an_archive_of_pictures(tmp_path, server):
    which = pictures(server, unpacked=2_000_000)
    assert download(which, tmp_path) == tmp_path / "batches"
    whole = tree(tmp_path)
    assert sorted(whole) == ["batches/images/a/1.jpg", "batches/images/a/2.jpg", "batches/meta/train.txt"]
    (tmp_path / "batches/images/a/1.jpg").unlink()
    (tmp_path / "batches/images/a/mine.jpg").write_bytes(b"mine")
    there = tmp_path / "batches" / "images" / "a" / "1.jpg"
    download(replace(which, check=lambda folder: {} if there.exists() else {"pictures": "missing"}), tmp_path)
    assert tree(tmp_path) == whole | {"batches/images/a/mine.jpg": b"mine"}


def test_an_archive_that_unpacks_to_too_much_or_lacks_a_folder(tmp_path, server):
    with refused(tmp_path, "it unpacks to more than 1,000,000 bytes; nothing was kept"):
        download(pictures(server, unpacked=1_000_000), tmp_path)
    which = pictures(server, unpacked=2_000_000)
    with refused(tmp_path, "it holds no batches/pictures/; nothing was kept"):
        download(replace(which, files=(File("pictures/"),)), tmp_path)


def test_a_check_that_fails_fetches_the_archive_again(tmp_path, server):
    which = archive(server, GOOD)
    download(which, tmp_path)
    (tmp_path / "batches" / "one.bin").write_bytes(FILES["one.bin"][::-1])
    right = replace(which, check=lambda folder: {} if (folder / "one.bin").read_bytes() == FILES["one.bin"] else {"rows": "odd"})
    download(right, tmp_path)
    assert (tmp_path / "batches" / "one.bin").read_bytes() == FILES["one.bin"]


def test_ctrl_c_while_unpacking_leaves_only_the_archive(tmp_path, server, monkeypatch):
    which = archive(server, GOOD)

    def stop(*anything, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extract", stop)
        with pytest.raises(KeyboardInterrupt):
            download(which, tmp_path)
    assert os.listdir(tmp_path) == ["toy.tar.gz.part"]
    download(which, tmp_path)
    assert len(server.asked) == 1
    assert sorted(tree(tmp_path)) == ["batches/one.bin", "batches/two.bin"]


@pytest.mark.parametrize("finished", [False, True])
def test_what_a_call_left_that_was_killed_while_unpacking_goes(tmp_path, server, finished):
    which = archive(server, GOOD)
    if finished:  # but for what it had fetched
        download(which, tmp_path)
        (tmp_path / "toy.tar.gz.part").write_bytes(server.content)
    left = tmp_path / f".part-{'0' * 32}"
    left.touch()
    (tmp_path / f"{left.name}.d" / "batches").mkdir(parents=True)
    (tmp_path / f"{left.name}.d" / "batches" / "one.bin").write_bytes(b"half")
    download(which, tmp_path)
    assert sorted(tree(tmp_path)) == ["batches/one.bin", "batches/two.bin"]
    assert os.listdir(tmp_path) == ["batches"]


def test_nothing_is_fetched_through_a_link(tmp_path, server):
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "toy.tar.gz.part").symlink_to(tmp_path / "mine")
    with refused(tmp_path, r"toy.tar.gz.part is a link, but must be a file", left=["mine", "toy.tar.gz.part"]):
        download(archive(server, GOOD), tmp_path)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def link(name, to, kind=tarfile.SYMTYPE):
    return member(name, type=kind, linkname=to)


HOSTILE = {
    "upwards": ([member("../evil", b"x")], "outside of its folder: ../evil"),
    "upwards within": ([member("batches/../../evil", b"x")], "outside of its folder"),
    "absolute": ([member("ROOT/evil", b"x")], "outside of its folder: /"),
    "a folder upwards": ([member("../evil", type=tarfile.DIRTYPE)], "outside of its folder"),
    "a link out, and through it": ([link("batches/out", "../.."), member("batches/out/evil", b"x")], "else than plain files: batches/out"),
    "an absolute link": ([link("batches/out", "/tmp")], "else than plain files"),
    "a link within": ([link("batches/three.bin", "one.bin")], "else than plain files"),
    "a hard link": ([link("batches/out", "../../../outside", tarfile.LNKTYPE)], "else than plain files"),
    "a device": ([member("batches/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "else than plain files"),
    "a pipe": ([member("batches/pipe", type=tarfile.FIFOTYPE)], "else than plain files"),
    "a file of holes": (
        [member("batches/holes", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**30)})],
        "else than plain files: batches/holes",
    ),
    "a bomb": ([member("batches/huge", bytes(3 * 2**20))], "unpacks to more than 1,049,676 bytes"),
    "a bomb in a header": ([member("batches/" + "x" * 3 * 2**20, b"")], "unpacks to more than"),
}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("members", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_leaves_nothing(tmp_path, server, members, message, there):
    data = tmp_path / "home" / "data"
    (data / "batches").mkdir(parents=True) if there else data.mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"secret")
    before = sorted(tmp_path.rglob("*"))
    members = [(info.replace(name=info.name.replace("ROOT", str(tmp_path)), deep=False), content) for info, content in members]
    with refused(tmp_path, f"{server.url}/toy.tar.gz is no archive to unpack: it .*{message}", left=["outside"]):
        download(archive(server, [*GOOD, *members]), data)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("second", [[], [member("batches/two.bin", b"short")], [member("two.bin", FILES["two.bin"])]])
def test_an_archive_of_something_else(tmp_path, server, second):
    with refused(tmp_path, "it holds no batches/two.bin of 600 bytes"):
        download(archive(server, [*GOOD[:2], *second]), tmp_path)


@pytest.mark.parametrize("packed", [bytes, lambda tar: gzip.compress(tar)[:-100], lambda tar: gzip.compress(b"no tar" * 1000)])
def test_what_is_no_archive(tmp_path, server, packed):
    with refused(tmp_path, "is no archive to unpack"):
        download(archive(server, GOOD, packed), tmp_path)
