"""An Image in this process's memory, ready to run."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphc.backends.llvm.image import Image


class Mapped:
    """The image, mapped; addresses stay valid as long as this lives.

    No page is ever writable and executable. Names are looked up in `symbols`, then among the
    process's own (libc, libm, CPython). Raises KeyError for those that are missing.
    """

    def __init__(self, image: Image, symbols: Mapping[str, int]) -> None:
        addresses = {name: symbols.get(name) or of_process(name) or 0 for name in image.imports}
        lacking = sorted(name for name, address in addresses.items() if not address)
        if lacking:
            raise KeyError(", ".join(lacking))
        memory = mmap.mmap(-1, image.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(image.data)
        self._memory = np.frombuffer(memory, np.uint8)  # unmapped with its last view
        self._start = start = int(self._memory.ctypes.data)
        words = self._memory.view(np.uint64)
        for name, places in image.imports.items():
            for place in places:
                words[place // 8] = addresses[name]
        words[np.array(image.moved, np.int64) // 8] += np.uint64(start)
        _protect(start, image.read_only, mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(start + image.read_only, image.writable - image.read_only, mmap.PROT_READ)
        self._memory.flags.writeable = False  # not by NumPy: most of its pages are not
        self._places = image.exports

    def address(self, name: str) -> int:
        """The address of a function or global of the image. Raises KeyError."""
        return self._start + self._places[name]


@functools.cache
def _process() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def of_process(name: str) -> int | None:
    """Where a function of this process lies; None where there is none."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        return None


def missing(names: Iterable[str]) -> list[str]:
    """Those that the process does not have."""
    return [name for name in names if of_process(name) is None]


def _protect(start: int, size: int, protection: int) -> None:
    if not size:
        return
    protect = _process().mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    if protect(start, size, protection):
        number = ctypes.get_errno()
        raise OSError(number, "the system refuses to make generated code executable")
