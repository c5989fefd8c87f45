"""Compiled objects kept by content: in memory, and in a directory that only the user can write."""

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from graphc.backends.host.store import Store
from graphc.backends.llvm.direct import llvm_version
from graphc.backends.llvm.jit import Passes, compile_object
from graphc.backends.llvm.target import Target, host_target
from graphc.ir import forks
from graphc.ir.late import late

if TYPE_CHECKING:
    from graphc.backends.llvm import apart
else:  # where code is for another machine
    apart = late("graphc.backends.llvm.apart")

MAGIC = b"graphc object 1\n"


def sources() -> list[Path]:
    """The code that decides what a kernel's text compiles to: this folder's, the host's numbers,
    and the IR's, of which it is made (sizes, types, Kernels, what passes find out of them)."""
    folder = Path(__file__).parent
    parts = folder.parents[1] / "ir", folder.parent / "host", folder
    found = [
        os.path.join(folder, name) for part in parts for folder, _, names in os.walk(part)
        for name in names if name.endswith(".py")
    ]
    return [Path(path) for path in sorted(found)]


@functools.cache
def source_digest() -> bytes:
    """A digest of `sources`. It is asked for before other threads begin: each of its hundreds of
    calls of the system gives the GIL away, for 5 ms where another thread computes."""
    digest = hashlib.sha256()
    package = len(str(Path(__file__).parents[2]))
    for path in map(str, sources()):
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        digest.update(path[package:].encode() + b"\0" + text + b"\0")
    return digest.digest()


class ObjectCache:
    """Compiles text once: a second request for the same text, target and options is a lookup.

    directory None keeps objects in memory only; so does a directory that others could write, since
    loading an object runs it. Safe to share between threads and processes.
    """

    def __init__(self, directory: Path | str | None = None) -> None:
        self._store = Store(directory, MAGIC, ".o")
        self._objects: dict[bytes, bytes] = {}
        self._begun: dict[bytes, _Begun] = {}
        self._inside = 0  # of `behind`
        self._unwritten: list[tuple[bytes, bytes]] = []
        self._lock = forks.lock()
        self.hits = 0
        self.misses = 0

    @property
    def directory(self) -> Path | None:
        """Where objects are kept, or None if only in memory."""
        return self._store.directory

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
        with self._alone(key):
            with self._lock:
                found = self._objects.get(key)
            if found is None:
                found = self._store.read(key)
            hit = found is not None
            if found is None:
                source = text if make is None else make()
                host = host_target()
                # an emulated unit is plain code, and so is what goes around the caches
                here = target._replace(matrix=host.matrix, around=host.around) == host
                make_object = compile_object if here else apart.compile_apart
                found = make_object(source, target, opt_level, passes, verify)
                self._write(key, found)
            with self._lock:
                self._objects[key] = found
                self.hits += hit
                self.misses += not hit
        return found

    def has(self, text: str, target: Target) -> bool:
        """Whether compile() of it, its other options left alone, reads rather than compiles."""
        key = cache_key(text, target, 1, "none")
        return key in self._objects or self._store.has(key)

    @contextlib.contextmanager
    def behind(self) -> Iterator[None]:
        """What is compiled meanwhile is written by a thread at the end of this, which nobody waits
        for but the end of the process: a new file takes the system up to half a millisecond."""
        with self._lock:
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                objects, self._unwritten = self._unwritten, []
            if objects:
                self._write_behind(objects)

    def _write_behind(self, objects: list[tuple[bytes, bytes]]) -> None:
        def work() -> None:
            for key, data in objects:
                self._store.write(key, data)

        try:
            threading.Thread(target=work, name="graphc objects").start()
        except RuntimeError:  # the process ends, or may have no more threads
            work()

    def _write(self, key: bytes, data: bytes) -> None:
        with self._lock:
            waits = self._inside > 0 and self.directory is not None
            if waits:
                self._unwritten.append((key, data))
        if not waits:
            self._store.write(key, data)

    @contextlib.contextmanager
    def _alone(self, key: bytes) -> Iterator[None]:
        """One thread compiles a text; others wait for what it makes."""
        mine = _Begun(threading.current_thread(), threading.Event())
        while True:
            with self._lock:
                first = self._begun.setdefault(key, mine)
            if first is mine:
                break
            if not first.over.wait(_LOOK) and not first.thread.is_alive():  # in a forked child
                with self._lock:
                    if self._begun.get(key) is first:
                        del self._begun[key]
        try:
            yield
        finally:
            with self._lock:
                del self._begun[key]
            mine.over.set()


class _Begun(NamedTuple):
    """A text that is being compiled."""

    thread: threading.Thread
    over: threading.Event


_LOOK = 0.1  # seconds after which it is asked whether the thread is still there


def cache_key(text: str, target: Target, opt_level: int, passes: Passes) -> bytes:
    """A digest of everything that the object's bytes depend on."""
    digest = hashlib.sha256(source_digest())
    for part in (llvm_version(), repr(tuple(target)), f"{opt_level} {passes}", text):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
