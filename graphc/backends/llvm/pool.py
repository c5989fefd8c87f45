"""The thread pool, itself LLVM IR (pool_text.py): `void @graphc_par(ptr fn, ptr arg, i64 chunks)`.

graphc_par calls fn(arg, chunk) for every chunk, on the calling thread and on the workers. Whoever
is free claims a chunk, so the caller waits only for chunks that a worker has begun, never for a
worker to wake up. Each thread claims those of a range of its own, one after the other, and then
those that are left of the others': neighbouring chunks are neighbours in memory, and two cores that
take turns along it get less than one that goes alone (a softmax of 16 MB: 1.9 ms, by ranges 1.2). A
region inside a region, or at the same time as another thread's, runs on its caller alone. Results
must not depend on who runs a chunk.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graphc.backends.host import cpus
from graphc.backends.host.store import Store
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.image import Image
from graphc.backends.llvm.library import Library

if TYPE_CHECKING:
    from graphc.backends.llvm.cache import ObjectCache

MAX_THREADS = 1024
MASK_BYTES = 128  # of a cpu_set_t

# Idle workers spin this often (0.6 ms on Zen 4) before they sleep: waking one takes 50 us or more.
SPINS = 20_000


def kept_pools(directory: Path | None) -> Store:
    """Where pools are kept linked."""
    return Store(directory, b"graphc pool 1\n", ".pool")


class Pool:
    """A thread pool: compiled when first asked for its address, started when first used.

    It survives fork: the child's first parallel region starts workers of its own.
    """

    def __init__(
        self, threads: int | None = None, cache: Callable[[], ObjectCache] | None = None,
        kept: Store | None = None,
    ) -> None:
        """`cache`: of compiled text, asked for when something is compiled. `kept`: where it is
        found linked, if an earlier process has left it there."""
        self._threads = _checked(cpus.available() if threads is None else threads)
        self._word = ctypes.c_int64(self._threads)
        self._cache, self._kept = cache, kept
        self._library: Library | None = None
        self._lock = threading.Lock()

    @property
    def threads(self) -> int:
        """How many threads run a region, its caller included."""
        return self._threads

    @property
    def threads_at(self) -> int:
        """The address of a word with that number."""
        return ctypes.addressof(self._word)

    def set_threads(self, threads: int) -> None:
        """Changes the number of threads; waits for a region under way to end."""
        with self._lock:
            self._threads = self._word.value = _checked(threads)
            if self._library is not None:
                _resize(self._library, threads)

    @property
    def address(self) -> int:
        """The address of graphc_par, to link kernels against."""
        return self._made().address("graphc_par")

    @property
    def built(self) -> bool:
        """Whether its code is there."""
        return self._library is not None

    def prepare(self) -> None:
        """Makes its code, which `address` else does."""
        self._made()

    def _made(self) -> Library:
        with self._lock:
            if self._library is None:
                self._library = self._linked()
                _resize(self._library, self._threads)
                _follow_forks()
                _built_pools.add(self)
                # The workers must be gone before their code is: at collection and at exit.
                weakref.finalize(self, _resize, self._library, 1)
            return self._library

    def _linked(self) -> Library:
        key = hashlib.sha256(b"pool" + (identity() or b"")).digest()
        found = self._kept.read(key) if self._kept is not None else None
        if found is not None:
            return Library.of(Image.decode(found))
        from graphc.backends.llvm.cache import ObjectCache
        from graphc.backends.llvm.pool_text import pool_text
        from graphc.backends.llvm.target import host_target

        target, cache = host_target(), (self._cache or ObjectCache)()
        library = Library([cache.compile(pool_text(target), target)])
        if self._kept is not None and library.image is not None:
            self._kept.write(key, library.image.encode())
        return library

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # whoever held it is not in this process
        if self._library is not None:
            ctypes.CFUNCTYPE(None)(self._library.address("graphc_pool_reset"))()


_built_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@functools.cache
def _follow_forks() -> None:
    """Registers the children's reset, once."""

    def reset() -> None:
        for pool in list(_built_pools):
            pool._after_fork()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


def _checked(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"threads must be between 1 and {MAX_THREADS}, got {threads}")
    return threads


def _resize(library: Library, threads: int) -> None:
    mine = cpus.allowed()
    allowed = (ctypes.c_uint8 * MASK_BYTES)()
    for cpu in mine:
        if cpu < 8 * MASK_BYTES:
            allowed[cpu // 8] |= 1 << cpu % 8
    # With less than a CPU for each thread, a worker that spins takes time from one that works.
    spins = SPINS if threads <= cpus.available() else 0
    i32 = ctypes.c_int32
    resize = ctypes.CFUNCTYPE(None, i32, i32, i32, ctypes.c_void_p)
    resize(library.address("graphc_pool_resize"))(threads, spins, len(mine), allowed)
