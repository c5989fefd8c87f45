"""Sizes that are known at run time: read off the inputs' shapes, and computed as int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.ir import dtypes
from graphc.ir.dim import Atom, Dim, Guard, Size, evaluate, unwrap
from graphc.ir.dim_bounds import least

if TYPE_CHECKING:
    from .writer import Writer


def vector(w: Writer, size: Size) -> str:
    """An int64 vector of one element with a size."""
    size = unwrap(size)
    if isinstance(size, int):
        return w.ints([size])
    total = ""
    for monomial, coefficient in size.terms:
        factors = [_atom(w, atom) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.append(w.ints([coefficient]))
        term = factors[0]
        for factor in factors[1:]:
            term = w.emit("Mul", term, factor)
        total = w.emit("Add", total, term) if total else term
    return total


def _atom(w: Writer, atom: Atom) -> str:
    if atom.kind == "var":
        return _variable(w, atom.name)
    left, right = (w.shape((unwrap(each),)) for each in atom.args)
    if atom.kind in ("min", "max"):
        op: str = w.emit(atom.kind.capitalize(), left, right)
        return op
    rest: str = w.emit("Mod", left, right)  # with the sign of the divisor
    if atom.kind == "mod":
        return rest
    if least(unwrap(atom.args[0]), named=1) < 0:  # Div cuts off; sizes are floored
        left = w.emit("Sub", left, rest)
    quotient: str = w.emit("Div", left, right)
    return quotient


def _variable(w: Writer, name: str) -> str:
    place = w.places.get(name)
    if place is None:
        w.refuse(f"no input has the free size {name!r}", "pass a tensor of that size")
    found: str = w.emit("Shape", place.input, start=place.dim, end=place.dim + 1)
    if place.offset:
        found = w.emit("Sub", found, w.ints([place.offset]))
    return found if place.scale == 1 else w.emit("Div", found, w.ints([place.scale]))


@dataclass(frozen=True)
class Place:
    """Where a free size is read: a dim of an input, which is scale * size + offset."""

    input: str
    dim: int
    scale: int = 1
    offset: int = 0


def place_of(size: Dim, value: str, dim: int) -> tuple[str, Place]:
    """The name of the one free size that is in `size`, and where it is read."""
    (name,) = size.variables()
    zero, one = (evaluate(size, {name: each}) for each in (0, 1))
    return name, Place(value, dim, one - zero, zero)


def reshaped(have: tuple[Size, ...], want: tuple[Size, ...]) -> list[int] | None:
    """What Reshape is told as constants: 0 copies a size, -1 is what is left; None where sizes
    have to be computed."""
    if any(size == 0 for size in want):
        return None
    told: list[int] = []
    for number, size in enumerate(want):
        if isinstance(size, int):
            told.append(size)
        elif number < len(have) and have[number] == size:
            told.append(0)
        else:
            told.append(-1)
    if told.count(-1) > 1:
        return None
    if -1 in told and not _certain(have, want, told):
        return None
    return told


def _certain(have: tuple[Size, ...], want: tuple[Size, ...], told: list[int]) -> bool:
    """Whether what is left can be told: not where another copied size may be 0."""
    return all(
        told[number] != 0 or least(size, named=1) > 0
        for number, size in enumerate(want)
    )


def holds(w: Writer, guard: Guard) -> str:
    """A bool vector of one element: whether a fact about sizes holds."""
    left, right = w.shape((unwrap(guard.left),)), w.shape((unwrap(guard.right),))
    if guard.relation == "divides":
        found = w.emit("Equal", w.emit("Mod", right, left), w.ints([0]))
    else:
        found = w.emit({"eq": "Equal", "le": "LessOrEqual"}[guard.relation], left, right)
    assert w.types[found] is dtypes.bool_
    text: str = found if guard.holds else w.emit("Not", found)
    return text
