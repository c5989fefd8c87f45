"""A Graph as an SVG picture: a row per Module (or source line), a column per phase.

The forward pass runs down the first column, the backward pass up the second, and the optimizer's
updates stand beside the gradients that they read. A box lists its steps by number, in the order
in which they run. Many rows are collapsed: "blocks.0.attn" and "blocks.0.mlp" to "blocks.0".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

from graphc.inspect.report import by_line
from graphc.ir.dim import Dim
from graphc.ir.graph import Graph, Node
from graphc.ir.types import TensorType

_PHASES = ("forward", "backward", "optimizer")
_WIDTH, _GAP_X, _GAP_Y, _MARGIN, _LINE, _PAD = 330, 70, 26, 20, 16, 8
_LEFT = 56  # room for arrows beside the first column
_ROWS = 16  # at most, before they are collapsed
_STEPS = 6  # at most, that a box lists; more are counted by kind
_FONT = 11
_KINDS = {
    "contraction": "#f2a65a", "window": "#7fc97f", "rows": "#9c8fd4", "loop": "#7fb2e5",
    "scatter": "#e58a8a", "cumulative": "#d8c84a",
}
_OTHER = "#c8c8c8"  # operators that are steps of their own


class Box(NamedTuple):
    """The steps of one phase of a row, and where they are drawn."""

    nodes: list[Node]
    lines: list[tuple[str, str]]  # (colour, text)
    row: int
    column: int
    x: float
    y: float
    height: float


def graph_svg(graph: Graph, numbers: Mapping[Node, int] | None = None) -> str:
    """The graph as an SVG document; a box shows its operators' source lines on hovering.

    `numbers`: those of the steps that the nodes run as; without it, the order of the nodes.
    """
    if numbers is None:
        computing = [n for n in graph.nodes if n.op.family not in ("structure", "create")]
        computing += [n for n in graph.nodes if n.op.name == "fusion"]
        numbers = {node: i for i, node in enumerate(n for n in graph.nodes if n in {*computing})}
    steps = sorted(numbers, key=lambda node: numbers[node])
    counters = [node for node in steps if _is_counter(node)]
    shown = [node for node in steps if node not in set(counters)]
    names = _row_names(shown)
    titles = _in_order(names, numbers)
    columns = [phase for phase in _PHASES if any(node.phase == phase for node in shown)]
    boxes = _boxes(graph, shown, names, titles, columns, numbers)
    width = _LEFT + max(len(columns), 1) * (_WIDTH + _GAP_X) - _GAP_X + _MARGIN
    bottom = max((box.y + box.height for box in boxes), default=_top()) + _MARGIN
    parts = [_head(graph, width, bottom + 2 * _LINE), *_legend(shown, columns)]
    parts += _edges(boxes)
    parts += [_box_text(graph, box, titles[box.row]) for box in boxes]
    parts += _footer(graph, counters, numbers, bottom)
    return "\n".join([*parts, "</svg>", ""])


# --- rows --------------------------------------------------------------------------------------


def _is_counter(node: Node) -> bool:
    """Whether a step only counts, as of an optimizer's or a BatchNorm's steps."""
    types = [node.type] if isinstance(node.type, TensorType) else list(node.type.elements)
    if not all(_is_scalar(type_) for type_ in types):
        return False
    return node.phase == "optimizer" or all(
        x.op.name in ("input", "const") and _is_scalar(x.tensor_type) and x.dtype.is_integer
        for x in node.inputs
    )


def _is_scalar(type_: TensorType) -> bool:
    return all(size == 1 for size in type_.shape)


def _path(node: Node) -> tuple[str, ...]:
    """The Module that a step belongs to, by components; of none, the source line."""
    inside = [n for n in _inside(node) if n.loc is not None and n.loc.module]
    main = [n for n in inside if n.op.family in ("contract", "window")]
    module = next((n.loc.module for n in (*main, *inside) if n.loc is not None), "")
    if node.phase == "optimizer":
        names = [x.attrs["name"] for x in node.inputs if _is_tensor_input(x)]
        owners = [name.rpartition(" of ")[2].rpartition(".")[0] for name in names]
        module = next((owner for owner in owners if owner), module)
    if module:
        return tuple(module.split("."))
    return ("",) if node.loc is None else (f"{os.path.basename(node.loc.file)}:{node.loc.line}",)


def _is_tensor_input(node: Node) -> bool:
    return node.op.name == "input" and not _is_scalar(node.tensor_type)


def _row_names(nodes: list[Node]) -> dict[Node, str]:
    """The row of each step: paths as deep as there is room for."""
    paths = {node: _path(node) for node in nodes}
    deepest = max(map(len, paths.values()), default=1)
    for depth in range(deepest, 0, -1):
        names = {node: ".".join(path[:depth]) for node, path in paths.items()}
        rows = list(dict.fromkeys(names.values()))
        if len(rows) <= _ROWS:
            return names
    size = -(-len(rows) // _ROWS)  # neighbours share a row
    merged: dict[str, str] = {}
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        merged.update(dict.fromkeys(part, f"{part[0]} to {part[-1]}"))
    return {node: merged[name] for node, name in names.items()}


def _in_order(names: dict[Node, str], numbers: Mapping[Node, int]) -> list[str]:
    """The rows by their last forward step that others go on from, the loss at the end; a row that
    has no forward step stands at the one that its Module was fused into."""
    last: dict[str, float] = {}
    modules: dict[str, float] = {}
    forward = {node: numbers[node] for node in names if node.phase == "forward"}
    for node in forward:
        for source in _drawn_sources(node, forward):
            if names[source] != names[node]:
                last[names[source]] = max(numbers[source], last.get(names[source], 0))
        for inner in _inside(node):
            if inner.loc is not None:
                modules[inner.loc.module] = numbers[node] + 0.5
    ends = {names[node]: number for node, number in forward.items()}
    last = {**ends, **last}
    for name in names.values():
        if name not in last:
            found = [n for m, n in modules.items() if m == name or m.startswith(f"{name}.")]
            last[name] = min(found, default=float("inf"))
    return sorted(last, key=lambda name: last[name])


# --- boxes -------------------------------------------------------------------------------------


def _top() -> float:
    """Where the rows begin, below the legend and the columns' titles."""
    return _MARGIN + 4 * _LINE


