"""What planning works on: buffers, and the steps that read and write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...dim import Size, unwrap
from ...dtypes import DType
from ...graph import Node
from ...kernel import BufferRef, Check, Kernel, ProgramStep, walk
from ...types import TensorType
from ..lower import Lowered

HARMLESS = frozenset({"random", "sort"})  # families of routines that cannot fail


@dataclass(eq=False)
class Storage:
    """One buffer: an input, a constant, or the result of a step; or a part of a `whole` one, from
    byte `start` on."""

    dtype: DType
    elements: Size
    space: str = "arena"  # "input" | "output" | "const" | "arena"
    index: int = 0
    writer: Step | None = None
    readers: list[Step] = field(default_factory=list)
    offset: Size = 0
    whole: Storage | None = None
    start: Size = 0
    shared: bool = False  # other values are parts of it

    @classmethod
    def of(cls, type_: TensorType) -> Storage:
        """A buffer for a value; for complex numbers, of their parts."""
        parts = 2 if type_.dtype.is_complex else 1
        return cls(type_.dtype.real, unwrap(type_.elements * parts))

    @property
    def size(self) -> Size:
        """Bytes."""
        return unwrap(self.elements * self.dtype.itemsize)

    @property
    def is_read(self) -> bool:
        """Whether a step, or the caller, reads it."""
        return self.shared or bool(self.readers) or self.block.space != "arena"

    def part(self, dtype: DType, elements: Size, start: Size) -> Storage:
        """The value that lies from element `start` on."""
        self.shared = True
        begin = unwrap(self.start + start * self.dtype.itemsize)
        return Storage(dtype, elements, writer=self.writer, whole=self.block, start=begin)

    def renamed(self) -> Storage:
        """Another value in the same place, once this one is read no more."""
        self.shared = True
        return Storage(self.dtype, self.elements, whole=self.block)

    @property
    def block(self) -> Storage:
        """What has a place of its own."""
        return self if self.whole is None else self.whole

    def ref(self) -> BufferRef:
        if self.whole is not None:
            return moved(self.whole.ref(), self.start)
        return BufferRef(self.space, self.index, self.offset)


def is_last_name(storage: Storage) -> bool:
    """Whether a value fills a block of the arena, and no part of it has a name of its own."""
    block = storage.block
    filled = (storage.elements, storage.dtype) == (block.elements, block.dtype)
    return block.space == "arena" and block.writer is not None and filled and not storage.shared


def moved(ref: BufferRef, by: Size) -> BufferRef:
    """The buffer from `by` bytes on."""
    return BufferRef(ref.space, ref.index, unwrap(ref.offset + by))


@dataclass(eq=False)
class Step:
    """A launch, callback, copy, loop or branch in the making."""

    node: Node | None  # None: a copy
    reads: list[Storage]
    writes: list[Storage]
    scratch: list[Storage] = field(default_factory=list)
    lowered: Lowered | None = None
    inside: Callable[[], tuple[ProgramStep, ...]] | None = None  # what a loop or branch runs
    can_fail: bool = False
    visible: bool = False  # writes a buffer that the user sees
    after: set[Step] = field(default_factory=set)  # must run first, beyond the writers of `reads`
    pairs: list[tuple[int, int]] = field(default_factory=list)  # (read, write) in one buffer
    last: bool = False  # a final copy


def has_check(kernel: Kernel) -> bool:
    """Whether a kernel can fail."""
    return any(
        isinstance(stmt, Check)
        for body in walk.bodies(kernel) for stmt in walk.statements(body)
    )
