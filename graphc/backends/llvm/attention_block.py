"""What attention and its gradient share: a block of queries, its scratch memory, and scores.

Vectors go along the queries of a block, so that maxima, sums and factors of rows are operations on
lanes: nothing is summed across a register, and every sum goes in the order of keys or of queries,
whatever the width of registers and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.llvm.attention_draw import Draw
from graphc.backends.llvm.attention_pairs import Pairs
from graphc.backends.llvm.attention_tile import (
    Matrix,
    call_tiles,
    emit_tiles,
    ragged_tile,
    whole_tile,
    widths_of,
)
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_kernel import SCRATCH
from graphc.backends.llvm.gemm_kernel import WORKERS as STATUS_WORKERS
from graphc.backends.llvm.gemm_pack import declare_transpose, transpose_symbol
from graphc.backends.llvm.gemm_plan import round_up
from graphc.backends.llvm.gemm_stages import claim_slot, free_slot
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import memory_type
from graphc.backends.llvm.vmath import VectorMath
from graphc.ir import dtypes
from graphc.ir.dim import ceil_div
from graphc.ir.kernel import Attention, Kernel, Operand
from graphc.ir.kernel.plan_attention import plan_attention
from graphc.ir.kernel.templates.attention import OPTIONAL
from graphc.ir.kernel.templates.operand import base_and_strides


class Head:
    """A function that works on one b of an attention, or on a block of its queries."""

    def __init__(self, f: Function, kernel: Kernel, t: Attention, tile: Tile) -> None:
        self.f, self.t, self.tile = f, t, tile
        f.emit("%args = load ptr, ptr %ctx, align 8")
        self.arguments = Arguments(f, kernel)
        self.m, self.n = self.arguments.size(t.m), self.arguments.size(t.n)
        self.e, self.f_width = _width(t.e), _width(t.f)
        self.lanes = VectorMath(
            f, f.module, tile.target, "f64" if t.dtype is dtypes.f64 else "f32", tile.lanes
        )
        self.inputs, self.results = dict(t.inputs), dict(t.results)
        self.pairs = {
            name: Pairs(self, name, self.inputs[name]) for name in OPTIONAL if name in self.inputs
        }
        self.draw = Draw(self, self.inputs["draw"]) if "draw" in self.inputs else None
        plan = plan_attention(t, tile.machine)
        assert plan is not None
        self.plan = plan
        self.scratch: dict[str, str] = {}
        self.slot = ""

    @property
    def queries(self) -> int:
        """Queries of a block: columns of the full tile."""
        return self.plan.queries

    @property
    def pitch(self) -> int:
        """Bytes of a row of scratch that has a column per query."""
        return self.queries * self.tile.bytes

    def padded(self, width: int) -> int:
        """Elements of a row of scratch that goes along a head's width."""
        return ceil_div_int(width, self.tile.lanes) * self.tile.lanes

    def matrix(self, operand: Operand, row: str, step: str) -> Matrix:
        """An operand of this b."""
        offset, by_row, by_step = base_and_strides(operand, row, step)
        size = operand.dtype.itemsize
        base = self.f.gep(
            self.arguments.buffer(operand.buffer), self.arguments.size(offset),
            memory_type(operand.dtype),
        )
        return Matrix(
            base, self.f.mul(self.arguments.size(by_row), size),
            self.f.mul(self.arguments.size(by_step), size),
        )

    def input(self, name: str, row: str, step: str) -> Matrix:
        return self.matrix(self.inputs[name], row, step)

    # --- scratch ------------------------------------------------------------------------------

    def take(self) -> None:
        """The chunk's scratch memory: of the first slot that is free, as take_slot's."""
        self.slot, start = take_slot(self.f, self.plan.chunk_scratch, self.plan.slots)
        self.scratch = {
            name: self.f.gep(start, offset, "i8") for name, offset in self.plan.places
        }

    def give(self) -> None:
        """The scratch memory back."""
        give_slot(self.f, self.slot)

    def clear(self, name: str, elements: int) -> None:
        """Zeros."""
        clear(self.f, self.scratch[name], elements * self.tile.bytes)

    def by_query(self, name: str) -> Matrix:
        """Scratch with a column per query, as B or C of a tile."""
        return Matrix(self.scratch[name], self.pitch, self.tile.bytes)

    # --- queries ------------------------------------------------------------------------------

    def registers(self, rows: Value) -> Value:
        """How many registers hold `rows` queries: a width for which there are tiles."""
        widest, *others = widths_of(self.tile)
        width: Value = widest
        for smaller in others:
            fits = self.f.cmp("sle", rows, smaller * self.tile.lanes)
            width = choose(self.f, fits, smaller, width)
        return width

    def gather(self, source: Matrix, rows: Value, width: int, by_row: str, by_query: str) -> None:
        """Rows of a head to scratch: as they are, and with a column per query."""
        f, row = self.f, self.padded(width) * self.tile.bytes
        to = Matrix(self.scratch[by_row], row, self.tile.bytes)
        # what is not there is multiplied, too, and subnormals take long (vmath_exp.py)
        with f.when(f.cmp("slt", rows, self.queries)):
            more = f.sub(round_up(f, rows, self.tile.lanes), rows)
            clear(f, to.at(f, rows).base, f.mul(more, row))
            clear(f, self.scratch[by_query], f.mul(self.pitch, width))
        if self.padded(width) != width:
            clear(f, to.base, f.mul(rows, row))
        copy(f, self.tile, source, to, rows, width)
        transpose(f, self.tile, to, self.by_query(by_query), rows, width)

    def scatter(self, by_query: str, by_row: str, into: Matrix, rows: Value, width: int) -> None:
        """The way back."""
        f, row = self.f, self.padded(width) * self.tile.bytes
        through = Matrix(self.scratch[by_row], row, self.tile.bytes)
        transpose(f, self.tile, self.by_query(by_query), through, width, rows)
        copy(f, self.tile, through, into, rows, width)

    # --- scores -------------------------------------------------------------------------------

    def products(
        self, symbol: str, left: Matrix, first: Value, queries: str, into: str, keys: Value,
        steps: int,
    ) -> None:
        """Products of a block of keys' rows with the queries' columns."""
        call_tiles(
            self.f, symbol, left.at(self.f, first), self.by_query(queries), self.by_query(into),
            keys, steps,
        )

    def prepare_pairs(self, first: Value, rows: Value, key: Value, keys: Value) -> None:
        """A mask and what dropout keeps, for a block of queries and one of keys."""
        for pairs in self.pairs.values():
            pairs.prepare(first, rows, key, keys, self.plan.keys)

    def prepare_rows(self, key: Value, keys: Value) -> None:
        """The same for all of few queries."""
        for pairs in self.pairs.values():
            pairs.prepare_rows(self.m, key, keys, self.plan.keys)

    def scores(self, first: Value, key: Value, column: Value) -> Callable[[str, Value], str]:
        """A function: the raw products of key + at, in some lanes -> scores. `first` is the block's
        first query, `column` the lanes' place in the block."""
        f, t, lanes = self.f, self.t, self.lanes
        scale = lanes.const(t.scale)
        numbers = ""
        if t.causal:
            numbers = self.counted(f.add(first, column))
        mask = self.pairs.get("mask")
        added = mask.vectors(key, column) if mask is not None else None

        def found(raw: str, at: Value) -> str:
            score = lanes.mul(raw, scale)
            if mask is not None and added is not None:
                score = mask.added(score, added(at))
            if t.causal:
                number = self.splat_number(f.add(key, at))
                seen = f.let(f"icmp sle {lanes.itype} {number}, {numbers}")
                score = lanes.select(seen, score, float("-inf"))
            return score

        return found

    def thinned(
        self, first: Value, key: Value, column: Value, factor: float
    ) -> Callable[[str, Value], str]:
        """A function: what dropout leaves of a value of key + at, times a factor."""
        if self.draw is not None:
            return self._thinned(self.draw.along_queries(self.f.add(first, column), key), factor)
        kept = self.pairs.get("kept")
        found = None if kept is None else kept.kept(kept.vectors(key, column))
        return self._thinned(found, factor)

    def thinned_along_keys(
        self, query: Value, key: Value, factor: float
    ) -> Callable[[str, Value], str]:
        """The same for a query, the keys from key + at in lanes."""
        if self.draw is not None:
            return self._thinned(self.draw.along_keys(query, key), factor)
        kept = self.pairs.get("kept")
        found = None if kept is None else kept.kept(kept.along_keys(query))
        return self._thinned(found, factor)

    def _thinned(
        self, kept: Callable[[Value], str] | None, factor: float
    ) -> Callable[[str, Value], str]:
        lanes = self.lanes
        if kept is None:
            return lambda value, at: value

        def found(value: str, at: Value) -> str:
            return lanes.select(kept(at), value if factor == 1 else lanes.mul(value, factor), 0.0)

        return found

    def transpose(self, source: Matrix, to: Matrix, rows: Value, columns: Value) -> None:
        """See transpose."""
        transpose(self.f, self.tile, source, to, rows, columns)

    def counted(self, first: Value) -> str:
        """Integers from `first` on, a lane each."""
        lanes = self.lanes
        counted = ", ".join(f"i{lanes.bits} {lane}" for lane in range(lanes.width))
        return self.f.let(f"add {lanes.itype} {self.splat_number(first)}, <{counted}>")

    def splat_number(self, number: Value) -> str:
        """An integer in every lane."""
        f, lanes = self.f, self.lanes
        kind = f"i{lanes.bits}"
        if lanes.bits == 32:
            number = f.let(f"trunc i64 {number} to i32")
        first = f.let(f"insertelement {lanes.itype} poison, {kind} {number}, i64 0")
        zeros = f"<{lanes.width} x i32> zeroinitializer"
        return f.let(f"shufflevector {lanes.itype} {first}, {lanes.itype} poison, {zeros}")


