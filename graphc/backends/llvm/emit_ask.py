"""Where an access is, and asking memory for what comes next (prefetch.py says what, and why)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from graphc.backends.llvm.emit_context import Buffer
from graphc.backends.llvm.emit_index import Affine, Indices, Part
from graphc.backends.llvm.prefetch import LINE, Key
from graphc.backends.llvm.values import memory_type
from graphc.ir.dim import Size
from graphc.ir.dtypes import DType
from graphc.ir.record import record

_SECOND, _FIRST = "i32 0, i32 2", "i32 0, i32 3"  # to read, for the second cache or the first
_SHORT = 8192  # bytes: a row, the next one, what is kept of it and what is written have room


@record
class Access:
    """One load or store of a vector: where, how wide, under which mask, at which level."""

    buffer: Buffer
    where: Affine
    mask: str | None
    level: int
    whole: bool = False  # lanes outside a mask of the first ones are in a Local's padding

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


class Asking(Indices):
    """Emits addresses, and asks for lines. `ahead`: the loads that ask for memory further on, and
    how far; `again`: by vector loop, loads that do so in it alone; `written`: by vector loop,
    places that the next one writes; `along`: the buffers of which all loads do, in a loop whose
    every vector has a mask."""

    ahead: Mapping[Key, int] = {}
    again: Mapping[int, Mapping[Key, Size]] = {}
    written: Mapping[int, Sequence[Key]] = {}
    along: Mapping[str, int] = {}
    all_masked = False  # the vector loop around is such a one
    vector_loop = 0  # its identity

    # Addresses

    def address(self, buffer: Buffer, where: Affine) -> Part:
        """The address of lane 0 (without the general part); outer levels' offsets come first."""
        kind = memory_type(buffer.dtype)
        pointer = Part(0, buffer.pointer())
        by_level: dict[int, list[Part]] = {}
        for part in where.parts:
            by_level.setdefault(part.level, []).append(part)
        offsets = [self._sum(by_level[level]) for level in sorted(by_level)]
        if where.constant:
            offsets.append(Part(0, where.constant))
        for offset in offsets:
            level = max(pointer.level, offset.level)
            text = f"getelementptr {kind}, ptr {pointer.value}, i64 {offset.value}"
            pointer = Part(
                level, self.compute(level, (text,), functools.partial(self.fn.let, text, "p"))
            )
        return pointer

    def ask_to_write(self) -> None:
        """Has the first cache fetch the lines that the vector loop behind this one writes."""
        for name, size in self.written.get(self.vector_loop, ()):
            access = Access(self.buffers[name], self.affine(size), None, self.depth)
            self._ask_ahead(access, 0, "i32 1, i32 3")

    def _cache(self, buffer: Buffer, further: Size) -> str:
        """Which cache takes a row that is asked for: the first one a short row, where there is time
        for it, because its lines to be written come meanwhile, too (softmax: 1.42 and 1.32 ms)."""
        there = self.target.far and self.vector_loop in self.written
        short = isinstance(further, int) and further * buffer.dtype.itemsize <= _SHORT
        return _FIRST if there and short else _SECOND

    def _ask_ahead(self, access: Access, further: Size, how: str = _SECOND) -> None:
        """Has the second cache fetch the lines of the lanes so many elements further on; where
        there is no such memory, nothing happens."""
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        kind, width = memory_type(access.dtype), access.dtype.itemsize
        first = self.address(access.buffer, access.where).value
        if not isinstance(further, int):
            row = self.index(further)
            first, further = self.fn.let(f"getelementptr {kind}, ptr {first}, i64 {row}", "p"), 0
        for lane in range(0, self.lanes, max(LINE // width, 1)):
            place = self.fn.let(f"getelementptr {kind}, ptr {first}, i64 {further + lane}", "p")
            # to read, of some use again, data
            self.fn.call("void", "@llvm.prefetch.p0", f"ptr {place}", how, "i32 1")
