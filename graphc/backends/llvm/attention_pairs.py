"""What attention reads for each query and key, a mask or what dropout keeps, as vectors along the
queries of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.backends.llvm.attention_tile import Matrix
from graphc.backends.llvm.text import Value
from graphc.backends.llvm.values import memory_type
from graphc.backends.llvm.vmath import VectorMath
from graphc.ir import dtypes
from graphc.ir.kernel import Operand
from graphc.ir.kernel.plan_attention import same_for_queries

if TYPE_CHECKING:
    from graphc.backends.llvm.attention_block import Head


class Pairs:
    """One operand. True is 0, False is -inf: what is added to a score."""

    def __init__(self, h: Head, name: str, operand: Operand) -> None:
        self.h, self.name, self.operand = h, name, operand
        self.is_bool = operand.dtype is dtypes.bool_
        # one element for all queries is read where it lies
        self._shared = same_for_queries(h.t, name)

    def prepare(self, first: Value, rows: Value, key: Value, keys: Value, most: int) -> None:
        """Bring a block, of at most `most` keys, to scratch, a column per query."""
        if self._shared:
            return
        through = self._rows(self._matrix().at(self.h.f, first, key), rows, keys, most)
        self.h.transpose(through, self.h.by_query(self.name), rows, keys)

    def prepare_rows(self, rows: Value, key: Value, keys: Value, most: int) -> None:
        """Bring a block to scratch, a row for each query, or one for all."""
        self._rows(
            self._matrix().at(self.h.f, 0, key), 1 if self._shared else rows, keys, most
        )

    def _rows(self, source: Matrix, rows: Value, keys: Value, most: int) -> Matrix:
        f, tile = self.h.f, self.h.tile
        through = Matrix(self.h.scratch[f"{self.name}_rows"], most * tile.bytes, tile.bytes)
        dense = f.cmp("eq", source.step, self.operand.dtype.itemsize)
        whole = f.mul(f.floordiv(keys, tile.lanes), tile.lanes)
        whole = f.let(f"select i1 {dense}, i64 {whole}, i64 0")
        with f.loop(0, rows) as row:
            for low, high, lanes in ((0, whole, tile.lanes), (whole, keys, 1)):
                with f.loop(low, high, lanes) as at:
                    value = self._elements(source.at(f, row, at).base, lanes)
                    kind = tile.vector if lanes > 1 else tile.element
                    f.store(value, kind, through.at(f, row, at).base, tile.bytes)
        return through

    def vectors(self, key: Value, column: Value) -> Callable[[Value], str]:
        """A function: the elements of key + at, for the queries from `column` of the block."""
        h = self.h
        if self._shared:
            one = self._matrix().at(h.f, 0, key)
            return lambda at: h.lanes.splat(self._elements(one.at(h.f, 0, at).base, 1))
        by_query = h.by_query(self.name)
        return lambda at: h.f.load(
            by_query.at(h.f, at, column).base, h.tile.vector, h.tile.bytes
        )

    def along_keys(self, query: Value) -> Callable[[Value], str]:
        """A function: the elements of a query, the keys of the block from `at` in lanes."""
        h = self.h
        row = h.f.mul(0 if self._shared else query, h.plan.keys)
        base = h.f.gep(h.scratch[f"{self.name}_rows"], row, h.tile.element)
        return lambda at: h.f.load(
            h.f.gep(base, at, h.tile.element), h.tile.vector, h.tile.bytes
        )

    def added(self, score: str, element: str) -> str:
        """A score under the mask."""
        lanes = self.h.lanes
        if self.is_bool:
            return lanes.select(lanes.cmp("oeq", element, 0.0), score, element)
        return lanes.add(score, element)

    def kept(self, elements: Callable[[Value], str]) -> Callable[[Value], str]:
        """Where elements, given by a function, are True."""
        return lambda at: self.h.lanes.cmp("oeq", elements(at), 0.0)

    def _matrix(self) -> Matrix:
        return self.h.matrix(self.operand, "m", "n")

    def _elements(self, place: str, lanes: int) -> str:
        f, tile = self.h.f, self.h.tile
        found = VectorMath(f, f.module, tile.target, self.h.lanes.dtype, lanes)
        if not self.is_bool:
            return f.load(place, found.vtype, tile.bytes)
        kind = memory_type(dtypes.bool_, lanes)
        zero = "0" if lanes == 1 else "zeroinitializer"
        seen = f.let(f"icmp ne {kind} {f.load(place, kind, 1)}, {zero}")
        return found.select(seen, 0.0, float("-inf"))
