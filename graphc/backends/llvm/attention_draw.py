"""What dropout keeps, drawn from a counter where it is needed: see `ir/ops/_counter.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.backends.llvm.text import Value
from graphc.ir.kernel import Operand
from graphc.ir.kernel.templates.operand import strides_of

if TYPE_CHECKING:
    from graphc.backends.llvm.attention_block import Head


class Draw:
    """A key, and the counter of the first of all probabilities."""

    def __init__(self, h: Head, operand: Operand) -> None:
        self.h = h
        self._lanes = h.lanes.width
        self._kind = f"<{self._lanes} x i64>"
        strides = strides_of(operand.index, ("d",))
        assert strides is not None
        offset, step = (h.arguments.size(size) for size in strides)
        base = h.f.gep(h.arguments.buffer(operand.buffer), offset, "i64")
        self._key = h.f.load(base, "i64", 8)
        self._first = h.f.load(h.f.gep(base, step, "i64"), "i64", 8)

    def along_queries(self, query: Value, key: Value) -> Callable[[Value], str]:
        """A function: which of the queries from `query`, a lane each, keep key + at."""
        return self._kept(query, key, self.h.n)

    def along_keys(self, query: Value, key: Value) -> Callable[[Value], str]:
        """A function: which of the keys from key + at, a lane each, `query` keeps."""
        return self._kept(query, key, 1)

    def _kept(self, query: Value, key: Value, step: Value) -> Callable[[Value], str]:
        f, kind = self.h.f, self._kind
        row = f.add(f.mul(self.h.arguments.names["b"], self.h.m), query)
        first = f.add(self._first, f.add(f.mul(row, self.h.n), key))
        counted = ", ".join(f"i64 {lane}" for lane in range(self._lanes))
        places = f.let(f"mul {kind} {self._splat(step)}, <{counted}>")
        counters = f.let(f"add {kind} {self._splat(first)}, {places}")
        weyl = self._splat(self._key)
        start = f.let(f"mul {kind} {counters}, {weyl}")

        def found(at: Value) -> str:
            y = f.let(f"add {kind} {start}, {self._splat(f.mul(self._key, at))}")
            z = f.let(f"add {kind} {y}, {weyl}")
            x = y
            for addend in (y, z, y):
                x = self._swapped(self._squared(x, addend))
            bits = f.let(f"lshr {kind} {self._squared(x, z)}, {self._splat(32)}")
            return f.let(f"icmp ult {kind} {bits}, {self._splat(self.h.t.keep)}")

        return found

    def _squared(self, x: str, addend: str) -> str:
        square = self.h.f.let(f"mul {self._kind} {x}, {x}")
        return self.h.f.let(f"add {self._kind} {square}, {addend}")

    def _swapped(self, x: str) -> str:
        """The 32-bit halves exchanged."""
        f, half = self.h.f, self._splat(32)
        upper, lower = (f.let(f"{shift} {self._kind} {x}, {half}") for shift in ("lshr", "shl"))
        return f.let(f"or {self._kind} {upper}, {lower}")

    def _splat(self, number: Value) -> str:
        if isinstance(number, int):
            return f"<{', '.join([f'i64 {number}'] * self._lanes)}>"
        f, kind = self.h.f, self._kind
        first = f.let(f"insertelement {kind} poison, i64 {number}, i64 0")
        zeros = f"<{self._lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
