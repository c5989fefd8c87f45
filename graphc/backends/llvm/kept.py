"""Linked programs in a directory that only the user can write: see backends.Keeper.

An entry is a line of JSON (what calls need to know, the kernels, a digest of the Program), the
constants' bytes, and the Image. Nothing in it is unpickled, and nothing of it is Python.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from graphc.backends.host.finding import KeptProgram
from graphc.backends.host.memory import HOST
from graphc.backends.host.store import Store, Stored, stored
from graphc.backends.llvm.build_stats import BuildStats, KernelStats
from graphc.backends.llvm.executable import Executable, outside
from graphc.backends.llvm.frame import Frame, Scratch
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.image import Image
from graphc.backends.llvm.library import Library, LLVMError
from graphc.backends.llvm.words import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from graphc import backends
    from graphc.backends.llvm.pool import Pool
    from graphc.ir.kernel import Program

MAGIC, SUFFIX = b"graphc program 2\n", ".program"
MOST_CONSTANTS = 64 << 20  # bytes


class Kept:
    """Programs for this machine."""

    def __init__(self, directory: Path | None, pool: Pool) -> None:
        self.store, self._pool = Store(directory, MAGIC, SUFFIX), pool

    def find(self, key: bytes, name: str, program: Callable[[], Program]) -> Executable | None:
        """See Keeper."""
        start = time.perf_counter()
        data = self.store.read(self._key(key))
        if data is None:
            return None
        frame, kernels, _, image = _decode(data)
        try:
            library = Library.of(image, outside(self._pool, frame.by_flag))
        except LLVMError:  # the process lacks a function that the other one had
            return None
        stats = BuildStats(kernels=kernels)
        made = Executable(
            frame._replace(name=name), library, self._pool, HOST, _checked(program, frame.told),
            stats,
        )
        stats.load = time.perf_counter() - start
        return made

    def keep(self, key: bytes, executable: backends.Executable) -> None:
        """See Keeper. Kept is what needs no Program to be called: how much memory is known, and no
        step is the host's."""
        if not isinstance(executable, Executable) or executable.library.image is None:
            return
        frame = executable.frame
        known = frame.scratch is not None and isinstance(frame.arena, int)
        small = sum(constant.nbytes for constant in frame.constants) <= MOST_CONSTANTS
        if known and small and not frame.routines:
            self.store.write(self._key(key), _encode(executable))

    def programs(self) -> Iterator[KeptProgram]:
        """See Keeper."""
        directory = self.store.directory
        for file in stored(directory) if directory is not None else ():
            if file.kind == SUFFIX:
                data = self.store.read(bytes.fromhex(file.path.stem), looking=True)
                if data is not None:
                    yield _told(data, file)

    @staticmethod
    def _key(key: bytes) -> bytes:
        return hashlib.sha256(b"program" + (identity() or b"") + key).digest()


def _encode(executable: Executable) -> bytes:
    frame, image = executable.frame, executable.library.image
    assert image is not None
    kernels = [[each.symbol, each.name, each.object_bytes] for each in executable.stats.kernels]
    constants = [each.nbytes for each in frame.constants]
    of = (identity() or b"").hex()
    plain = frame._replace(constants=(), early=sorted(frame.early))  # type: ignore[arg-type]
    head = json.dumps([plain, kernels, constants, of]).encode()
    parts = [len(head).to_bytes(8, "little"), head]
    parts += [each.tobytes() for each in frame.constants]
    return b"".join([*parts, image.encode()])


def _decode(data: bytes) -> tuple[Frame, list[KernelStats], str, Image]:
    """Of bytes whose digest is right: they are as this module has written them."""
    end = 8 + int.from_bytes(data[:8], "little")
    fields, kernels, constants, of = json.loads(data[8:end])
    frame = Frame(*fields)
    arrays: list[np.ndarray] = []
    for size in constants:
        arrays.append(np.frombuffer(data[end : end + size], np.uint8).copy())
        end += size
    frame = frame._replace(
        dims=tuple(frame.dims), scratch=tuple(Scratch(*each) for each in frame.scratch or ()),
        layout=Layout(*frame.layout), constants=tuple(arrays), early=frozenset(frame.early),
    )
    known = [KernelStats(symbol, name, size, True) for symbol, name, size in kernels]
    return frame, known, of, Image.decode(data[end:])


def _told(data: bytes, file: Stored) -> KeptProgram:
    try:
        frame, kernels, of, image = _decode(data)
    except (ValueError, TypeError):  # as another version of graphc has written it
        return KeptProgram(f"of another graphc: {file.path.stem[:12]}", (), file.used)
    size = sum(kernel.object_bytes for kernel in kernels)
    now = "it is what this machine and these sources compile"
    if of != (identity() or b"").hex():
        now = "stale: the machine, the compiler, NumPy, Python or graphc's sources are others now"
    names = ", ".join(kernel.name for kernel in kernels)
    lines = (
        f"{frame.inputs} inputs, {frame.outputs} outputs, {frame.arena} bytes of arena, "
        f"{sum(each.nbytes for each in frame.constants)} of constants, {image.size} of code and "
        "tables", f"kernels: {names}", now, file.path.name,
    )
    title = f"{frame.name}: {len(kernels)} kernels, {size / 1e3:.1f} kB, {file.path.stem[:12]}"
    return KeptProgram(title, lines, file.used)


def _checked(program: Callable[[], Program], told: str) -> Callable[[], Program]:
    """The Program, made anew, if it is the one that the code was made of."""

    def checked() -> Program:
        from graphc.backends.llvm.compile_program import told_of
        from graphc.backends.llvm.target import host_target

        found = program()
        if told_of(found, host_target()) != told:
            raise RuntimeError(
                f"the code that is kept of {found.name} is not what its graph compiles to now. "
                "Cure: python -m graphc cache clear"
            )
        return found

    return checked
