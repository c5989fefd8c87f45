"""Parts that steps put beside each other, one by one -> one `concat`.

Two ways to do so. Each step writes its part of a tensor (`out[:, t] = h`). Or each step that reads
a part of a sequence gives it a gradient, with zeros all around, and these are added up: x + 0 is x,
but -0.0 + 0.0 is 0.0, and so 0.0 is added once. What several steps, or one step several times, add
in the same place is a concat of its own, added in the same order. As a concat no step handles all
of the tensor (which takes time quadratic in the steps), nor do steps differ by where their part
lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ...dim import Dim
from ...graph import Builder, Graph, Node
from ...op import get
from ...rewrite import rebuilt, with_inputs


class _Part(NamedTuple):
    """A value, and where it lies in the whole: where it begins in each dim, and what is behind."""

    value: Node
    low: tuple[Any, ...]
    high: tuple[Any, ...]


class _Parts(NamedTuple):
    """Layers of parts that do not overlap, in order along `dim`. `before` is what the first of
    them was added to, or written into."""

    before: Node | None
    layers: list[list[_Part]]
    dim: int


def joined_parts(graph: Graph, least: int) -> Graph:
    """The graph with sums and writes of at least `least` parts as concats."""
    found: dict[Node, _Parts] = {}
    for name, link in (("pad", _added), ("slice_update", _written)):
        if sum(node.op.name == name for node in graph.nodes) >= least:
            found |= _chains(graph, link, least)
    if not found:
        return graph
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in found:
            with builder.at(node.loc, node.backward):
                new[node] = _joined(builder, node, found[node], new)
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return rebuilt(graph, new)


Link = Callable[[Node], tuple[Node, _Part] | None]


def _chains(graph: Graph, link: Link, least: int) -> dict[Node, _Parts]:
    """Where the last part is put beside the others, and all of them."""
    uses: dict[Node, int] = dict.fromkeys(graph.outputs, 1)
    for node in graph.nodes:
        for x in node.inputs:
            uses[x] = uses.get(x, 0) + 1
    found: dict[Node, _Parts] = {}
    inside: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in inside:
            continue
        parts: list[_Part] = []
        rest: Node | None = node
        while rest is not None and (rest is node or uses[rest] == 1):
            step = link(rest)
            if step is None:
                break
            inside.add(rest)
            rest, part = step
            parts.append(part)
        if link is _added and rest is not None and _is_padded(rest):
            parts.append(_padded(rest))
            rest = None
        dim = _dim(parts) if len(parts) >= least else None
        layers = [] if dim is None else _layers(parts[::-1], dim)
        many = len(parts) >= least * len(layers) and (link is _added or len(layers) == 1)
        if dim is not None and layers and many:
            found[node] = _Parts(rest, layers, dim)
    return found


def _added(node: Node) -> tuple[Node, _Part] | None:
    """What a padded part is added to, and the part."""
    if node.op.name != "add" or any(x.type != node.type for x in node.inputs):
        return None
    one, other = node.inputs
    if _is_padded(other):
        return one, _padded(other)
    return (other, _padded(one)) if _is_padded(one) else None


def _is_padded(node: Node) -> bool:
    """Whether a value lies among zeros."""
    if node.op.name != "pad" or any(node.attrs["interior"]):
        return False
    value = node.attrs["value"]
    return value == 0 and math.copysign(1, value) > 0 and node.dtype.kind in ("int", "float")


def _padded(node: Node) -> _Part:
    return _Part(node.inputs[0], node.attrs["low"], node.attrs["high"])


def _written(node: Node) -> tuple[Node, _Part] | None:
    """What a part is written into, and the part."""
    if node.op.name != "slice_update" or any(step != 1 for step in node.attrs["steps"]):
        return None
    whole, value = node.inputs
    stops = node.attrs["stops"]
    behind = tuple(n - stop for n, stop in zip(whole.shape, stops, strict=True))
    return whole, _Part(value, node.attrs["starts"], behind)


def _dim(parts: list[_Part]) -> int | None:
    """The only dim along which the parts lie at different places, if there is one."""
    moved = {
        d for part in parts for side in (part.low, part.high) for d, n in enumerate(side)
        if isinstance(n, Dim) or n != 0
    }
    return moved.pop() if len(moved) == 1 else None


def _layers(parts: list[_Part], dim: int) -> list[list[_Part]]:
    """Parts that do not overlap, in order along `dim`: the first at each place, the second (what
    is added there later), and so on. None at all where parts overlap in another way."""
    layers: list[list[_Part]] = []
    met: dict[tuple[Any, Any], int] = {}
    for part in parts:
        low, size = part.low[dim], part.value.shape[dim]
        if any(isinstance(n, Dim) for n in (low, size, part.high[dim])):
            return []
        number = met.get((low, size), 0)
        met[low, size] = number + 1
        if number == len(layers):
            layers.append([])
        layers[number].append(part)
    end = 0
    for low, size in sorted(met):
        if low < end:
            return []
        end = low + size
    return [sorted(layer, key=lambda part: int(part.low[dim])) for layer in layers]


def _joined(builder: Builder, node: Node, found: _Parts, new: dict[Node, Node]) -> Node:
    before, layers, dim = found
    if node.op.name != "add":
        return _beside(builder, node, before, layers[0], dim, new)
    total = None if before is None else new[before]
    zero = builder.const(0.0 if node.dtype.is_float else 0, node.dtype)
    for parts in layers:
        joined = builder.emit(get("add"), _beside(builder, node, None, parts, dim, new), zero)
        total = joined if total is None else builder.emit(get("add"), total, joined)
    assert total is not None
    return total


def _beside(
    builder: Builder, node: Node, before: Node | None, parts: list[_Part], dim: int,
    new: dict[Node, Node],
) -> Node:
    """The parts beside each other, among parts of what was there before, or zeros."""
    pieces: list[Node] = []
    end = 0

    def fill(start: int) -> None:
        if start == end:
            return
        starts = tuple(end if d == dim else 0 for d in range(len(node.shape)))
        stops = tuple(start if d == dim else n for d, n in enumerate(node.shape))
        if before is None:
            shape = tuple(start - end if d == dim else n for d, n in enumerate(node.shape))
            value = 0.0 if node.dtype.is_float else 0
            piece = builder.emit(get("full"), shape=shape, value=value, dtype=node.dtype)
        else:
            piece = builder.emit(
                get("slice"), new[before], starts=starts, stops=stops, steps=(1,) * len(starts)
            )
        pieces.append(piece)

    for part in parts:
        fill(part.low[dim])
        pieces.append(new[part.value])
        end = part.low[dim] + part.value.shape[dim]
    fill(end + parts[-1].high[dim])
    return builder.emit(get("concat"), *pieces, dim=dim)