def _width(size: object) -> int:
    assert isinstance(size, int)
    return size


def ceil_div_int(a: int, b: int) -> int:
    """a / b, rounded up."""
    found = ceil_div(a, b)
    assert isinstance(found, int)
    return found


def choose(f: Function, condition: str, a: Value, b: Value) -> Value:
    """a where an i1 holds, else b."""
    return f.let(f"select i1 {condition}, i64 {a}, i64 {b}")


# What a chunk function's %ctx points to: 8-byte words
ARGUMENTS, MEMORY, WORKERS, BUSY = range(4)


def emit_context(f: Function) -> str:
    """The context of a kernel's chunks: its arguments, and scratch that no chunk has yet."""
    context = f.alloca("i64", 4, 16)
    f.store("%args", "ptr", context, 8)
    for word, source in ((MEMORY, SCRATCH), (WORKERS, STATUS_WORKERS)):
        value = f.load(f.gep("%status", source, "i64"), "i64", 8)
        f.store(value, "i64", f.gep(context, word, "i64"), 8)
    f.store(0, "i64", f.gep(context, BUSY, "i64"), 8)
    return context


def take_slot(f: Function, size: int, slots: int) -> tuple[str, str]:
    """The first free slot of scratch: (its bit, its address); see gemm_stages.take_slot."""
    workers = f.load(f.gep("%ctx", WORKERS, "i64"), "i64", 8)
    memory = f.load(f.gep("%ctx", MEMORY, "i64"), "ptr", 8)
    bit, slot = claim_slot(f, f.gep("%ctx", BUSY, "i64"), f.smin(slots, workers))
    return bit, f.gep(memory, f.mul(slot, size), "i8")


