"""What attention and its gradient share: a block of queries, its scratch memory, and scores.

Vectors go along the queries of a block, so that maxima, sums and factors of rows are operations on
lanes: nothing is summed across a register, and every sum goes in the order of keys or of queries,
whatever the width of registers and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphc.backends.llvm.attention_tile import Matrix, Tiles, call_tiles
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_pack import declare_transpose, transpose_symbol
from graphc.backends.llvm.gemm_scratch import GIVE, TAKE, declare_scratch
from graphc.backends.llvm.gemm_sizes import base_and_strides
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import memory_type
from graphc.backends.llvm.vmath import VectorMath
from graphc.ir import dtypes
from graphc.ir.dim import ceil_div
from graphc.ir.kernel import Attention, Kernel, Operand

KEYS = 16 * MR  # of a block; its scores, times a block of queries, stay in the first cache


class Head:
    """A function that works on one b of an attention, or on a block of its queries."""

    def __init__(self, f: Function, kernel: Kernel, t: Attention, tile: Tile, symbol: str) -> None:
        self.f, self.t, self.tile, self.symbol = f, t, tile, symbol
        f.emit("%args = load ptr, ptr %ctx, align 8")
        self.arguments = Arguments(f, kernel)
        self.m, self.n = self.arguments.size(t.m), self.arguments.size(t.n)
        self.e, self.f_width = _width(t.e), _width(t.f)
        self.tiles = Tiles(f.module, tile, symbol)
        self.lanes = VectorMath(
            f, f.module, tile.target, "f64" if t.dtype is dtypes.f64 else "f32", tile.lanes
        )
        self.inputs, self.results = dict(t.inputs), dict(t.results)
        self.scratch: dict[str, str] = {}
        self.block = ""

    @property
    def queries(self) -> int:
        """Queries of a block: columns of the full tile."""
        return self.tile.columns

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

    def take(self, elements: dict[str, int]) -> None:
        """Scratch memory for this call, by name."""
        f = self.f
        declare_scratch(f.module)
        places: dict[str, int] = {}
        total = 0
        for name, count in elements.items():
            places[name] = total
            total += ceil_div_int(count * self.tile.bytes, 64) * 64
        self.block = f.call("ptr", TAKE, f"i64 {total}")
        self.scratch = {name: f.gep(self.block, at, "i8") for name, at in places.items()}

    def mask_scratch(self) -> dict[str, int]:
        """What prepare_mask needs."""
        if self.t.mask is None or self._same_for_queries():
            return {}
        return dict.fromkeys(("mask", "mask_rows"), KEYS * self.queries)

    def give(self) -> None:
        """The scratch memory back."""
        self.f.call("void", GIVE, f"ptr {self.block}")

    def clear(self, name: str, elements: int) -> None:
        """Zeros."""
        clear(self.f, self.scratch[name], elements * self.tile.bytes)

    def by_query(self, name: str) -> Matrix:
        """Scratch with a column per query, as B or C of a tile."""
        return Matrix(self.scratch[name], self.pitch, self.tile.bytes)

    # --- queries ------------------------------------------------------------------------------

    def registers(self, rows: Value) -> Value:
        """How many registers hold `rows` queries: a width for which there are tiles."""
        width: Value = self.tile.widths[0]
        for smaller in self.tile.widths[1:]:
            fits = self.f.cmp("sle", rows, smaller * self.tile.lanes)
            width = choose(self.f, fits, smaller, width)
        return width

    def gather(self, source: Matrix, rows: Value, width: int, by_row: str, by_query: str) -> None:
        """Rows of a head to scratch: as they are, and with a column per query."""
        f, row = self.f, self.padded(width) * self.tile.bytes
        to = Matrix(self.scratch[by_row], row, self.tile.bytes)
        copy(f, self.tile, self.symbol, source, to, rows, width)
        transpose(f, self.tile, to, self.by_query(by_query), rows, width)

    def scatter(self, by_query: str, by_row: str, into: Matrix, rows: Value, width: int) -> None:
        """The way back."""
        f, row = self.f, self.padded(width) * self.tile.bytes
        through = Matrix(self.scratch[by_row], row, self.tile.bytes)
        transpose(f, self.tile, self.by_query(by_query), through, width, rows)
        copy(f, self.tile, self.symbol, through, into, rows, width)

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

    def prepare_mask(self, first: Value, rows: Value, key: Value, keys: Value) -> None:
        """Bring a block of a mask that differs between queries to scratch, a column per query."""
        if self.t.mask is None or self._same_for_queries():
            return
        f, tile = self.f, self.tile
        mask = self.matrix(self.t.mask, "m", "n").at(f, first, key)
        through = Matrix(self.scratch["mask_rows"], KEYS * tile.bytes, tile.bytes)
        dense = f.cmp("eq", mask.step, self.t.mask.dtype.itemsize)
        whole = choose(f, dense, f.mul(f.floordiv(keys, tile.lanes), tile.lanes), 0)
        with f.loop(0, rows) as row:
            for low, high, lanes in ((0, whole, tile.lanes), (whole, keys, 1)):
                with f.loop(low, high, lanes) as at:
                    value = self._mask_elements(mask.at(f, row, at).base, lanes)
                    kind = tile.vector if lanes > 1 else tile.element
                    f.store(value, kind, through.at(f, row, at).base, tile.bytes)
        transpose(f, tile, through, self.by_query("mask"), rows, keys)

    def _same_for_queries(self) -> bool:
        assert self.t.mask is not None
        return base_and_strides(self.t.mask, "m", "n")[1] == 0

    def _mask_elements(self, place: str, lanes: int) -> str:
        """What is added to some scores; of a bool mask 0 or -inf."""
        f, tile = self.f, self.tile
        assert self.t.mask is not None
        found = VectorMath(f, f.module, tile.target, self.lanes.dtype, lanes)
        if self.t.mask.dtype is not dtypes.bool_:
            return f.load(place, found.vtype, tile.bytes)
        kind = memory_type(dtypes.bool_, lanes)
        zero = "0" if lanes == 1 else "zeroinitializer"
        seen = f.let(f"icmp ne {kind} {f.load(place, kind, 1)}, {zero}")
        return found.select(seen, 0.0, float("-inf"))

    def scores(self, first: Value, key: Value, column: Value) -> Callable[[str, Value], str]:
        """A function: the raw products of key + at, in some lanes -> scores. `first` is the block's
        first query, `column` the lanes' place in the block."""
        f, t, lanes = self.f, self.t, self.lanes
        scale = lanes.const(t.scale)
        numbers = ""
        if t.causal:
            numbers = self._query_numbers(f.add(first, column))
        shared_mask = None
        if t.mask is not None and self._same_for_queries():
            shared_mask = self.matrix(t.mask, "m", "n").at(f, 0, key)

        def found(raw: str, at: Value) -> str:
            score = lanes.mul(raw, scale)
            if t.mask is not None:
                if shared_mask is not None:
                    added = lanes.splat(self._mask_elements(shared_mask.at(f, 0, at).base, 1))
                else:
                    place = self.by_query("mask").at(f, at, column).base
                    added = f.load(place, self.tile.vector, self.tile.bytes)
                if t.mask.dtype is dtypes.bool_:
                    score = lanes.select(lanes.cmp("oeq", added, 0.0), score, added)
                else:
                    score = lanes.add(score, added)
            if t.causal:
                number = self._splat_number(f.add(key, at))
                seen = f.let(f"icmp sle {lanes.itype} {number}, {numbers}")
                score = lanes.select(seen, score, float("-inf"))
            return score

        return found

    def _query_numbers(self, first: Value) -> str:
        lanes = self.lanes
        counted = ", ".join(f"i{lanes.bits} {lane}" for lane in range(lanes.width))
        return self.f.let(f"add {lanes.itype} {self._splat_number(first)}, <{counted}>")

    def _splat_number(self, number: Value) -> str:
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