def _boxes(
    graph: Graph, shown: list[Node], names: dict[Node, str], titles: list[str],
    columns: list[str], numbers: Mapping[Node, int],
) -> list[Box]:
    cells: dict[tuple[int, int], list[Node]] = {}
    rows = {title: i for i, title in enumerate(titles)}
    for node in shown:
        cells.setdefault((rows[names[node]], columns.index(node.phase)), []).append(node)
    boxes: list[Box] = []
    y = _top()
    for row, title in enumerate(titles):
        made = [
            (column, cells[row, column], _lines(cells[row, column], title, numbers))
            for column in range(len(columns)) if (row, column) in cells
        ]
        height = max(2 * _PAD + _LINE * (1 + len(lines)) for _, _, lines in made)
        for column, nodes, lines in made:
            x = _LEFT + column * (_WIDTH + _GAP_X)
            boxes.append(Box(nodes, lines, row, column, x, y, height))
        y += height + _GAP_Y
    return boxes


def _lines(nodes: list[Node], title: str, numbers: Mapping[Node, int]) -> list[tuple[str, str]]:
    """What a box says below its title: its steps, and the named tensors that they read."""
    found: list[tuple[str, str]] = []
    if len(nodes) <= _STEPS:
        for node in nodes:
            head, tail = f"{numbers[node]}  ", f" → {_result(node)}"
            room = _WIDTH - 2 * _PAD - _LINE - _text_width(head + tail)
            found.append((_colour(node), head + _fit(" ".join(_ops(node)), room) + tail))
    else:
        for kind, count in Counter(_kind(node) for node in nodes).most_common():
            first = next(node for node in nodes if _kind(node) == kind)
            found.append((_colour(first), f"{count} {kind}" + (" steps" if count > 1 else " step")))
        places = sorted(numbers[node] for node in nodes)
        found.append(("", f"steps {_ranges(places)}"))
    verb = "updates" if nodes[0].phase == "optimizer" else "reads"
    read = _named(nodes, title)
    if read:
        found.append(("", f"{verb} {', '.join(read)}"))
    return [(colour, _fit(text, _WIDTH - 2 * _PAD - _LINE)) for colour, text in found]


