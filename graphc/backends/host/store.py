"""Compiled code in a directory that only the user can write, since loading it runs it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import mmap
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphc.ir.named import NamedTuple

MOST = 1 << 30  # bytes that a directory holds; then what was not used for longest goes
COUNT = 1 << 17  # files likewise
_PARTS = 256  # of a directory, by the first two digits of keys, which are digests: all alike
_EVERY = 64  # writes after which a part is looked at
_FORMER = 1024  # files of the former layout, without parts, that are removed at once
_FRESH = 3600.0  # seconds for which a use is not noted again
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z]+)|\.new-[0-9a-f]+")
_FOLDER = re.compile(r"[a-z]+|[0-9a-f]{2}")  # of a kind; of a part


class Store:
    """Bytes by key (32 bytes of a digest), a file each, `directory/kind/3f/3f...kind`: `magic`,
    the length (8 bytes, little-endian), the SHA-256 of key and bytes (32 bytes), the bytes. Safe to
    share between threads and processes.

    directory None keeps nothing; so does a directory that others could write.
    """

    def __init__(self, directory: Path | str | None, magic: bytes, suffix: str) -> None:
        self.directory = _private_directory(Path(directory)) if directory is not None else None
        self._magic, self._suffix = magic, suffix
        self._writes = 0

    def read(self, key: bytes, looking: bool = False) -> bytes | None:
        """What is stored, or None if there is nothing or it is damaged (then it is replaced).
        `looking`: that is no use."""
        path = self._path(key)
        if path is None:
            return None
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read()
        except OSError:
            return None
        body = data[len(self._header(key, b"")):]
        if data != self._header(key, body) + body:
            return None
        if not looking:
            _note_use(path)
        return body

    def mapped(self, key: bytes) -> memoryview | None:
        """What is stored, to be read in parts: whether those are undamaged, the reader asks."""
        path = self._path(key)
        if path is None:
            return None
        try:
            with open(path, "rb", buffering=0) as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):  # none; an empty one
            return None
        start = len(self._magic) + 40
        if data[:start - 32] != self._magic + max(len(data) - start, 0).to_bytes(8, "little"):
            return None
        _note_use(path)
        return data[start:]

    def has(self, key: bytes) -> bool:
        """Whether something is stored, be it damaged."""
        path = self._path(key)
        return path is not None and os.path.exists(path)

    def write(self, key: bytes, body: bytes) -> None:
        """Stores it: readers see all of it or nothing. A full disk is not an error."""
        path = self._path(key)
        if path is None:
            return
        data = self._header(key, body) + body
        with contextlib.suppress(OSError):
            try:
                _put(path, data)
            except FileNotFoundError:  # the first of its part, or somebody clears the directory
                _make_part(os.path.dirname(path))
                _put(path, data)
        if self._writes % _EVERY == 0 and self.directory is not None:
            make_room(self.directory, os.path.basename(os.path.dirname(path)))
        self._writes += 1

    def _path(self, key: bytes) -> str | None:
        if self.directory is None:
            return None
        name = f"{key.hex()}{self._suffix}"
        return os.path.join(self.directory, self._suffix[1:], name[:2], name)

    def _header(self, key: bytes, body: bytes) -> bytes:
        digest = hashlib.sha256(key + body).digest()
        return self._magic + len(body).to_bytes(8, "little") + digest


class Stored(NamedTuple):
    """A file of a Store. `kind`: its suffix; "" of one that somebody writes, or has left."""

    path: Path
    kind: str
    size: int
    used: float


def stored(directory: Path) -> list[Stored]:
    """What Stores have put there, of the former layout, too; other files are none of theirs."""
    found = _files(directory)
    for kind in _folders(directory):
        for part in _folders(kind):
            found += _files(part)
    return found


def remove(files: Iterable[Stored]) -> tuple[int, int]:
    """How many there were, and their bytes."""
    count = size = 0
    for each in files:
        with contextlib.suppress(OSError):
            each.path.unlink()
            count, size = count + 1, size + each.size
    return count, size


def clear(directory: Path) -> tuple[int, int]:
    """Remove all that Stores have put there: how many files, and their bytes."""
    removed = remove(stored(directory))
    for kind in _folders(directory):
        parts = _folders(kind)
        for folder in (*parts, kind) if parts else ():
            with contextlib.suppress(OSError):  # somebody writes there
                folder.rmdir()
    return removed


def make_room(directory: Path, part: str, most: int = MOST, count: int = COUNT) -> None:
    """Look at the part that has just grown, of all kinds: listing a whole directory may take
    seconds. Where it holds more than its share of `count` files, those not used for longest go;
    where it holds more than its share of `most` bytes, the whole directory is looked at: if that is
    more than `most`, too (as it is in time: some part then is), the same, wherever they are, down
    to three quarters. So does what a process has left that ended while it wrote."""
    left = time.time() - _FRESH
    former = itertools.islice(_scanned(directory), _FORMER)
    remove(each for each in former if each.used < left)
    files = [each for kind in _folders(directory) for each in _files(kind / part)]
    remove(each for each in files if not each.kind and each.used < left)
    if len(files) > count // _PARTS:
        remove(sorted(files, key=_use)[: len(files) - count // _PARTS * 3 // 4])
    if sum(each.size for each in files) <= most // _PARTS:
        return
    files = stored(directory)
    total = sum(each.size for each in files)
    if total <= most:
        return
    for each in sorted(files, key=_use):
        if total <= most * 3 // 4:
            break
        remove([each])
        total -= each.size


def _use(file: Stored) -> float:
    return file.used


def _make_part(folder: str) -> None:
    """A part, and its kind where this is the first."""
    with contextlib.suppress(FileExistsError):
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(folder), 0o700)
            os.mkdir(folder, 0o700)


def _put(path: str, data: bytes) -> None:
    """Writes a file; readers see all of it or nothing."""
    temporary = os.path.join(os.path.dirname(path), f".new-{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _folders(directory: Path) -> list[Path]:
    """Those that a Store may have made."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return [
            Path(entry.path) for entry in entries
            if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    return []


def _files(folder: Path) -> list[Stored]:
    return list(_scanned(folder))


def _scanned(folder: Path) -> Iterator[Stored]:
    """A Store's files, one after the other."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is not None:
                with contextlib.suppress(OSError):  # another process has removed it
                    status = entry.stat(follow_symlinks=False)
                    path = Path(entry.path)
                    yield Stored(path, match[1] or "", status.st_size, status.st_mtime)


def _note_use(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.stat(path).st_mtime < time.time() - _FRESH:
            os.utime(path)


def _private_directory(directory: Path) -> Path | None:
    """The directory, made with mode 0700 if absent; None unless only the user can write there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    owner = getattr(os, "getuid", lambda: status.st_uid)()
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return directory if status.st_uid == owner and not writable_by_others else None
