"""Stores around the caches, of results that are large beside the third one.

A store reads its line first, unless it goes around the caches. Where the third cache is far away,
as behind the meshes of Intel's servers, and what is read and written no longer fits into it, that
is half of the traffic (Emerald Rapids, one thread, results of 64 MB: a + b takes 9.7 ms, and 5.8
around the caches; summed up behind it 15.3 and 10.6; softmax 10.7 and 7.5). Smaller results are
there for whoever reads them next, which is worth more: of 4 to 32 MB a + b gains 15% to 20% and
the sum behind it loses as much as 20% of both, and from 48 MB on nobody loses. CPUs whose third
cache is as near as Zen's have not been measured, and keep what they have.

Such stores take whole lines, which only where a buffer really lies tells: code has both, and asks
for the address. Others may see them in any order: a function that has some ends with a fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.backends.llvm.prefetch import LINE
from graphc.backends.llvm.values import memory_type
from graphc.ir.record import replaced

if TYPE_CHECKING:
    from graphc.backends.llvm.emit_ask import Access, Asking
    from graphc.backends.llvm.emit_context import Buffer, Index
    from graphc.ir.kernel import Param

_FENCE = "@llvm.x86.sse.sfence"


def mark(buffers: dict[str, Buffer], params: Sequence[Param]) -> None:
    """Results that are not read may go around the caches."""
    for param in params:
        buffer = buffers[param.name]
        if param.access == "out" and not buffer.mutable:
            buffers[param.name] = replaced(buffer, around=param.size)


def bits(context: Asking, buffer: Buffer) -> Index | None:
    """Of a store's address: which have to be 0 for it to go around the caches; None: it never
    does."""
    size, from_on = buffer.around, context.target.around
    if size is None or not from_on:
        return None
    width = buffer.dtype.itemsize
    if isinstance(size, int):
        return LINE - 1 if size * width >= from_on else None
    elements = context.index(size)
    fn = context.fn

    def chosen() -> str:
        large = fn.let(f"icmp uge i64 {elements}, {-(-from_on // width)}")
        return fn.let(f"select i1 {large}, i64 {LINE - 1}, i64 -1")

    return context.compute(0, ("around", str(elements), width), chosen)


def store(context: Asking, access: Access, text: str, address: str) -> None:
    """Stores all lanes, one beside the other."""
    fn, dtype, lanes = context.fn, access.dtype, context.lanes
    kind, width = memory_type(dtype, lanes), dtype.itemsize
    fits = lanes * width % LINE == 0 and not access.whole
    zero = bits(context, access.buffer) if fits else None
    if zero is None:
        fn.store(text, kind, address, width)
        return
    place = fn.let(f"ptrtoint ptr {address} to i64")
    off = fn.let(f"and i64 {place}, {zero}")
    past, plain, end = fn.label("around"), fn.label("plain"), fn.label("stored")
    fn.cond_br(fn.cmp("eq", off, 0), past, plain)
    fn.block(past)
    fn.emit(f"store {kind} {text}, ptr {address}, align {LINE}, !nontemporal !{{i32 1}}")
    fn.module.declare(f"declare void {_FENCE}()")
    fn.fence = _FENCE
    fn.br(end)
    fn.block(plain)
    fn.store(text, kind, address, width)
    fn.br(end)
    fn.block(end)
