"""What a template's text leaves open: its sizes, strides and offsets become arguments of its
functions, so that one text serves many shapes.

A coefficient of 1 stays (what is contiguous decides how it is copied), and so does what is inside
a division: dividing by a constant is a multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.ir.dim import Atom, Dim, Size, product
from graphc.ir.kernel import IndexValue, Load, Scalar, Stmt, Store
from graphc.ir.kernel.walk import rewrite
from graphc.ir.record import replaced


class Sizes:
    """The arguments of one kernel, in order: `values` are over its dims."""

    def __init__(self, dims: Iterable[str]) -> None:
        self.dims = frozenset(dims)
        self.values: list[Size] = []
        self._indices: dict[Size, Size] = {}

    def argument(self, value: Size) -> Dim:
        """A variable with this value."""
        self.values.append(value)
        return Dim.var(f"size_{len(self.values) - 1}")

    def names(self) -> list[str]:
        """Of the arguments."""
        return [f"size_{number}" for number in range(len(self.values))]

    def index(self, index: Size) -> Size:
        """The same over the variables that are no dims, with arguments for their coefficients;
        equal indices are one."""
        if index not in self._indices:
            self._indices[index] = self._opened(index)
        return self._indices[index]

    def _opened(self, index: Size) -> Size:
        terms = index.terms if isinstance(index, Dim) else (((), index),)
        coefficients: dict[tuple[tuple[Atom, int], ...], Size] = {}
        for monomial, number in terms:
            inner = tuple(factor for factor in monomial if not self._is_outer(factor[0]))
            outer = tuple(factor for factor in monomial if self._is_outer(factor[0]))
            scale = Dim(((outer, number),)) if outer else number
            coefficients[inner] = coefficients.get(inner, 0) + scale
        total: Size = 0
        for inner, value in coefficients.items():
            if inner == () and value == 0:
                continue
            factor = 1 if value == 1 and inner else self.argument(value)
            total = total + product((factor, Dim(((inner, 1),)) if inner else 1))
        return total

    def _is_outer(self, atom: Atom) -> bool:
        return Dim((((((atom, 1),)), 1),)).variables() <= self.dims

    def statements(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """An epilogue whose indices are opened."""

        def opened(scalar: Scalar) -> Scalar:
            if isinstance(scalar, (Load, IndexValue)):
                return replaced(scalar, index=self.index(scalar.index))
            return scalar

        return tuple(
            replaced(stmt, index=self.index(stmt.index)) if isinstance(stmt, Store) else stmt
            for stmt in rewrite(body, opened)
        )
