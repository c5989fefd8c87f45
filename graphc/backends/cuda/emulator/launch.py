"""Launching an emulated kernel on arrays or packed arguments; reports become exceptions."""

from __future__ import annotations

import ctypes
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphc.backends.cuda.driver import Dim3, check_grid, pack
from graphc.backends.cuda.emulator.schedule import Schedule, ScheduleWords
from graphc.backends.cuda.source import SHARED_MOST

Array: TypeAlias = np.ndarray[Any, Any]
# An array is copied to memory with guards around it, and back; an int is an i64, a float an f32.
Argument: TypeAlias = Array | int | float


class Fault(IntEnum):
    """The kinds of faults: as state.h has them."""

    LAUNCH = 1  # what has no meaning: a race, a shuffle from nowhere, a division by zero
    ADDRESS = 2
    ALIGNMENT = 3
    HANG = 4


class EmulatedError(RuntimeError):
    """What a GPU would not do as meant. Its fields say where; `place` is a line of a source."""

    def __init__(
        self, fault: Fault, kernel: str, block: tuple[int, ...], thread: tuple[int, ...],
        place: str, text: str,
    ) -> None:
        super().__init__(f"{kernel}, block {block}, thread {thread}, {place}: {text}")
        self.fault, self.kernel, self.place, self.text = fault, kernel, place, text
        self.block, self.thread = block, thread


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a watched launch's shared memory: accesses of threads, phases of warps, the wavefronts
    that those took (as many, where there is no bank conflict), the most of one, and its line."""

    accesses: int
    phases: int
    wavefronts: int
    worst: int
    worst_place: str


class _Report(ctypes.Structure):
    _fields_ = [
        ("failed", ctypes.c_int),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("place", ctypes.c_ulonglong),
        ("other_place", ctypes.c_ulonglong),
        ("text", ctypes.c_char * 480),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in ("accesses", "phases", "wavefronts", "worst", "worst_place", "switches")
    ]


class Runtime:
    """The C++ side, and its memory. It runs one launch at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._lock = threading.Lock()
        self._allocate = library.emulated_allocate
        self._allocate.argtypes, self._allocate.restype = [ctypes.c_ulonglong], ctypes.c_void_p
        self._free = library.emulated_free
        self._free.argtypes = [ctypes.c_void_p]
        library.emulated_add_image.argtypes = [ctypes.c_void_p]
        library.emulated_add_image.restype = ctypes.c_ulonglong

    def allocate(self, size: int) -> int:
        """An address, aligned to 4096 bytes. Raises MemoryError."""
        with self._lock:
            address: int | None = self._allocate(size)
        if address is None:
            raise MemoryError(f"no {size} bytes left for the emulator")
        return address

    def free(self, address: int) -> None:
        """Raises ValueError where no buffer begins there."""
        with self._lock:
            refused = self._free(address)
        if refused:
            raise ValueError(f"no buffer begins at {address:#x}")

    def launch(
        self, entry: int, packed: bytes, grid: Sequence[int], block: Sequence[int], shared: int,
        static: Any, schedule: ScheduleWords,
    ) -> tuple[_Report, _Counts]:
        """One launch, by the address of its entry."""
        report, counts = _Report(), _Counts()
        with self._lock:
            self.library.emulated_launch(
                ctypes.c_void_p(entry), packed, (ctypes.c_uint * 3)(*grid),
                (ctypes.c_uint * 3)(*block), ctypes.c_uint(shared), static,
                ctypes.byref(schedule), ctypes.byref(report), ctypes.byref(counts),
            )
        return report, counts


