"""Values of different steps as the rows of one value, without a copy of each.

What steps read in turn are rows of a sequence if they are parts of one value at even distances
(slices, or results of another loop), or numbers. Anything else would have to be copied together
at each call: weights of equal layers, say. Such steps stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dim import Dim, unwrap
from ...graph import Builder, Constant, Node, const
from ...op import get

_RUN = 4  # so many rows behind each other are taken at once


class _Part(NamedTuple):
    """A value as a part of `whole`, at `place`; parts of equal keys may be rows together."""

    key: Any
    whole: Node | None
    place: tuple[int, ...]


class Begun(NamedTuple):
    """What each of `steps` steps begins with, stacked: the old node `first`, and what the steps
    before have computed, `by` rows further than where that is stacked itself."""

    whole: Node
    first: Node
    by: int
    steps: int


class Rows:
    """Rows of stacked results, and sequences made of rows.

    `value` gives the new node of an old one. `stacked` tells of old nodes which row of which new
    node they are; `begun` of a stacked result where the same values lie from one step before its
    first on.
    """

    def __init__(self, builder: Builder, value: Callable[[Node], Node]) -> None:
        self.builder = builder
        self.value = value
        self.stacked: dict[Node, tuple[Node, int]] = {}
        self.begun: dict[Node, Begun] = {}

    def row(self, node: Node) -> Node:
        """The new node of a row of a stacked result."""
        whole, place = self.stacked[node]
        return self._shaped(self._taken(whole, 0, place, 1, 1), node.shape)

    def completed(self, nodes: Sequence[Node | None]) -> list[Node]:
        """The same rows, and where nothing is read what lies there, going on from the middle."""
        found, middle = list(nodes), len(nodes) // 2
        for step, places in ((1, range(middle - 1, -1, -1)), (-1, range(middle, len(nodes)))):
            for i in places:
                if found[i] is None:
                    found[i] = self._before(found[i + step], found[i + 2 * step])
        return [node for node in found if node is not None]

    def even(self, nodes: Sequence[Node]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of the nodes are rows of one sequence, together with the middle one."""
        parts = self._parts(nodes)
        middle = len(parts) // 2
        first, second = parts[middle], parts[middle + 1]
        if first is None or second is None or first.key != second.key:
            return np.zeros(len(parts), np.bool_)
        places = np.array(
            [first.place if x is None or x.key != first.key else x.place for x in parts], np.int64
        ).reshape(len(parts), -1)
        fits = np.array([x is not None and x.key == first.key for x in parts])
        step = places[middle + 1] - places[middle]
        if not self._regular(nodes[middle], step):
            return np.zeros(len(parts), np.bool_)
        number = np.arange(len(parts))[:, None] - middle
        fits &= (places == places[middle] + number * step).all(1)
        return fits

    def direction(self, nodes: Sequence[Node]) -> int:
        """-1 where the rows come last first, 0 where they have no order of their own."""
        return int(np.sign(sum(self._distance(nodes))))

    def sequence(self, nodes: Sequence[Node]) -> Node:
        """Rows of one sequence (all of them `even`), stacked along a new first dim."""
        first = self._parts(nodes)[0]
        if first is not None and first.whole is None:
            return self._numbers(nodes)
        falling = self.direction(nodes) < 0
        if falling:
            nodes = nodes[::-1]
        found = self._stack_of(nodes)
        if falling:
            found = self.builder.emit(get("flip"), found, dims=(0,))
        return found

    def joined(self, node: Node) -> Node | None:
        """A `concat` with what are rows of one stacked result taken together."""
        runs: list[list[Node]] = []
        for x in node.inputs:
            if runs and self._follows(runs[-1], x):
                runs[-1].append(x)
            else:
                runs.append([x])
        if not any(len(run) >= _RUN for run in runs):
            return None
        dim: int = node.attrs["dim"]
        pieces: list[Node] = []
        for run in runs:
            if len(run) >= _RUN:
                pieces.append(self._merged(self.sequence(run), dim))
            else:
                pieces += [self.value(x) for x in run]
        if len(pieces) == 1:
            return pieces[0]
        return self.builder.emit(node.op, *pieces, dim=dim)

    # --- inside ---------------------------------------------------------------------------------

    def _parts(self, nodes: Sequence[Node]) -> list[_Part | None]:
        parts = [self._part(node) for node in nodes]
        middle = parts[len(parts) // 2]
        begun = None if middle is None or middle.whole is None else self.begun.get(middle.whole)
        if middle is None or begun is None or begun.first not in nodes:
            return parts
        whole, first, by, steps = begun
        found: list[_Part | None] = []
        for node, part in zip(nodes, parts, strict=True):
            place = -1
            if node is first:
                place = 0 if by > 0 else steps - 1
            elif part is not None and part.key == middle.key:
                place = part.place[0] + by
            inside = 0 <= place < steps
            found.append(_Part(("row", whole), whole, (place,)) if inside else None)
        return found

    def _part(self, node: Node) -> _Part | None:
        if node in self.stacked:
            whole, place = self.stacked[node]
            return _Part(("row", whole), whole, (place,))
        if node.op is const:
            return _Part(("number", node.type), None, ())
        if node.op.name == "full" and isinstance(node.attrs["value"], (bool, int, float)):
            return _Part(("filled", node.type), None, ())
        if node.op.name != "slice":
            return None
        starts, stops = node.attrs["starts"], node.attrs["stops"]
        sizes = tuple(unwrap(b - a) for a, b in zip(starts, stops, strict=True))
        symbolic = tuple(n if isinstance(n, Dim) else 0 for n in starts)
        key = ("slice", node.inputs[0], node.type, node.attrs["steps"], sizes, symbolic)
        places = tuple(n if isinstance(n, int) else 0 for n in starts)
        return _Part(key, node.inputs[0], places)

    def _before(self, node: Node | None, behind: Node | None) -> Node:
        """The row before two others; one of them where there is none."""
        assert node is not None and behind is not None
        one, two = self._part(node), self._part(behind)
        if one is None or two is None or one.key != two.key or one.whole is None:
            return node
        place = [2 * a - b for a, b in zip(one.place, two.place, strict=True)]
        if node in self.stacked:
            if place[0] < 0 or one.whole.shape[0] <= place[0]:  # type: ignore[operator]
                return node
            found = self._shaped(self._taken(one.whole, 0, place[0], 1, 1), node.shape)
            self.stacked[found] = one.whole, place[0]
            return found
        starts, stops = node.attrs["starts"], node.attrs["stops"]
        moved = [b - a for a, b in zip(one.place, place, strict=True)]
        starts, stops = (
            tuple(n + d if d else n for n, d in zip(x, moved, strict=True)) for x in (starts, stops)
        )
        sizes = one.whole.shape
        if any(d and not (a >= 0 and b <= n) for a, b, n, d in zip(
            starts, stops, sizes, moved, strict=True
        )):
            return node
        attrs = {**node.attrs, "starts": starts, "stops": stops}
        return self.builder.emit(node.op, *node.inputs, **attrs)

    def _distance(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        one, two = self._parts(nodes)[:2]
        assert one is not None and two is not None
        return tuple(b - a for a, b in zip(one.place, two.place, strict=True))

    def _regular(self, node: Node, step: np.ndarray[Any, Any]) -> bool:
        """Whether such steps from row to row can be said as one slice."""
        if node in self.stacked:
            return abs(int(step[0])) == 1
        if node.op.name != "slice":
            return True
        moved = np.flatnonzero(step)
        if len(moved) != 1:
            return False
        (dim,) = moved
        width = node.shape[dim]
        if isinstance(width, Dim):
            return False
        return width == 1 or (width == abs(int(step[dim])) and node.attrs["steps"][dim] == 1)

    def _follows(self, run: Sequence[Node], node: Node) -> bool:
        if node not in self.stacked or run[-1] not in self.stacked:
            return False
        whole, place = self.stacked[node]
        last, before = self.stacked[run[-1]]
        if whole is not last or abs(place - before) != 1:
            return False
        return len(run) == 1 or place - before == before - self.stacked[run[-2]][1]

    def _stack_of(self, nodes: Sequence[Node]) -> Node:
        """Rows in rising order."""
        first, count = nodes[0], len(nodes)
        part = self._parts(nodes)[0]
        if part is not None and part.whole is not None and part.key == ("row", part.whole):
            return self._taken(part.whole, 0, part.place[0], count, 1)
        (dim,) = np.flatnonzero(self._distance(nodes))
        step, width = self._distance(nodes)[dim], first.shape[dim]
        attrs = {key: list(first.attrs[key]) for key in ("starts", "stops", "steps")}
        attrs["stops"][dim] = attrs["starts"][dim] + (count - 1) * step + width
        attrs["steps"][dim] = step if width == 1 else 1
        taken = self.builder.emit(
            first.op, self.value(first.inputs[0]), **{k: tuple(v) for k, v in attrs.items()}
        )
        shape = (*first.shape[:dim], count, width, *first.shape[dim + 1 :])
        split = self._shaped(taken, shape)
        order = (int(dim), *(d for d in range(len(shape)) if d != dim))
        return self.builder.emit(get("permute"), split, dims=order)

    def _numbers(self, nodes: Sequence[Node]) -> Node:
        if nodes[0].op is const:
            return self.builder.emit(
                const, value=Constant(np.stack([node.attrs["value"].array for node in nodes]))
            )
        values = self.builder.const([x.attrs["value"] for x in nodes], nodes[0].dtype)
        shape = nodes[0].shape
        column = self._shaped(values, (len(nodes), *(1 for _ in shape)))
        return self.builder.emit(get("expand"), column, shape=(len(nodes), *shape))

    def _taken(self, whole: Node, dim: int, start: int, count: int, step: int) -> Node:
        shape = whole.shape
        if start == 0 and count == shape[dim]:
            return whole
        starts = tuple(start if d == dim else 0 for d in range(len(shape)))
        stops = tuple(start + count * step if d == dim else n for d, n in enumerate(shape))
        steps = tuple(step if d == dim else 1 for d in range(len(shape)))
        return self.builder.emit(get("slice"), whole, starts=starts, stops=stops, steps=steps)

    def _merged(self, sequence: Node, dim: int) -> Node:
        """Rows [count, *shape] behind each other along dim `dim` of their own."""
        count, *shape = sequence.shape
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1))
        if order != tuple(range(len(order))):
            sequence = self.builder.emit(get("permute"), sequence, dims=order)
        merged = unwrap(count * shape[dim])
        return self._shaped(sequence, (*shape[:dim], merged, *shape[dim + 1 :]))

    def _shaped(self, node: Node, shape: Sequence[Any]) -> Node:
        if node.shape == tuple(shape):
            return node
        return self.builder.emit(get("reshape"), node, shape=tuple(shape))