def _named(nodes: Iterable[Node], title: str) -> list[str]:
    """Names of the tensors that come from outside the graph, relative to the row."""
    found: dict[str, None] = {}
    for node in nodes:
        for source in node.inputs:
            if _is_tensor_input(source):
                name = source.attrs["name"]
                owner = name.rpartition(" of ")[2] if node.phase == "optimizer" else name
                found[owner.removeprefix(f"{title}.")] = None
    return list(found)


def _ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _kind(node: Node) -> str:
    kind: str = node.attrs["kind"] if node.op.name == "fusion" else node.op.name
    return kind.removesuffix("_unchecked")


def _colour(node: Node) -> str:
    return _KINDS.get(_kind(node), _OTHER)


def _ops(node: Node) -> list[str]:
    """The operators that a step computes, each once."""
    if node.op.name != "fusion":
        return [node.op.name]
    return list(dict.fromkeys(n.op.name for n in _inside(node))) or [_kind(node)]


def _inside(node: Node) -> list[Node]:
    if node.op.name != "fusion":
        return [node]
    return [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]


def _result(node: Node) -> str:
    if isinstance(node.type, TensorType):
        return str(node.type)
    largest = max(node.type.elements, key=_size)
    return f"{largest} and {len(node.type.elements) - 1} more"


def _size(type_: TensorType) -> int:
    size = 1
    for each in type_.shape:
        size *= 2 if isinstance(each, Dim) else each
    return size


# --- drawing -----------------------------------------------------------------------------------


def _head(graph: Graph, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="{_FONT}">\n'
        f"<title>{escape(graph.name)}</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="white"/>'
    )


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {more}>{escape(text)}</text>'