class Library:
    """Compiled kernels. `kernels`: the source of each, by its name. Raises OSError for a file that
    is none."""

    def __init__(self, path: Path, runtime: Runtime) -> None:
        self.path, self.runtime = path, runtime
        self._library = ctypes.CDLL(str(path))
        self._library.contents.restype = ctypes.c_char_p
        contents: dict[str, list[str]] = json.loads(self._library.contents())
        self.kernels = {kernel: name for name, found in contents.items() for kernel in found}
        inside = ctypes.cast(self._library.range_0, ctypes.c_void_p)
        self._base: int = runtime.library.emulated_add_image(inside)
        self._static = {name: self._range(f"range_{n}") for n, name in enumerate(contents)}

    def _range(self, name: str) -> Any:
        found = (ctypes.c_void_p * 2)()
        getattr(self._library, name)(found)
        return found

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int],
        arguments: Sequence[Argument], shared: int = 0, schedule: Schedule | None = None,
    ) -> Counts:
        """Run a kernel; arrays are written in place, also where EmulatedError is raised.
        `grid`, `block`: one to three sizes; `shared`: bytes of dynamic shared memory."""
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        with _placed(self.runtime, arrays) as addresses:
            values = [_value(argument, addresses) for argument in arguments]
            kinds = "".join(_kind(argument) for argument in arguments)
            packed = pack(kinds, values)
            return self.run(kernel, grid, block, packed, shared, schedule or Schedule())

    def run(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], packed: bytes, shared: int,
        schedule: Schedule,
    ) -> Counts:
        """The same on the emulator's own addresses. Raises ValueError for what no device runs."""
        check_grid(_three(grid), _three(block))
        if not 0 <= shared <= SHARED_MOST:
            raise ValueError(f"{shared} bytes of shared memory: a block has {SHARED_MOST} at most")
        entry = ctypes.cast(getattr(self._library, f"entry_{kernel}"), ctypes.c_void_p).value or 0
        static = self._static[self.kernels[kernel]]
        report, counts = self.runtime.launch(
            entry, packed, _three(grid), _three(block), shared, static, schedule.words()
        )
        if report.failed:
            place, other = self.line(report.place), self.line(report.other_place)
            text = report.text.decode() + (f" ({other})" if other else "")
            block, thread = tuple(report.block), tuple(report.thread)
            raise EmulatedError(Fault(report.failed), kernel, block, thread, place, text)
        return Counts(
            counts.accesses, counts.phases, counts.wavefronts, counts.worst,
            self.line(counts.worst_place),
        )

    def line(self, address: int) -> str:
        """source:line of an address in this library's code; "" for none."""
        offset = address - self._base
        if not address or not 0 < offset < 1 << 40:
            return ""
        command = ["addr2line", "-i", "-e", str(self.path), hex(offset - 1)]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return f"byte {offset} of {self.path.name}"
        places = [Path(line.split(" (")[0]).name for line in found.split("\n") if line]
        return next((p for p in places if p.rpartition(":")[0] in self._static), places[0])


@contextmanager
def _placed(runtime: Runtime, arrays: Sequence[Array]) -> Iterator[dict[int, int]]:
    """Copies in memory of the emulator's: address there by address here. Arrays that overlap do so
    there, too; each of the others has guards around it."""
    spans: list[list[int]] = []
    for start, end in sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays):
        if spans and start < spans[-1][1]:
            spans[-1][1] = max(end, spans[-1][1])
        else:
            spans.append([start, end])
    placed = [(runtime.allocate(end - start), start, end - start) for start, end in spans]
    for address, start, size in placed:
        ctypes.memmove(address, start, size)
    try:
        yield {
            a.ctypes.data: next(
                address + a.ctypes.data - start
                for address, start, size in placed
                if start <= a.ctypes.data <= start + size - a.nbytes
            )
            for a in arrays
        }
    finally:
        for address, start, size in placed:
            ctypes.memmove(start, address, size)
            runtime.free(address)


def _kind(argument: Argument) -> str:
    """struct's letter."""
    if isinstance(argument, np.ndarray):
        return "P"
    return "q" if isinstance(argument, int) else "f"


def _value(argument: Argument, addresses: Mapping[int, int]) -> int | float:
    return addresses[argument.ctypes.data] if isinstance(argument, np.ndarray) else argument


def _three(sizes: Sequence[int]) -> Dim3:
    x, y, z = (*sizes, *(1,) * (3 - len(sizes)))
    return x, y, z
