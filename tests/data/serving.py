"""A web server that may be rude, and sets to fetch from it, for the tests of downloads."""

import hashlib
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sprl.data import download as module
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
