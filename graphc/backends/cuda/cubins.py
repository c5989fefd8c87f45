"""Cubins kept by content, between calls and between processes."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from graphc.backends.cuda.libraries import Version, dotted
from graphc.backends.cuda.nvrtc import LOOPS, Compiled, Nvrtc, Options
from graphc.backends.host.store import Store

MAGIC = b"graphc cubin 1\n"


class CubinCache:
    """Compiles a source once per architecture, options and version of NVRTC. Safe to share between
    threads and processes. directory None keeps cubins in memory only."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self._store = Store(directory, MAGIC, ".cubin")
        self._known: dict[bytes, Compiled] = {}
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def compile(
        self, nvrtc: Nvrtc, text: str, architecture: str, options: Options = LOOPS
    ) -> Compiled:
        """Nvrtc.compile, unless its result is known. Raises NvrtcError."""
        key = cubin_key(nvrtc.version, text, options.flags(architecture))
        found = self.find(key)
        hit = found is not None
        if found is None:
            found = nvrtc.compile(text, architecture, options)
            self._store.write(key, _closed(found))
        with self._lock:
            self._known[key] = found
            self.hits += hit
            self.misses += not hit
        return found

    def find(self, key: bytes) -> Compiled | None:
        """What was compiled under a `cubin_key`, here or in another process."""
        with self._lock:
            found = self._known.get(key)
        if found is None:
            stored = self._store.read(key)
            found = _opened(stored) if stored is not None else None
        return found


def cubin_key(version: Version, text: str, flags: tuple[str, ...]) -> bytes:
    """A digest of everything that a cubin depends on."""
    digest = hashlib.sha256()
    for part in (dotted(version), *flags, text):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _closed(compiled: Compiled) -> bytes:
    log = compiled.log.encode()
    return len(log).to_bytes(8, "little") + log + compiled.cubin


def _opened(data: bytes) -> Compiled:
    end = 8 + int.from_bytes(data[:8], "little")
    return Compiled(data[end:], data[8:end].decode())