def give_slot(f: Function, bit: str) -> None:
    """Frees what take_slot found."""
    free_slot(f, f.gep("%ctx", BUSY, "i64"), bit)


def clear(f: Function, place: str, size: Value) -> None:
    """So many bytes of zeros."""
    f.module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    f.call("void", "@llvm.memset.p0.i64", f"ptr {place}", "i8 0", f"i64 {size}", "i1 false")


def transpose(
    f: Function, tile: Tile, source: Matrix, to: Matrix, rows: Value, columns: Value
) -> None:
    """Squares of registers, ragged ones whole: both are scratch that has room for them."""
    declare_transpose(f.module, tile)
    with f.loop(0, rows, tile.lanes) as row, f.loop(0, columns, tile.lanes) as column:
        f.call(
            "void", transpose_symbol(tile), f"ptr {source.at(f, row, column).base}",
            f"i64 {source.row}", f"ptr {to.at(f, column, row).base}", f"i64 {to.row}",
        )


def emit_attention_library(module: Module, tile: Tile) -> None:
    """What kernels of all shapes share: tiles, and the copy of rows."""
    emit_tiles(module, tile)
    _emit_copy(module, tile)


def copy(f: Function, tile: Tile, source: Matrix, to: Matrix, rows: Value, columns: int) -> None:
    """Rows of elements, by registers where they lie side by side."""
    symbol = f"@graphc_attention_copy_{tile.name}"
    f.module.declare(f"declare void {symbol}(ptr, i64, i64, ptr, i64, i64, i64, i64)")
    f.call(
        "void", symbol, f"ptr {source.base}", f"i64 {source.row}", f"i64 {source.step}",
        f"ptr {to.base}", f"i64 {to.row}", f"i64 {to.step}", f"i64 {rows}", f"i64 {columns}",
    )


def _emit_copy(module: Module, tile: Tile) -> None:
    f = module.function(
        f"void @graphc_attention_copy_{tile.name}(ptr noalias %from, i64 %row, i64 %step, "
        "ptr noalias %to, i64 %to_row, i64 %to_step, i64 %rows, i64 %columns)"
    )
    source, to = Matrix("%from", "%row", "%step"), Matrix("%to", "%to_row", "%to_step")
    dense, dense_to = (f.cmp("eq", step, tile.bytes) for step in ("%step", "%to_step"))
    dense = f.let(f"and i1 {dense}, {dense_to}")
    whole = choose(f, dense, f.mul(f.floordiv("%columns", tile.lanes), tile.lanes), 0)
    with f.loop(0, "%rows") as row:
        with f.loop(0, whole, tile.lanes) as column:
            value = f.load(source.at(f, row, column).base, tile.vector, tile.bytes)
            f.store(value, tile.vector, to.at(f, row, column).base, tile.bytes)
        with f.loop(whole, "%columns") as column:
            value = f.load(source.at(f, row, column).base, tile.element, tile.bytes)
            f.store(value, tile.element, to.at(f, row, column).base, tile.bytes)
    f.ret()


def column_tiles(module: Module, tile: Tile, columns: int) -> list[tuple[int, str]]:
    """How a row of a result is cut: (first column, the tile that adds to it)."""
    found: list[tuple[int, str]] = []
    whole, tail = divmod(columns, tile.lanes)
    at = 0
    for width in widths_of(tile):
        while whole >= width:
            found.append((at, whole_tile(module, tile, width, fresh=False)))
            at, whole = at + width * tile.lanes, whole - width
    if tail:
        found.append((at, ragged_tile(module, tile, tail)))
    return found
