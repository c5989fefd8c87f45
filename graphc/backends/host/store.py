"""Compiled code in a directory that only the user can write, since loading it runs it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path


class Store:
    """Bytes by key, a file each: `magic`, the length (8 bytes, little-endian), the SHA-256
    (32 bytes), the bytes. Safe to share between threads and processes.

    directory None keeps nothing; so does a directory that others could write.
    """

    def __init__(self, directory: Path | str | None, magic: bytes, suffix: str) -> None:
        self.directory = _private_directory(Path(directory)) if directory is not None else None
        self._magic, self._suffix = magic, suffix

    def read(self, key: bytes) -> bytes | None:
        """What is stored, or None if there is nothing or it is damaged (then it is replaced)."""
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body = data[len(self._header(b"")):]
        return body if data == self._header(body) + body else None

    def write(self, key: bytes, body: bytes) -> None:
        """Stores it: readers see all of it or nothing. A full disk is not an error."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(self._header(body) + body)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise

    def _path(self, key: bytes) -> Path | None:
        return self.directory / f"{key.hex()}{self._suffix}" if self.directory else None

    def _header(self, body: bytes) -> bytes:
        digest = hashlib.sha256(body).digest()
        return self._magic + len(body).to_bytes(8, "little") + digest


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