def _square(x: float, y: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="9" height="9" rx="2" fill="{colour}"/>'


def _legend(shown: list[Node], columns: list[str]) -> list[str]:
    """What the colours mean, and the columns' titles."""
    kinds = dict.fromkeys(kind for kind in _KINDS if any(_kind(n) == kind for n in shown))
    entries = [(_KINDS[kind], kind) for kind in kinds]
    if any(_kind(node) not in _KINDS for node in shown):
        entries.append((_OTHER, "an operator by itself"))
    parts: list[str] = []
    x, y = float(_LEFT), float(_MARGIN)
    for colour, text in entries:
        parts += [_square(x, y, colour), _text(x + 13, y + 9, text, 'fill="#445"')]
        x += 13 + _text_width(text) + 18
    if any(node.phase == "forward" for node in shown):
        parts.append(_text(x, y + 9, "thick frame: a result", 'fill="#445"'))
    for column, phase in enumerate(columns):
        middle = _LEFT + column * (_WIDTH + _GAP_X) + _WIDTH / 2
        style = 'text-anchor="middle" font-weight="bold" font-size="13" fill="#334"'
        parts.append(_text(middle, _top() - _LINE, phase, style))
    return parts


def _footer(
    graph: Graph, counters: list[Node], numbers: Mapping[Node, int], bottom: float
) -> list[str]:
    if not counters:
        return []
    steps = _ranges(sorted(numbers[node] for node in counters))
    several = len(counters) > 1
    text = f"not drawn: steps {steps}, which only count" if several else (
        f"not drawn: step {steps}, which only counts"
    )
    return [_text(_LEFT, bottom + _LINE / 2, text, 'fill="#667"')]


def _box_text(graph: Graph, box: Box, title: str) -> str:
    results = {x.inputs[0] if x.op.name == "get" else x for x in graph.outputs}
    result = any(node in results for node in box.nodes) and box.nodes[0].phase != "optimizer"
    stroke = 'stroke="#223" stroke-width="2"' if result else 'stroke="#99a"'
    hover = [title or graph.name]
    for node in box.nodes:
        hover += [f"{place}: {' '.join(ops)}" for place, ops in by_line(_inside(node))]
    parts = [
        f"<g><title>{escape(chr(10).join(hover))}</title>"
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{_WIDTH}" height="{box.height:g}" rx="5" '
        f'fill="#fbfbfd" {stroke}/>'
    ]
    y = box.y + _PAD + _LINE - 5
    shown = _fit(title or graph.name, _WIDTH - 2 * _PAD, bold=True)
    parts.append(_text(box.x + _PAD, y, shown, 'font-weight="bold"'))
    for colour, text in box.lines:
        y += _LINE
        if colour:
            parts.append(_square(box.x + _PAD, y - 9, colour))
        parts.append(_text(box.x + _PAD + _LINE, y, text, f'fill="{"#223" if colour else "#667"}"'))
    return "".join([*parts, "</g>"])


def _edges(boxes: list[Box]) -> list[str]:
    """Arrows between boxes, one for all that flows from one to another."""
    home = {node: i for i, box in enumerate(boxes) for node in box.nodes}
    pairs: dict[tuple[int, int], None] = {}
    for i, box in enumerate(boxes):
        for node in box.nodes:
            for source in _drawn_sources(node, home):
                if home[source] != i:
                    pairs[home[source], i] = None
    return [_arrow(boxes[a], boxes[b]) for a, b in pairs]


def _drawn_sources(node: Node, home: Mapping[Node, int]) -> list[Node]:
    """The drawn steps that a step reads, through what has no box (get, reshape)."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(node.inputs)
    while stack:
        source = stack.pop()
        if source in seen:
            continue
        seen.add(source)
        if source in home:
            found[source] = None
        elif source.op.name != "fusion":
            stack.extend(source.inputs)
    return list(found)


def _arrow(a: Box, b: Box) -> str:
    """From a box to one that reads it: straight to neighbours, in a bow past others."""
    strong = 'fill="none" stroke="#667" marker-end="url(#head)"'
    weak = 'fill="none" stroke="#b4b8c4" marker-end="url(#head)"'
    middle = _WIDTH / 2
    if a.column == b.column:
        if abs(a.row - b.row) == 1:
            y1, y2 = (a.y + a.height, b.y) if a.row < b.row else (a.y, b.y + b.height)
            return f'<path d="M{a.x + middle:g} {y1:g}L{b.x + middle:g} {y2:g}" {strong}/>'
        # past the rows between, left of the column
        x, out = a.x, a.x - min(14 + 3 * abs(a.row - b.row), 45)
        y1, y2 = a.y + a.height / 2, b.y + b.height / 2 + (6 if a.row > b.row else -6)
        return f'<path d="M{x:g} {y1:g}C{out:g} {y1:g} {out:g} {y2:g} {x:g} {y2:g}" {weak}/>'
    right = a.column < b.column
    x1, x2 = (a.x + _WIDTH, b.x) if right else (a.x, b.x + _WIDTH)
    shift = -4 if right else 4  # both directions may be there
    y1, y2 = a.y + a.height / 2 + shift, b.y + b.height / 2 + shift
    bend = (x2 - x1) / 2
    style = strong if a.row == b.row else weak
    return (
        f'<path d="M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}" '
        f"{style}/>"
    )


# --- text --------------------------------------------------------------------------------------


def _text_width(text: str, bold: bool = False) -> float:
    """About how wide a text is, in pixels: viewers' sans-serif fonts differ a little."""
    narrow, wide = "fijlrt.,:;'|!()[] -", "mwMW@%→"
    em = sum(0.38 if c in narrow else 0.94 if c in wide else 0.64 for c in text)
    return em * _FONT * (1.08 if bold else 1.0)


def _fit(text: str, room: float, bold: bool = False) -> str:
    """The text, cut where there is no room for it."""
    if _text_width(text, bold) <= room:
        return text
    while text and _text_width(text + "…", bold) > room:
        text = text[:-1]
    return text + "…"
