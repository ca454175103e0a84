"""Files of a benchmark set from the web: resumed where they were cut, compared with their checksums, unpacked with care."""

from __future__ import annotations

import gzip
import os
import tarfile
import time
import zlib
from http.client import HTTPException, HTTPResponse
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from urllib import request
from urllib.error import HTTPError, URLError

from sprl import atomic
from sprl.data import Progress, quiet, sets
from sprl.data.sets import BenchmarkSet, Download
from sprl.errors import InputError, printable

TRIES = 4
PAUSE = 1.0  # seconds before the second try; each further one waits twice as long
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 2**16
NOTES = 2**20  # bytes that an archive may hold beside the set's files: headers, a read-me


class Cut(Exception):
    """The connection failed or ended early: another try may do better."""


class Unexpected(Exception):
    """Not the file that was published: nothing of it is kept."""


def download(which: BenchmarkSet, folder: Path, progress: Progress = quiet) -> Path:
    """Fetch what the data folder lacks of the set, and say where the set is. A call that was cut short is taken up by the next."""
    if not which.downloads:
        files = ", ".join(file.name for file in which.files)
        raise InputError(f"{which.name} cannot be downloaded: put {files} in {folder / which.folders[0]}. {which.origin}")
    target = sets.find(which, str(folder)) or folder / which.folders[0]
    for place in (target, target.parent):
        atomic.clear(place)  # what a killed call had unpacked there
    try:
        for source in which.downloads:
            if source.unpacks_to:
                if not sets.check(which, str(folder)).complete:
                    unpack(fetch(source, folder, progress), source, which, target)
                part_of(source, folder).unlink(missing_ok=True)
            elif not is_right(which, source.name, target):
                fetch(source, target, progress).replace(target / source.name)
    except OSError as error:  # those of the network are told where they happen
        raise InputError(f"cannot store {which.name} in {target}: {error.strerror or error}") from error
    return target


def is_right(which: BenchmarkSet, name: str, folder: Path) -> bool:
    """Whether the file or one of its copies is there, as it was published."""
    found = next(file for file in which.files if file.name == name).find(folder)
    return found is not None and not found.fault(folder, thorough=True)


def fetch(source: Download, folder: Path, progress: Progress) -> Path:
    """The file under a provisional name, complete and compared with its checksum."""
    if not source.url.startswith(("https://", "http://")):
        raise InputError(f"cannot fetch {source.url}: only http and https addresses are fetched")
    folder.mkdir(parents=True, exist_ok=True)
    part = part_of(source, folder)
    atomic.check_kind(part)
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            receive(source, part, progress)
            found = sets.md5(part)
            if found != source.md5:
                raise Unexpected(f"expected the md5 {source.md5}, got {found}")
            return part
        except Cut as cut:
            reason = str(cut)
        except Unexpected as error:
            part.unlink(missing_ok=True)
            raise InputError(f"{source.url} is not what it should be: {error}; nothing was kept") from None
    raise InputError(f"cannot fetch {source.url}: {reason} ({TRIES} tries); the same command goes on from where it stopped")


def part_of(source: Download, folder: Path) -> Path:
    """What has arrived of the file: unlike other parts it has a name that the next call finds again."""
    return folder / f"{source.name}.part"


def receive(source: Download, part: Path, progress: Progress) -> None:
    """Append what is missing of the file. Never more than it should have."""
    have = part.stat().st_size if part.exists() else 0
    if have == source.size:
        return
    with connect(source, part, have) as response:
        if have and response.status != 206:  # the server sends all of it, whatever was asked for
            have = 0
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and have + int(length) != source.size:
            raise Unexpected(f"expected {source.size:,} bytes, got {have + int(length):,}")
        with part.open("ab" if have else "wb") as file:
            while chunk := take(response):
                have += len(chunk)
                if have > source.size:
                    raise Unexpected(f"expected {source.size:,} bytes, got more")
                file.write(chunk)
                progress(source.name, have, source.size)
    if have < source.size:
        raise Cut(f"the connection ended after {have:,} of {source.size:,} bytes")


def connect(source: Download, part: Path, have: int) -> HTTPResponse:
    headers = {"User-Agent": "sprl", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    # Handlers by name: those that come by default would follow a redirection to ftp.
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPRedirectHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    try:
        response: HTTPResponse = opener.open(request.Request(source.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # what is here goes beyond the server's file
            part.unlink(missing_ok=True)
        reason = f"HTTP {error.code} {printable(str(error.reason))}"
        if error.code < 500 and error.code not in (408, 416, 429):
            raise InputError(f"cannot fetch {source.url}: {reason}") from error
        raise Cut(reason) from error
    except (OSError, HTTPException) as error:
        raise Cut(told(error)) from error
    if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        response.close()
        part.unlink(missing_ok=True)
        raise Cut("the server sent another part than was asked for")
    return response


def take(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise Cut(told(error)) from error


def told(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    return printable(str(getattr(reason, "strerror", None) or reason)) or type(reason).__name__


class Bounded(BufferedIOBase):
    """A stream that is refused once it has given too much."""

    def __init__(self, stream: BufferedIOBase, most: int) -> None:
        self.stream, self.most, self.left = stream, most, most

    def read(self, size: int | None = -1) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise tarfile.TarError(f"it unpacks to more than {self.most:,} bytes")
        return data


def unpack(archive: Path, source: Download, which: BenchmarkSet, target: Path) -> None:
    """The archive's files into `target`: all of them or, if any is not as it should be, none. A refused archive is removed."""
    if not hasattr(tarfile, "data_filter"):
        raise InputError(f"unpacking {source.name} safely needs Python 3.11.4 or later")
    beside = target if target.exists() else target.parent  # on the same disk
    with atomic.folder(beside) as aside:
        try:
            extract(archive, aside, source.unpacked or sum(file.size or 0 for file in which.files) + NOTES)
            found = aside / source.unpacks_to
            for file in which.files:
                if not file.is_in(found) or file.fault(found, thorough=True):
                    size = "" if file.size is None else f" of {file.size:,} bytes"
                    raise tarfile.TarError(f"it holds no {source.unpacks_to}/{file.name}{size}")
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            archive.unlink()
            raise InputError(f"{source.url} is no archive to unpack: {printable(str(error))[:200]}; nothing was kept") from error
        if not target.exists():
            found.rename(target)
        else:  # beside what else a user keeps there
            for path in [path for path in found.rglob("*") if path.is_file()]:
                place = target / path.relative_to(found)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)


def extract(archive: Path, folder: Path, most: int) -> None:
    """Plain files only, by plain names; of a stream, so that nothing has to be unpacked to be counted."""
    with gzip.open(archive) as stream, tarfile.open(fileobj=Bounded(stream, most), mode="r|") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise tarfile.TarError(f"it names a file outside of its folder: {member.name}")
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise tarfile.TarError(f"it holds something else than plain files: {member.name}")
            tar.extract(member, folder, filter="data")
