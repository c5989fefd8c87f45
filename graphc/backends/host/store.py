"""Compiled code in a directory that only the user can write, since loading it runs it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MOST = 1 << 30  # bytes that a directory holds; then what was not used for longest goes
_EVERY = 64  # writes after which it is looked at
_FRESH = 3600.0  # seconds for which a use is not noted again
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z]+)|\.new-[0-9a-f]+")


class Store:
    """Bytes by key, a file each: `magic`, the length (8 bytes, little-endian), the SHA-256
    (32 bytes), the bytes. Safe to share between threads and processes.

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
            data = path.read_bytes()
        except OSError:
            return None
        body = data[len(self._header(b"")):]
        if data != self._header(body) + body:
            return None
        if not looking:
            _note_use(path)
        return body

    def write(self, key: bytes, body: bytes) -> None:
        """Stores it: readers see all of it or nothing. A full disk is not an error."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            temporary = path.with_name(f".new-{os.urandom(8).hex()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(temporary, flags, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(self._header(body) + body)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
        if self._writes % _EVERY == 0:
            make_room(path.parent)
        self._writes += 1

    def _path(self, key: bytes) -> Path | None:
        return self.directory / f"{key.hex()}{self._suffix}" if self.directory else None

    def _header(self, body: bytes) -> bytes:
        digest = hashlib.sha256(body).digest()
        return self._magic + len(body).to_bytes(8, "little") + digest


class Stored(NamedTuple):
    """A file of a Store. `kind`: its suffix; "" of one that somebody writes, or has left."""

    path: Path
    kind: str
    size: int
    used: float


def stored(directory: Path) -> list[Stored]:
    """What Stores have put there; other files are none of theirs."""
    found: list[Stored] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            match = _NAME.fullmatch(entry.name)
            if match is not None:
                with contextlib.suppress(OSError):  # another process has removed it
                    status = entry.stat(follow_symlinks=False)
                    path = Path(entry.path)
                    found.append(Stored(path, match[1] or "", status.st_size, status.st_mtime))
    return found


def remove(files: Iterable[Stored]) -> tuple[int, int]:
    """How many there were, and their bytes."""
    count = size = 0
    for each in files:
        with contextlib.suppress(OSError):
            each.path.unlink()
            count, size = count + 1, size + each.size
    return count, size


def make_room(directory: Path, most: int = MOST) -> None:
    """Remove what was not used for longest where there is more than `most`: down to three quarters
    of it; and what a process has left that ended while it wrote."""
    files = stored(directory)
    left = time.time() - _FRESH
    remove(each for each in files if not each.kind and each.used < left)
    total = sum(each.size for each in files)
    if total <= most:
        return
    for each in sorted(files, key=lambda each: each.used):
        if total <= most * 3 // 4:
            break
        remove([each])
        total -= each.size


def _note_use(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_mtime < time.time() - _FRESH:
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
