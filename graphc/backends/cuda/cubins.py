"""Cubins kept by content, between calls and between processes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from graphc.backends.cuda import crew
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
        return self.compile_all(nvrtc, [text], architecture, 1, options)[0]

    def compile_all(
        self, nvrtc: Nvrtc, texts: Sequence[str], architecture: str, count: int,
        options: Options = LOOPS,
    ) -> list[Compiled]:
        """The same of several, by up to so many processes. Raises NvrtcError."""
        flags = options.flags(architecture)
        keys = [cubin_key(nvrtc.version, text, flags) for text in texts]
        found = {key: self.find(key) for key in keys}
        new = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
        made = _compiled(nvrtc, list(new.values()), architecture, count, options)
        for key, each in zip(new, made, strict=True):
            self._store.write(key, each.packed())
        with self._lock:
            self._known.update(zip(new, made, strict=True))
            self.hits += len(keys) - len(new)
            self.misses += len(new)
            return [found[key] or self._known[key] for key in keys]

    def find(self, key: bytes) -> Compiled | None:
        """What was compiled under a `cubin_key`, here or in another process."""
        with self._lock:
            found = self._known.get(key)
        if found is None:
            stored = self._store.read(key)
            found = Compiled.unpacked(stored) if stored is not None else None
        return found


def cubin_key(version: Version, text: str, flags: tuple[str, ...]) -> bytes:
    """A digest of everything that a cubin depends on."""
    digest = hashlib.sha256()
    for part in (dotted(version), *flags, text):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _compiled(
    nvrtc: Nvrtc, texts: Sequence[str], architecture: str, count: int, options: Options
) -> list[Compiled]:
    if min(count, len(texts)) > 1:
        try:
            return crew.compile_all(nvrtc.found, texts, architecture, count, options)
        except crew.NoWorker:
            pass
    return [nvrtc.compile(text, architecture, options) for text in texts]
