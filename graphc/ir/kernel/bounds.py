"""Interval analysis of index expressions: the smallest and largest value over all iterations.

Sizes must be numbers (the verifier tries sample values of the named dims). A loop variable is
replaced by the end of its range, innermost first, so that a blocked loop's
`4096*b + i, i < min(4096, n - 4096*b)` is seen to stay below n. Where an extent is a minimum,
each side is an upper bound and the better result counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .. import dtypes
from ..dim import Atom, Dim, Monomial, Size, substitute, unwrap
from .nest import Apply, Literal, Scalar, Var

Interval = tuple[int, int]


@dataclass
class Scope:
    """The loop variables in force, outermost first, and the integer Lets."""

    extents: dict[str, Size] = field(default_factory=dict)
    lets: dict[str, Size] = field(default_factory=dict)  # those with an index expression
    unknown: set[str] = field(default_factory=set)  # i64 Lets with data-dependent values
    held: dict[str, Interval] = field(default_factory=dict)  # whole numbers between two literals

    def resolve(self, index: Size) -> Size:
        """The expression with integer Lets replaced by what they are bound to."""
        if isinstance(index, Dim) and self.lets and index.variables() & self.lets.keys():
            return substitute(index, self.lets)
        return index


def interval(index: Size, scope: Scope) -> Interval | None:
    """Bounds of `index` over every iteration, or None where they depend on data."""
    index = scope.resolve(index)
    order = list(scope.extents)
    high = _upper(index, scope, order)
    negated = _upper(unwrap(0 - index), scope, order)
    return None if high is None or negated is None else (-negated, high)


def _upper(index: Size, scope: Scope, order: list[str]) -> int | None:
    """An upper bound of `index`."""
    if isinstance(index, int):
        return index
    for position in range(len(order) - 1, -1, -1):
        var = order[position]
        coefficient = _linear_coefficient(index, var)
        if coefficient is None:
            continue
        outer = order[:position]
        if coefficient < 0:
            return _upper(substitute(index, {var: 0}), scope, outer)
        found = [
            _upper(substitute(index, {var: last - 1}), scope, outer)
            for last in alternatives(scope.extents[var])
        ]
        known = [f for f in found if f is not None]
        return min(known) if known else None
    return _upper_of_terms(index, scope, order)


def held(value: Scalar, known: Mapping[str, Interval]) -> Interval | None:
    """What a scalar is held between, by literals; `known`: of names."""
    if not isinstance(value, Apply):
        return known.get(value.name) if isinstance(value, Var) else None
    if value.op == "cast" and value.dtype is dtypes.i64:
        return held(value.args[0], known)
    if value.op != "clamp" or not value.dtype.is_integer:
        return None
    _, low, high = value.args
    if not (isinstance(low, Literal) and isinstance(high, Literal)) or high.value < low.value:
        return None
    return int(low.value), int(high.value)


def _linear_coefficient(index: Dim, var: str) -> int | None:
    """c where index = c*var + rest and var is not in rest; None where it is absent or not so."""
    coefficient = None
    for monomial, c in index.terms:
        for atom, power in monomial:
            if atom.kind == "var" and atom.name == var:
                if len(monomial) > 1 or power > 1:
                    return None
                coefficient = c
            elif atom.kind != "var" and any(var in a.variables() for a in atom.args):
                return None
    return coefficient


def alternatives(extent: Size) -> Iterator[Size]:
    """Expressions that are each at least `extent`."""
    if isinstance(extent, Dim) and len(extent.terms) == 1:
        monomial, coefficient = extent.terms[0]
        if coefficient == 1 and len(monomial) == 1 and monomial[0][0].kind == "min":
            for arg in monomial[0][0].args:
                yield from alternatives(unwrap(arg))
            return
    yield extent


def _upper_of_terms(index: Dim, scope: Scope, order: list[str]) -> int | None:
    total = 0
    for monomial, coefficient in index.terms:
        bounds = _monomial(monomial, scope, order)
        if bounds is None:
            return None
        total += max(coefficient * bounds[0], coefficient * bounds[1])
    return total


def _monomial(monomial: Monomial, scope: Scope, order: list[str]) -> Interval | None:
    low = high = 1
    for atom, power in monomial:
        bounds = _atom(atom, scope, order)
        if bounds is None:
            return None
        for _ in range(power):
            ends = [low * bounds[0], low * bounds[1], high * bounds[0], high * bounds[1]]
            low, high = min(ends), max(ends)
    return low, high


def _atom(atom: Atom, scope: Scope, order: list[str]) -> Interval | None:
    if atom.kind == "var":
        if atom.name in scope.held:
            return scope.held[atom.name]
        if atom.name not in order:
            return None
        inner = order[: order.index(atom.name)]
        last = _upper(unwrap(scope.extents[atom.name] - 1), scope, inner)
        return None if last is None else (0, max(last, 0))
    left = _sub_interval(unwrap(atom.args[0]), scope, order)
    right = _sub_interval(unwrap(atom.args[1]), scope, order)
    if right is None or left is None:
        if atom.kind == "mod" and right is not None and right[0] > 0:
            return 0, right[1] - 1
        return None
    return _combine(atom.kind, left, right)


def _sub_interval(index: Size, scope: Scope, order: list[str]) -> Interval | None:
    high = _upper(index, scope, order)
    negated = _upper(unwrap(0 - index), scope, order)
    return None if high is None or negated is None else (-negated, high)


def _combine(kind: str, left: Interval, right: Interval) -> Interval | None:
    if kind == "min":
        return min(left[0], right[0]), min(left[1], right[1])
    if kind == "max":
        return max(left[0], right[0]), max(left[1], right[1])
    if right[0] <= 0:
        return None
    if kind == "floordiv":
        ends = [a // b for a in left for b in right]
        return min(ends), max(ends)
    if left[0] >= 0 and left[1] < right[0]:
        return left
    return 0, right[1] - 1
