"""Downloads from a server that may be rude: whole and right, or refused with nothing left behind."""

import socket
from dataclasses import replace

import pytest
from serving import CONTENT, Server, md5, no_waiting, one_file, refused, server, tree

from sprl.data import download as module
from sprl.data.download import download

__all__ = ["no_waiting", "server"]  # fixtures


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
