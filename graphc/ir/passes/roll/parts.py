"""Parts that steps put beside each other, one by one -> one `concat`.

Two ways to do so. Each step writes its part of a tensor (`out[:, t] = h`). Or each step that reads
a part of a sequence gives it a gradient, with zeros all around, and these are added up: x + 0 is x,
but -0.0 + 0.0 is 0.0, and so 0.0 is added once. As a concat no step handles all of the tensor
(which takes time quadratic in the steps), nor do steps differ by where their part lies.
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
    """Parts that do not overlap, in order along `dim`. `before` is what the first of them was
    added to, or written into."""

    before: Node | None
    parts: list[_Part]
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
        if dim is not None:
            found[node] = _Parts(rest, sorted(parts, key=lambda part: int(part.low[dim])), dim)
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
    """The only dim along which the parts lie beside each other, if they do."""
    moved = {
        d for part in parts for side in (part.low, part.high) for d, n in enumerate(side)
        if isinstance(n, Dim) or n != 0
    }
    if len(moved) != 1:
        return None
    (dim,) = moved
    sizes = [(part.low[dim], part.value.shape[dim], part.high[dim]) for part in parts]
    if any(isinstance(n, Dim) for size in sizes for n in size):
        return None
    end = 0
    for low, size, _ in sorted(sizes):
        if low < end:
            return None
        end = low + size
    return dim


def _joined(builder: Builder, node: Node, found: _Parts, new: dict[Node, Node]) -> Node:
    before, parts, dim = found
    added = node.op.name == "add"
    zero = 0.0 if node.dtype.is_float else 0
    pieces: list[Node] = []
    end = 0

    def fill(start: int) -> None:
        if start == end:
            return
        starts = tuple(end if d == dim else 0 for d in range(len(node.shape)))
        stops = tuple(start if d == dim else n for d, n in enumerate(node.shape))
        if added:
            shape = tuple(start - end if d == dim else n for d, n in enumerate(node.shape))
            piece = builder.emit(get("full"), shape=shape, value=zero, dtype=node.dtype)
        else:
            assert before is not None
            piece = builder.emit(
                get("slice"), new[before], starts=starts, stops=stops, steps=(1,) * len(starts)
            )
        pieces.append(piece)

    for part in parts:
        fill(part.low[dim])
        pieces.append(new[part.value])
        end = part.low[dim] + part.value.shape[dim]
    fill(end + parts[-1].high[dim])
    joined = builder.emit(get("concat"), *pieces, dim=dim)
    if not added:
        return joined
    total = builder.emit(get("add"), joined, builder.const(zero, node.dtype))
    return total if before is None else builder.emit(get("add"), new[before], total)
