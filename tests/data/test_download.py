"""Downloads from a server that may be rude: whole and right, or refused with nothing left behind."""

import gzip
import hashlib
import io
import os
import re
import socket
import tarfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sprl.data import download as module
from sprl.data.download import download
from sprl.data.sets import BenchmarkSet, Download, File
from sprl.errors import InputError

CONTENT = bytes(i * i % 251 for i in range(200_000))


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Server:
    """What is served, how, and what was asked for."""

    url: str = ""
    content: bytes = CONTENT
    cuts: list[int] = field(default_factory=list)  # bytes after which each of the next connections ends
    ranges: bool = True
    length: bool = True
    status: list[int] = field(default_factory=list)  # of the next answers, other than success
    shift: int = 0  # of a part, by mistake
    location: str = ""  # where one is sent instead
    asked: list[str | None] = field(default_factory=list)  # the Range of each request


@pytest.fixture
def server():
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers["Range"]
            server.asked.append(wanted)
            if server.status:
                self.send_error(server.status.pop(0))
                return
            if server.location:
                self.send_response(302)
                self.send_header("Location", server.location)
                self.end_headers()
                return
            first = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else 0
            if first and first >= len(server.content):
                self.send_error(416)
                return
            body = server.content[first:]
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first + server.shift}-{len(server.content) - 1}/{len(server.content)}")
            if server.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # of a client that has seen enough
                self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

        def log_message(self, *anything):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        yield server
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0)
    monkeypatch.setenv("no_proxy", "*")


def one_file(server: Server, content: bytes = CONTENT) -> BenchmarkSet:
    """A set of one file, at the server's address."""
    return BenchmarkSet(
        name="toy",
        description="",
        licence="",
        folders=("toy",),
        files=(File("rows.bin", len(content), md5(content), (File("rows.txt", 4, md5(b"rows")),)),),
        downloads=(Download(f"{server.url}/rows.bin", len(content), md5(content)),),
        load=lambda folder, how: pytest.fail("not to be loaded"),
    )


