"""The memory under tensors: one Storage for all the tensors that share it."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

from graphc.ir.dim import Size as DimSize
from graphc.ir.memory import Buffer, DeviceArray, as_strided
from graphc.ir.types import Shape

from .context import local
from .device import Placing
from .shared_segment import SharedMemory

LOOSE, THERE = 1, 2  # bits of Storage.away
_NO_SIBLINGS: tuple[int, tuple[weakref.ref[Storage], ...]] = (0, ())


class Storage:
    """Memory of a concrete tensor and the number of in-place writes to it.

    `array` is the array that the memory was first seen as; views of it are made by tensors.
    `root` is the Storage that stands for the memory: `.data` makes a sibling with a version of
    its own, as torch does. `exposed`: NumPy code may have an array on it.
    `inference`: made in inference mode; views of it, and what shares it, are inference tensors.
    `away`: 0 on the CPU; LOOSE on the CPU, and yet to be taken to any device (placement.py); THERE
    on another device.
    `segment`: of a root, the memory shared between processes that it is in.
    `asked`: of a root, up to which of the readers all have said that they read nothing of it; all
    that there may ever be, where none was told that it is read.
    `siblings`: of a root, how many it has had, and those there may be.
    """

    __slots__ = (
        "__weakref__", "_root", "array", "asked", "away", "exposed", "inference", "segment",
        "siblings", "version",
    )

    def __init__(self, array: Buffer, root: Storage | None = None) -> None:
        self.array: np.ndarray = array
        self.version = 0
        self.exposed = False
        self._root = root
        self.inference = local.inference
        self.away = THERE if type(array) is DeviceArray else 0
        self.segment: SharedMemory | None = None
        self.siblings = _NO_SIBLINGS
        self.asked = _EVERY

    @property
    def root(self) -> Storage:
        """The Storage by which aliasing is decided."""
        return self if self._root is None else self._root

    @property
    def is_read(self) -> bool:
        """Whether a compiled backward may read the memory, or may have."""
        return self.root.asked != _EVERY

    def sibling(self) -> Storage:
        """The same memory with a version counter of its own."""
        root = self if self._root is None else self._root
        found = Storage(self.array, root)
        found.inference = self.inference
        made, living = root.siblings
        living = (*[each for each in living if each() is not None], weakref.ref(found))
        root.siblings = made + 1, living
        Shared.changes += 1
        return found

    def before_write(self, tracked: bool = True) -> None:
        """Let compiled backwards keep the values that they will read. `tracked`: autograd is to
        see the write, by this storage's version."""
        root = self.root
        if root.asked == _EVERY:
            return
        entries = list(readers.values())
        first = len(entries)
        while first and entries[first - 1][0] > root.asked:
            first -= 1
        concerned = False
        for number, reference in entries[first:]:
            reader = reference()
            if reader is not None and reader.keep(self, tracked):
                concerned = True
            if not concerned:
                root.asked = number

    def expose(self) -> None:
        """NumPy's code gets an array on the memory."""
        root = self.root
        if not root.exposed:
            root.exposed = True
            Shared.changes += 1

    def flat(self, dtype: np.dtype | None = None) -> np.ndarray:
        """The memory's elements from the lowest to the highest address, 1-d, sharing it.

        `dtype`: as elements of this dtype (complex numbers over the memory of their parts).
        """
        if dtype is not None and dtype != self.array.dtype:
            own = self.flat()
            return own[: own.nbytes // dtype.itemsize * dtype.itemsize // own.itemsize].view(dtype)
        array = self.array
        if array.flags.c_contiguous:
            return array.reshape(-1)
        if array.size == 0:
            return array.reshape(-1)
        span = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
        count = span // array.itemsize + 1
        flat: np.ndarray = as_strided(array, (count,), (array.itemsize,))
        return flat

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        if self._root is not None:
            root = memo.get(id(self._root))
            if root is None:
                root = self._root.__deepcopy__(memo)
            copy: Storage = root.sibling()
        else:
            copy = Storage(self.flat().copy())
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        if self._root is not None:
            return (Storage.sibling, (self._root,))
        flat = self.flat()
        if isinstance(flat, DeviceArray):
            return (_on_device, (flat.memory.place, flat.memory.read(flat).copy()))
        return (Storage, (flat.copy(),))


def _on_device(place: str, array: np.ndarray) -> Storage:
    """A storage of these elements on a device (what pickle calls)."""
    return Storage(Placing.find(place).put(array))


class Shared:
    """Changes in this process to who may write to what, and in which count that shows: siblings
    that were made, memory that was shown to NumPy or to other processes. `rewound`: how often
    counts were set back."""

    changes = 0
    rewound = 0


def siblings(root: Storage) -> tuple[int, list[Storage]]:
    """How many siblings a root has had, and those that live: each counts its own writes."""
    made, living = root.siblings
    found = [reference() for reference in living]
    return made, [each for each in found if each is not None]


# compiled backwards that have not run, by id: they may read memory as it is now, and are told
# before it is written to; in the order of their numbers
readers: dict[int, tuple[int, weakref.ref[Any]]] = {}
_numbers = itertools.count(1)
_EVERY = 1 << 62


def reads_later(reader: Any) -> None:
    """Note a compiled backward that may read memory which the user can write to. Its keep() says
    whether it reads any of what is written to; once it does not, it never will, unless it is
    noted again."""
    found = id(reader)
    readers.pop(found, None)
    readers[found] = next(_numbers), weakref.ref(reader, lambda _: readers.pop(found, None))


def note_read(storage: Storage) -> None:
    """Note that a reader may read a storage's memory."""
    root = storage.root
    if root.asked == _EVERY:
        root.asked = 0


def reads_no_more(reader: Any) -> None:
    """It has run."""
    readers.pop(id(reader), None)


def offset_of(array: np.ndarray, storage: Storage) -> int:
    """Elements between the start of the storage and the first element of a view of it."""
    if array is storage.array:
        return 0
    return (address(array) - address(storage.array)) // array.itemsize


def address(array: np.ndarray) -> int:
    """The address of the first element."""
    if isinstance(array, DeviceArray):
        return array.memory.address(array)
    return int(array.__array_interface__["data"][0])


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements."""
    size = array.itemsize
    return tuple([s // size for s in array.strides])


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides in elements; sizes may be symbolic."""
    strides: list[DimSize] = []
    step: DimSize = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(strides))