def copy(
    f: Function, tile: Tile, prefix: str, source: Matrix, to: Matrix, rows: Value, columns: int
) -> None:
    """Rows of elements, by registers where they lie side by side."""
    symbol = f"@{prefix}.copy{columns}"
    if f.module.count_use(symbol) == 1:
        _emit_copy(f.module, tile, symbol, columns)
    f.call(
        "void", symbol, f"ptr {source.base}", f"i64 {source.row}", f"i64 {source.step}",
        f"ptr {to.base}", f"i64 {to.row}", f"i64 {to.step}", f"i64 {rows}",
    )


def _emit_copy(module: Module, tile: Tile, symbol: str, columns: int) -> None:
    f = module.function(
        f"void {symbol}(ptr noalias %from, i64 %row, i64 %step, ptr noalias %to, i64 %to_row, "
        "i64 %to_step, i64 %rows)", "internal", "noinline nounwind",
    )
    source, to = Matrix("%from", "%row", "%step"), Matrix("%to", "%to_row", "%to_step")
    dense, dense_to = (f.cmp("eq", step, tile.bytes) for step in ("%step", "%to_step"))
    dense = f.let(f"and i1 {dense}, {dense_to}")
    whole = choose(f, dense, columns // tile.lanes * tile.lanes, 0)
    with f.loop(0, "%rows") as row:
        with f.loop(0, whole, tile.lanes) as column:
            value = f.load(source.at(f, row, column).base, tile.vector, tile.bytes)
            f.store(value, tile.vector, to.at(f, row, column).base, tile.bytes)
        with f.loop(whole, columns) as column:
            value = f.load(source.at(f, row, column).base, tile.element, tile.bytes)
            f.store(value, tile.element, to.at(f, row, column).base, tile.bytes)
    f.ret()


@dataclass(frozen=True)
class Columns:
    """Some registers of a row of a result."""

    first: int  # column
    width: int  # registers
    tail: int  # lanes of the last register that are columns; 0: all


def column_groups(tile: Tile, columns: int) -> list[Columns]:
    """How a row of a result is cut into tiles."""
    found: list[Columns] = []
    whole, tail = divmod(columns, tile.lanes)
    at = 0
    for width in tile.widths:
        while whole >= width:
            found.append(Columns(at, width, 0))
            at, whole = at + width * tile.lanes, whole - width
    if tail:
        found.append(Columns(at, 1, tail))
    return found