def tree(folder) -> dict[str, bytes | None]:
    """All that is below, links too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*") if not path.is_dir()}


@contextmanager
def refused(folder, message, left=()):
    """One line, and nothing but `left` in the folder."""
    with pytest.raises(InputError, match=message) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert sorted(tree(folder)) == sorted(left)


@pytest.mark.parametrize("length", [True, False])
def test_a_file_arrives(tmp_path, server, length):
    server.length = length
    told = []
    assert download(one_file(server), tmp_path, lambda *news: told.append(news)) == tmp_path / "toy"
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}
    assert server.asked == [None]
    assert told[-1] == ("rows.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})


def test_what_is_there_and_right_is_not_fetched_again(tmp_path, server):
    for _ in range(2):
        download(one_file(server), tmp_path)
    assert len(server.asked) == 1
    (tmp_path / "toy" / "rows.bin").write_bytes(CONTENT[::-1])  # as long, but not it
    download(one_file(server), tmp_path)
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}
    assert len(server.asked) == 2


def test_a_copy_under_another_name_will_do(tmp_path, server):
    (tmp_path / "rows.txt").write_bytes(b"rows")
    assert download(one_file(server), tmp_path) == tmp_path
    assert not server.asked
    (tmp_path / "rows.txt").write_bytes(b"ROWS")
    download(one_file(server), tmp_path)
    assert (tmp_path / "rows.bin").read_bytes() == CONTENT  # beside it


def test_another_checksum_is_refused(tmp_path, server):
    server.content = CONTENT[::-1]
    with refused(tmp_path, f"{server.url}/rows.bin is not .* expected the md5 {md5(CONTENT)}, got {md5(CONTENT[::-1])}"):
        download(one_file(server), tmp_path)


@pytest.mark.parametrize("length", [True, False])
def test_a_cut_connection_is_taken_up(tmp_path, server, length):
    server.cuts, server.length = [150_000, 0, 20_000], length
    download(one_file(server), tmp_path)
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}
    assert server.asked == [None, "bytes=150000-", "bytes=150000-", "bytes=170000-"]


def test_a_connection_that_is_always_cut(tmp_path, server, monkeypatch):
    pauses = []
    monkeypatch.setattr(module, "PAUSE", 1)
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    server.cuts = [100_000, 0, 0, 0]
    with refused(tmp_path, r"ended after 100,000 of 200,000 bytes \(4 tries\); the same command goes on", left=["toy/rows.bin.part"]):
        download(one_file(server), tmp_path)
    assert len(server.asked) == module.TRIES
    assert pauses == [1, 2, 4]
    download(one_file(server), tmp_path)
    assert server.asked[-1] == "bytes=100000-"
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}


def test_a_busy_server_without_ranges_starts_anew(tmp_path, server):
    server.status, server.cuts, server.ranges = [429], [150_000, 60_000], False
    download(one_file(server), tmp_path)
    assert server.asked == [None, None, "bytes=150000-", "bytes=60000-"]
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}


def test_a_part_that_was_not_asked_for(tmp_path, server):
    server.cuts, server.shift = [150_000], 7
    download(one_file(server), tmp_path)
    assert server.asked == [None, "bytes=150000-", None]
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 1, 10])
def test_what_an_earlier_call_left_is_judged_too(tmp_path, server, size):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "rows.bin.part").write_bytes(bytes(size))
    if size > len(CONTENT):
        download(one_file(server), tmp_path)
    else:
        with refused(tmp_path, "expected the md5"):
            download(one_file(server), tmp_path)
    download(one_file(server), tmp_path)
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}


def test_ctrl_c_leaves_what_the_next_call_takes_up(tmp_path, server):
    def stop(name, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(one_file(server), tmp_path, stop)
    assert list(tree(tmp_path)) == ["toy/rows.bin.part"]
    download(one_file(server), tmp_path)
    assert server.asked == [None, f"bytes={module.CHUNK}-"]
    assert tree(tmp_path) == {"toy/rows.bin": CONTENT}


@pytest.mark.parametrize(
    ("size", "length", "message"),
    [
        (10_000_000, True, "expected 200,000 bytes, got 10,000,000"),
        (10_000_000, False, "expected 200,000 bytes, got more"),
        (1_000, True, "expected 200,000 bytes, got 1,000"),
        (1_000, False, "HTTP 416 "),  # the server has nothing behind the first 1,000
    ],
)
def test_another_size_is_refused_before_it_fills_the_disk(tmp_path, server, size, length, message):
    server.content, server.length = bytes(size), length
    written = [0]
    with refused(tmp_path, message):
        download(one_file(server), tmp_path, lambda name, done, total: written.append(done))
    assert max(written) <= len(CONTENT)


@pytest.mark.parametrize(("status", "asked"), [([404], 1), ([403], 1), ([503] * 4, 4)])
def test_refusals_of_the_server(tmp_path, server, status, asked):
    code, server.status = status[0], status
    with refused(tmp_path, f"cannot fetch {server.url}/rows.bin: HTTP {code} "):
        download(one_file(server), tmp_path)
    assert len(server.asked) == asked


@pytest.mark.parametrize("place", ["file:///etc", "ftp://127.0.0.1", "data:,"])
def test_addresses_that_are_not_of_the_web(tmp_path, place):
    with refused(tmp_path, f"cannot fetch {place}/rows.bin: only http and https addresses are fetched"):
        download(one_file(Server(place)), tmp_path)


def test_an_unknown_host(tmp_path, monkeypatch):
    def unknown(*anything, **more):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with refused(tmp_path, r"cannot fetch http://host.invalid/rows.bin: Name or service not known \(4 tries\)"):
        download(one_file(Server("http://host.invalid")), tmp_path)


def test_a_refused_connection_and_one_that_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with refused(tmp_path, f"cannot fetch {url}/rows.bin: timed out"):
            download(one_file(Server(url)), tmp_path)
    with refused(tmp_path, f"cannot fetch {url}/rows.bin: Connection refused"):
        download(one_file(Server(url)), tmp_path)


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_no_redirection_leaves_the_web(tmp_path, server, place):
    server.location = place
    with refused(tmp_path, "unknown url type: ftp|not allowed"):
        download(one_file(server), tmp_path)


def test_a_set_that_nobody_serves_and_a_folder_that_cannot_be_made(tmp_path, server):
    with refused(tmp_path, "toy cannot be downloaded: put rows.bin in .*/toy. Ask its authors$"):
        download(replace(one_file(server), downloads=(), origin="Ask its authors"), tmp_path)
    (tmp_path / "taken").write_bytes(b"")
    with refused(tmp_path, "cannot store toy in .*taken", left=["taken"]):
        download(one_file(server), tmp_path / "taken")


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
