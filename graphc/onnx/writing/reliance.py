"""What a model relies on of its free sizes. An ONNX file has no ranges and no guards, and other
sizes would give other numbers than the model does: so the file itself refuses them.

A Gather beyond the end of a vector fails where a fact does not hold; its name says the fact. What
it gives otherwise, 0, is where the input begins. Facts that follow from the ranges are left out,
and those of views that a size of 1 decides otherwise, where the graph was compared with one that
was recorded at 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.export.contents import Variant
from graphc.export.dynamic_shapes import Range
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Guard, Size, mod, substitute, unwrap

from .sizes import holds

if TYPE_CHECKING:
    from .writer import Writer

Ones = frozenset[str]  # the free sizes that are 1
_ALL = 2**63 - 1  # an end of Slice that is behind every element


@dataclass(frozen=True)
class Fact:
    """Holds, unless the sizes of 1 are one of `unless`."""

    guard: Guard
    unless: tuple[Ones, ...] = ()


class Reliance:
    """The facts of a program whose graphs are `main` and, for sizes of 1, `others`; those of `same`
    were recorded at 1, and compute what `main` does."""

    def __init__(
        self, ranges: Mapping[str, Range], main: Variant, others: Sequence[Variant],
        same: Sequence[Variant],
    ) -> None:
        self.ranges = ranges
        self.ones = sorted(name for name, bounds in ranges.items() if bounds.least == 1)
        self.main, self.others, self.same = main, others, same

    def facts(self) -> Iterator[Fact]:
        """What has to be asked at run time."""
        sets = [
            frozenset(names) for count in range(len(self.ones) + 1)
            for names in itertools.combinations(self.ones, count)
        ]
        apart = {variant.ones: variant for variant in self.others}
        for guard in self.main.graph.env.guards:
            yield from self._fact(guard, [s for s in sets if s not in apart], sets)
        known = self.main.graph.env.guards
        for variant in (*self.others, *self.same):
            for guard in variant.graph.env.guards:
                if variant in self.others or guard not in known:
                    yield from self._fact(guard, [variant.ones], sets)
        for name in self.main.signature.narrowed:
            yield Fact(Guard("le", self.ranges[name].least, Dim.var(name), True))

    def _fact(self, guard: Guard, asked: Sequence[Ones], sets: Sequence[Ones]) -> Iterator[Fact]:
        """The guard, which is to hold where the sizes of 1 are one of `asked`."""
        needed = [ones for ones in asked if not self._settled(guard, ones)]
        if needed:
            yield Fact(guard, tuple(ones for ones in sets if ones not in needed))

    def _settled(self, guard: Guard, ones: Ones) -> bool:
        """Whether nothing is to be asked where these sizes are 1 and others are not."""
        left, right = (
            unwrap(substitute(size, dict.fromkeys(ones, 1))) for size in (guard.left, guard.right)
        )
        bounds = {
            name: Range(max(2, each.least) if name in self.ones else each.least, each.most)
            for name, each in self.ranges.items() if name not in ones
        }
        if follows(guard.relation, left, right, guard.holds, bounds):
            return True
        # of a view's strides: what was recorded at 1 was found to be the same graph
        return bool(ones) and follows(guard.relation, left, right, not guard.holds, bounds)


# --- what follows ------------------------------------------------------------------------------


def follows(
    relation: str, left: Size, right: Size, positive: bool, bounds: Mapping[str, Range]
) -> bool:
    """Whether a fact follows from the ranges; it may where this says no."""
    if relation == "divides":
        return positive and mod(right, left) == 0
    if relation == "le":
        return _not_negative(right - left if positive else left - right - 1, bounds)
    if positive:
        return left == right
    return _not_negative(left - right - 1, bounds) or _not_negative(right - left - 1, bounds)


def _not_negative(value: Size, bounds: Mapping[str, Range]) -> bool:
    """Whether a polynomial of free sizes is at least 0 for all of them: where each is its least and
    something, or its most less something, no term is negative."""
    value = unwrap(value)
    if isinstance(value, int):
        return value >= 0
    if any(atom.kind != "var" for monomial, _ in value.terms for atom, _ in monomial):
        return False
    names = sorted(value.variables())
    if any(name not in bounds for name in names) or len(names) > 4:
        return False
    ways: list[list[Size]] = []
    for name in names:
        own, more = bounds[name], Dim.var(name)
        ways.append([more + own.least] + ([] if own.most is None else [own.most - more]))
    return any(
        _no_term_is_negative(substitute(value, dict(zip(names, way, strict=True))))
        for way in itertools.product(*ways)
    )


def _no_term_is_negative(value: Size) -> bool:
    value = unwrap(value)
    if isinstance(value, int):
        return value >= 0
    return all(factor >= 0 for _, factor in value.terms)


# --- nodes -------------------------------------------------------------------------------------


def at_ones(w: Writer, ones: Collection[str], names: Collection[str]) -> str:
    """A bool vector of one element: whether of these names exactly `ones` are 1."""
    found = ""
    for name in sorted(names):
        one = w.emit("Equal", w.shape((Dim.var(name),)), w.ints([1]))
        if name not in ones:
            one = w.emit("Not", one)
        found = w.emit("And", found, one) if found else one
    return found


def refusing(w: Writer, reliance: Reliance) -> dict[str, str]:
    """Inputs by name, as values that fail unless all facts hold."""
    by_place: dict[tuple[str, int], list[str]] = {}
    for fact in reliance.facts():
        names = sorted(
            name for size in (fact.guard.left, fact.guard.right) if isinstance(size, Dim)
            for name in size.variables()
        )
        if names:
            place = w.places[names[0]]
            by_place.setdefault((place.input, place.dim), []).append(_zero(w, fact, reliance.ones))
    found: dict[str, str] = {}
    for (name, dim), zeros in by_place.items():
        start = zeros[0]
        for zero in zeros[1:]:
            start = w.emit("Add", start, zero)
        found[name] = w.emit(
            "Slice", found.get(name, name), start, w.ints([_ALL]), w.ints([dim])
        )
    return found


def _zero(w: Writer, fact: Fact, names: Collection[str]) -> str:
    """[0] where the fact holds; elsewhere there is no result."""
    good = holds(w, fact.guard)
    for ones in fact.unless:
        good = w.emit("Or", good, at_ones(w, ones, names))
    zero: str = w.emit("Gather", w.ints([0]), w.cast(w.emit("Not", good), dtypes.i64))
    w.nodes[-1].name = w.name(f"this model holds only where {w.labelled(fact.guard.text())}")
    return zero
