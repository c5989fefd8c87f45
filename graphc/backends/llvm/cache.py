"""Compiled objects kept by content: in memory, and in a directory that only the user can write."""

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from graphc.backends.llvm.apart import compile_apart
from graphc.backends.llvm.binding import llvm_version
from graphc.backends.llvm.jit import Passes, compile_object
from graphc.backends.llvm.target import Target, host_target

# A file is this, the object's length (8 bytes, little-endian), its SHA-256 (32 bytes), the object.
MAGIC = b"graphc object 1\n"
_HEADER = len(MAGIC) + 8 + 32


def sources() -> list[Path]:
    """The code that decides what a kernel's text compiles to: this folder's, the host's numbers,
    and the IR's, of which it is made (sizes, types, Kernels, what passes find out of them)."""
    folder = Path(__file__).parent
    parts = folder.parents[1] / "ir", folder.parent / "host", folder
    return [path for part in parts for path in sorted(part.rglob("*.py"))]


@functools.cache
def source_digest() -> bytes:
    """A digest of `sources`."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sources():
        name = path.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class ObjectCache:
    """Compiles text once: a second request for the same text, target and options is a lookup.

    directory None keeps objects in memory only; so does a directory that others could write, since
    loading an object runs it. Safe to share between threads and processes.
    """

    def __init__(self, directory: Path | str | None = None) -> None:
        self._directory = _private_directory(Path(directory)) if directory is not None else None
        self._objects: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    @property
    def directory(self) -> Path | None:
        """Where objects are kept, or None if only in memory."""
        return self._directory

    def compile(
        self,
        text: str,
        target: Target,
        opt_level: int = 1,
        passes: Passes = "none",
        verify: bool = True,
        make: Callable[[], str] | None = None,
    ) -> bytes:
        """compile_object, unless its result is already known.

        With `make`, `text` is only a key: what make() alone depends on, called if it is not known.
        """
        key = cache_key(text, target, opt_level, passes)
        with self._lock:
            found = self._objects.get(key)
        if found is None:
            found = self._read(key)
        hit = found is not None
        if found is None:
            source = text if make is None else make()
            make_object = compile_object if target == host_target() else compile_apart
            found = make_object(source, target, opt_level, passes, verify)
            self._write(key, found)
        with self._lock:
            self._objects[key] = found
            self.hits += hit
            self.misses += not hit
        return found

    def _path(self, key: bytes) -> Path | None:
        return self._directory / f"{key.hex()}.o" if self._directory else None

    def _read(self, key: bytes) -> bytes | None:
        """The stored object, or None if there is none or it is damaged (then it is replaced)."""
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body = data[_HEADER:]
        return body if data[:_HEADER] == _header(body) else None

    def _write(self, key: bytes, body: bytes) -> None:
        """Stores an object: readers see all of it or nothing. A full disk is not an error."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_header(body) + body)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise


def cache_key(text: str, target: Target, opt_level: int, passes: Passes) -> bytes:
    """A digest of everything that the object's bytes depend on."""
    digest = hashlib.sha256(source_digest())
    for part in (llvm_version(), repr(tuple(target)), f"{opt_level} {passes}", text):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _header(body: bytes) -> bytes:
    return MAGIC + len(body).to_bytes(8, "little") + hashlib.sha256(body).digest()


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
