"""A Graph as an SVG picture: inputs at the top, a box per kernel or operator, results below."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

from graphc.inspect.report import by_line
from graphc.ir.graph import Graph, Node
from graphc.ir.types import TensorType

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 44, 16, 34, 20
_LETTERS = 30  # that fit a box
_COLOURS = {
    "loop": "#dcecf9", "rows": "#e6e0f4", "contraction": "#fde3c8", "window": "#dff3df",
    "scatter": "#f9dede", "cumulative": "#f4f0cf", "input": "#f2f2f2", "const": "#f2f2f2",
}  # fmt: skip
_OTHER = "#ffffff"


class Box(NamedTuple):
    """One drawn node: its corner, texts and colour."""

    x: float
    y: float
    title: str
    detail: str
    hover: str
    colour: str
    result: bool


def graph_svg(graph: Graph) -> str:
    """The graph as an SVG document; each box shows its operators' source lines on hovering."""
    layers = _layers(graph)
    boxes = _boxes(graph, layers)
    width = max((box.x + _WIDTH for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _HEIGHT for box in boxes.values()), default=0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(graph.name)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#778"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts += _edges(graph, boxes)
    parts += [_box_text(box) for box in boxes.values()]
    return "\n".join([*parts, "</svg>", ""])


def _shown(graph: Graph) -> list[Node]:
    """What gets a box: not the `get`s, nor constants of one number."""
    return [
        node for node in graph.nodes
        if node.op.name != "get"
        and not (node.op.name == "const" and node.attrs["value"].array.size == 1)
    ]  # fmt: skip


def _sources(node: Node, shown: set[Node]) -> Iterable[Node]:
    """The boxes that a box reads, each once."""
    found = (x.inputs[0] if x.op.name == "get" else x for x in node.inputs)
    return [x for x in dict.fromkeys(found) if x in shown]


def _layers(graph: Graph) -> list[list[Node]]:
    """Boxes by depth; inputs just above their first reader; each layer ordered by what it reads."""
    import networkx as nx

    nodes = _shown(graph)
    shown = set(nodes)
    net: Any = nx.DiGraph()
    net.add_nodes_from(nodes)
    net.add_edges_from((x, node) for node in nodes for x in _sources(node, shown))
    depth: dict[Node, int] = {}
    for number, generation in enumerate(nx.topological_generations(net)):
        depth.update(dict.fromkeys(generation, number))
    for node in nodes:
        readers = [depth[reader] for reader in net.successors(node)]
        if not node.inputs and readers:
            depth[node] = min(readers) - 1
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    layers = [layer for layer in layers if layer]
    place: dict[Node, float] = {}
    for layer in layers:
        wanted: dict[Node, float] = {}
        for i, node in enumerate(layer):
            above = [place[x] for x in _sources(node, shown) if x in place]
            wanted[node] = sum(above) / len(above) if above else i - len(layer) / 2
        layer.sort(key=lambda node: wanted[node])
        place.update((node, i - len(layer) / 2) for i, node in enumerate(layer))
    return layers


def _boxes(graph: Graph, layers: list[list[Node]]) -> dict[Node, Box]:
    results = {x.inputs[0] if x.op.name == "get" else x for x in graph.outputs}
    widest = max((len(layer) for layer in layers), default=0)
    boxes: dict[Node, Box] = {}
    for row, layer in enumerate(layers):
        left = _MARGIN + (widest - len(layer)) * (_WIDTH + _GAP_X) / 2
        y = _MARGIN + row * (_HEIGHT + _GAP_Y)
        for column, node in enumerate(layer):
            x = left + column * (_WIDTH + _GAP_X)
            boxes[node] = _box(node, x, y, node in results)
    return boxes


def _box(node: Node, x: float, y: float, result: bool) -> Box:
    kind = node.attrs["kind"] if node.op.name == "fusion" else node.op.name
    types = [node.type] if isinstance(node.type, TensorType) else list(node.type.elements)
    detail = " ".join(map(str, types))
    if node.op.name == "fusion":
        inside = [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]
        title = " ".join(dict.fromkeys(n.op.name for n in inside)) or kind
        lines = [f"{loc}: {' '.join(ops)}" for loc, ops in by_line(inside)]
        hover = "\n".join([kind, detail, *lines])
    else:
        title = node.attrs.get("name") or node.op.name
        hover = "\n".join([node.op.name, detail, *([str(node.loc)] if node.loc else [])])
    return Box(x, y, title, detail, hover, _COLOURS.get(kind, _OTHER), result)


def _box_text(box: Box) -> str:
    stroke = 'stroke="#223" stroke-width="2"' if box.result else 'stroke="#99a"'
    middle = box.x + _WIDTH / 2
    return (
        f'<g><title>{escape(box.hover)}</title><rect x="{box.x:g}" y="{box.y:g}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{box.colour}" {stroke}/>'
        f'<text x="{middle:g}" y="{box.y + 18:g}" text-anchor="middle" font-weight="bold">'
        f"{escape(_clipped(box.title))}</text>"
        f'<text x="{middle:g}" y="{box.y + 34:g}" text-anchor="middle" fill="#445">'
        f"{escape(_clipped(box.detail))}</text></g>"
    )


def _clipped(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _edges(graph: Graph, boxes: dict[Node, Box]) -> list[str]:
    """Curves from the bottom of a box to the top of those that read it."""
    shown = set(boxes)
    paths: list[str] = []
    for node, box in boxes.items():
        sources = list(_sources(node, shown))
        for i, source in enumerate(sources):
            above = boxes[source]
            x1, y1 = above.x + _WIDTH / 2, above.y + _HEIGHT
            x2, y2 = box.x + _WIDTH * (i + 1) / (len(sources) + 1), box.y
            bend = max((y2 - y1) / 2, 10)
            paths.append(
                f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} '
                f'{x2:g} {y2:g}" fill="none" stroke="#778" marker-end="url(#head)"/>'
            )
    return paths
