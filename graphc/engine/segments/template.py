"""From recordings of a segment with other sizes and constants to one graph for all of them.

Two recordings with the same key differ in numbers only: sizes, positions, one-element constants.
Sizes of inputs that differ become named dims; every other integer that differs must be an
expression of these that fits both recordings; constants that differ become inputs. A later
recording is matched number by number, so an expression that does not fit it is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...frontend.segment_tape import Fingerprint
from ...ir.dim import Dim, DimEnv, Guard, evaluate
from ...ir.graph import Builder, Graph, Node
from ...ir.types import TensorType


class NoTemplate(Exception):
    """The recordings have no common graph."""


class Template:
    """A graph, and which recordings it stands for."""

    def __init__(
        self, name: str, forward: Fingerprint, whole: Fingerprint, inputs: list[Node],
        tangents: list[Node], outputs: list[Node], older: Template | None,
    ) -> None:
        """`whole`: with the gradients. Raises NoTemplate where `older` is too different."""
        self.key = whole.key
        self.numbers = list(whole.numbers)
        self.pattern: list[Any] = list(whole.numbers)
        self.places: dict[str, int] = {}  # of a dim's value among the numbers
        self.env = DimEnv()
        self.holes: set[int] = set()
        # constants that are inputs, by their place among the forward's nodes
        self.extra: list[int] = []
        if older is not None:
            self._generalise(older, whole)
        self.graph = self._rebuild(name, forward, whole, inputs, tangents, outputs)
        self.guards = tuple(self.env.guards)

    def assumes(self, sizes: tuple[Guard, ...]) -> None:
        """What compiling the graph assumed of its sizes holds, too."""
        self.guards += sizes

    # --- matching ----------------------------------------------------------------------------

    def match(self, whole: Fingerprint) -> dict[str, int] | None:
        """The dims' values of a recording; None if it is another one."""
        if whole.key != self.key:
            return None
        numbers = whole.numbers
        dims = {name: numbers[place] for name, place in self.places.items()}
        if any(size < 2 for size in dims.values()):
            return None
        for i, (expected, found) in enumerate(zip(self.pattern, numbers, strict=True)):
            if isinstance(expected, Dim):
                expected = evaluate(expected, dims)
            if expected != found and i not in self.holes:
                return None
        return dims if all(guard.check(dims) for guard in self.guards) else None

    def arrays(self, forward: Fingerprint) -> list[np.ndarray]:
        """The constants of a recording that are inputs."""
        return [forward.nodes[i].attrs["value"].array for i in self.extra]

    def free(self, whole: Fingerprint, forward: Fingerprint) -> set[int]:
        """Which of the forward's numbers need not be looked at: constants that are inputs."""
        nodes = {whole.scalars[place] for place in self.holes}
        return {place for place, node in forward.scalars.items() if node in nodes}

    # --- two recordings ----------------------------------------------------------------------

    def _generalise(self, older: Template, whole: Fingerprint) -> None:
        if older.key != self.key:
            raise NoTemplate
        before, now = older.numbers, self.numbers
        names: dict[tuple[int, int], str] = {}
        sizes: set[int] = set()
        for node, start in whole.shapes.items():
            for place in range(start, start + len(node.shape)):
                sizes.add(place)
                pair = before[place], now[place]
                if pair[0] == pair[1] and not isinstance(older.pattern[place], Dim):
                    continue
                if min(pair) < 2:
                    raise NoTemplate
                if pair not in names:
                    name = names[pair] = f"s{len(names)}"
                    self.env.new(name, pair[1])
                    self.places[name] = place
                self.pattern[place] = Dim.var(names[pair])
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            if place in whole.scalars:
                if old != new or place in older.holes:
                    self.holes.add(place)
            elif old != new and place not in sizes:
                self.pattern[place] = _expression(old, new, names)

    # --- the graph ---------------------------------------------------------------------------

    def _rebuild(
        self, name: str, forward: Fingerprint, whole: Fingerprint, inputs: list[Node],
        tangents: list[Node], outputs: list[Node],
    ) -> Graph:
        builder = Builder(self.env)
        made: dict[Node, Node] = {}
        shapes = {
            node: tuple(self.pattern[start : start + len(node.shape)])
            for node, start in whole.shapes.items()
        }
        holes = [whole.scalars[place] for place in sorted(self.holes)]
        constants = [*holes, *(node for node in whole.shapes if node.op.name == "const")]
        for node in inputs:
            made[node] = builder.input(TensorType(node.dtype, shapes[node]), node.attrs["name"])
        for node in constants:
            self.extra.append(forward.index[node])
            type_ = TensorType(node.dtype, shapes.get(node, node.shape))
            made[node] = builder.input(type_, f"constant{len(self.extra)}")
        for node in tangents:
            made[node] = builder.input(TensorType(node.dtype, shapes[node]), node.attrs["name"])
        places = iter(self.pattern)
        scalars = set(whole.scalars.values())
        for node in whole.nodes:
            if node in whole.shapes:
                for _ in node.shape:
                    next(places)
            elif node.op.name == "const":
                if node in scalars:
                    next(places)
                if node not in made:
                    made[node] = builder.const(node.attrs["value"].array)
            else:
                attrs = {key: _fill(value, places) for key, value in node.attrs.items()}
                builder.loc, builder.backward = node.loc, node.backward
                given = [made[n] for n in node.inputs]
                made[node] = builder.emit(node.op, *given, graphs=node.graphs, **attrs)
        return builder.build([made[n] for n in outputs], name)


def _fill(value: Any, places: Iterator[Any]) -> Any:
    if type(value) is int:
        return next(places)
    if type(value) is tuple:
        return tuple([_fill(v, places) for v in value])
    if isinstance(value, TensorType):
        return TensorType(value.dtype, tuple([next(places) for _ in value.shape]))
    return value


def _expression(old: int, new: int, names: dict[tuple[int, int], str]) -> Any:
    """An expression of the dims that is `old` and `new` for their two values."""
    for (before, now), name in names.items():
        if (before, now) == (old, new):
            return Dim.var(name)
    fits: list[tuple[int, Any]] = []
    for (before, now), name in names.items():
        if now != before and (new - old) % (now - before) == 0:
            factor = (new - old) // (now - before)
            rest = old - factor * before
            fits.append(((abs(factor) != 1) + (rest != 0), Dim.var(name) * factor + rest))
    for (before, now), name in names.items():
        for (second, then), other in names.items():
            if old % (before * second) == 0 and old // (before * second) * now * then == new:
                count = old // (before * second)
                fits.append((1, Dim.var(name) * Dim.var(other) * count))
    if not fits:
        raise NoTemplate
    return min(fits, key=lambda fit: fit[0])[1]
