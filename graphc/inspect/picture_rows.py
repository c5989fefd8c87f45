"""Which row of a picture a step is in: by Module, or source line; and the frames around rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graphc.inspect.picture_words import inside, is_scalar
from graphc.ir.graph import Graph, Node

_LEVELS = 3  # of frames, at most


class Row(NamedTuple):
    """A row's title, and the Module's path by components, as deep as it is told apart."""

    title: str
    path: tuple[str, ...]


class Frame(NamedTuple):
    """Neighbouring rows of one Module. `level`: 0 for the outermost."""

    first: int
    last: int
    title: str
    level: int


def rows_of(nodes: list[Node], most: int) -> dict[Node, Row]:
    """The row of each step: paths as deep as there is room for."""
    paths = {node: _path(node) for node in nodes}
    deepest = max(map(len, paths.values()), default=1)
    for depth in range(deepest, 0, -1):
        names = {node: Row(".".join(path[:depth]), path[:depth]) for node, path in paths.items()}
        rows = list(dict.fromkeys(names.values()))
        if len(rows) <= most:
            return names
    size = -(-len(rows) // most)  # neighbours share a row
    merged: dict[Row, Row] = {}
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        title = f"{part[0].title} to {part[-1].title}" if len(part) > 1 else part[0].title
        merged.update(dict.fromkeys(part, Row(title, (title,))))
    return {node: merged[name] for node, name in names.items()}


def _path(node: Node) -> tuple[str, ...]:
    """The Module that a step belongs to, by components; of none, the source line."""
    own = [n for n in inside(node) if n.loc is not None and n.loc.module]
    main = [n for n in own if n.op.family in ("contract", "window")]
    module = next((n.loc.module for n in (*main, *own) if n.loc is not None), "")
    if node.phase == "optimizer":
        names = [x.attrs["name"] for x in node.inputs if is_tensor_input(x)]
        owners = [name.rpartition(" of ")[2].rpartition(".")[0] for name in names]
        module = next((owner for owner in owners if owner), module)
    if module:
        return tuple(module.split("."))
    return ("",) if node.loc is None else (f"{os.path.basename(node.loc.file)}:{node.loc.line}",)


def is_tensor_input(node: Node) -> bool:
    """Whether it comes from outside the graph, and is more than a number."""
    return node.op.name == "input" and not is_scalar(node.tensor_type)


def in_order(
    rows: Mapping[Node, Row], numbers: Mapping[Node, int], read: Mapping[Node, list[Node]]
) -> list[Row]:
    """The rows by their last forward step that others go on from, the loss at the end; a row that
    has no forward step stands at the one that its Module was fused into. `read`: the steps that
    each reads."""
    last: dict[Row, float] = {}
    modules: dict[str, float] = {}
    forward = {node: numbers[node] for node in rows if node.phase == "forward"}
    for node in forward:
        for source in read[node]:
            if source in forward and rows[source] != rows[node]:
                last[rows[source]] = max(numbers[source], last.get(rows[source], 0))
        for inner in inside(node):
            if inner.loc is not None:
                modules[inner.loc.module] = numbers[node] + 0.5
    ends = {rows[node]: float(number) for node, number in forward.items()}
    last = {**ends, **last}
    for row in rows.values():
        if row not in last:
            name = row.title
            found = [n for m, n in modules.items() if m == name or m.startswith(f"{name}.")]
            last[row] = min(found, default=float("inf"))
    return sorted(last, key=lambda row: last[row])


def frames_of(rows: list[Row]) -> list[Frame]:
    """A frame around neighbours of the same Module, the outer ones first."""
    return list(_frames([row.path for row in rows], 0, len(rows), 0, 0))


def _frames(
    paths: list[tuple[str, ...]], first: int, stop: int, depth: int, level: int
) -> Iterator[Frame]:
    """Those of a stretch of rows, all of which have the first `depth` components in common."""
    while first < stop:
        head, end = paths[first][: depth + 1], first + 1
        while end < stop and len(head) > depth and paths[end][: depth + 1] == head:
            end += 1
        if end - first > 1 and level < _LEVELS:
            common = _in_common(paths[first:end])
            yield Frame(first, end - 1, ".".join(paths[first][:common]), level)
            yield from _frames(paths, first, end, common, level + 1)
        first = end


def _in_common(paths: list[tuple[str, ...]]) -> int:
    """How many components all begin with."""
    first, last = min(paths), max(paths)
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))


# --- what reads what ----------------------------------------------------------------------------


def sources_among(graph: Graph, drawn: Mapping[Node, int]) -> dict[Node, list[Node]]:
    """The drawn steps that each of them reads, through what has no box (get, reshape), into the
    bodies of loops and out of them."""
    ways: dict[Node, tuple[Node, ...]] = {}
    _through(graph, ways)
    return {node: _drawn_behind(node, drawn, ways) for node in drawn}


def _through(graph: Graph, ways: dict[Node, tuple[Node, ...]]) -> None:
    """What is behind the nodes at which a body begins and ends: the body's results behind a loop,
    and the loop's operands behind the body's inputs."""
    for node in graph.nodes:
        if not node.graphs or node.op.name == "fusion":
            continue
        ways[node] = tuple(n for body in node.graphs for n in body.outputs)
        for body in node.graphs:
            alike = len(body.inputs) == len(node.inputs)
            for place, given in enumerate(body.inputs):
                ways[given] = (node.inputs[place],) if alike else node.inputs
            _through(body, ways)


def _drawn_behind(
    node: Node, drawn: Mapping[Node, int], ways: Mapping[Node, tuple[Node, ...]]
) -> list[Node]:
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = [*node.inputs, *ways.get(node, ())]
    while stack:
        source = stack.pop()
        if source in seen:
            continue
        seen.add(source)
        if source in drawn:
            found[source] = None
        elif source.op.name != "fusion":
            stack.extend(source.inputs)
            stack.extend(ways.get(source, ()))
    return list(found)
