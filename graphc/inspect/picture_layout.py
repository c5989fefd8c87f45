"""Where a picture's boxes, frames and arrows are: see picture.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graphc.inspect.picture_rows import (
    Frame,
    Row,
    frames_of,
    in_order,
    is_tensor_input,
    rows_of,
    sources_among,
)
from graphc.inspect.picture_words import (
    colour_of,
    fit,
    is_scalar,
    kind_of,
    lines_told,
    ops_of,
    result_of,
    text_width,
    told,
)
from graphc.ir.graph import Graph, Node
from graphc.ir.types import TensorType

_PHASES = ("forward", "backward", "optimizer")
WIDTH, GAP_X, GAP_Y, MARGIN, LINE, PAD = 330, 70, 26, 20, 16, 8
LEFT = 64  # room for arrows and frames beside the first column
FRAME_HEAD, FRAME_FOOT = 20, 10
_TOLD = 24  # lines that hovering over a box shows


class Room(NamedTuple):
    """How much is shown: rows, before they are collapsed; steps of a box, before they are counted
    by kind."""

    rows: int
    steps: int


COMPACT = Room(16, 6)
ROOMY = Room(200, 30)


class Line(NamedTuple):
    """A line of a box. `colour`: of its kind, "" for what is no step. `step`: its number, or -1;
    `hover`: what is shown where the mouse is over it."""

    colour: str
    text: str
    step: int = -1
    hover: str = ""


class Box(NamedTuple):
    """The steps of one phase of a row, and where they are drawn."""

    nodes: list[Node]
    title: str
    lines: list[Line]
    row: int
    column: int
    x: float
    y: float
    height: float
    result: bool  # whether the graph gives something of it
    hover: str


class Area(NamedTuple):
    """A frame, and where it is drawn."""

    frame: Frame
    y: float
    height: float


class Picture(NamedTuple):
    """What is drawn. `edges`: from box to box; `kinds`: of the legend; `counters`: the numbers of
    steps that are left out."""

    name: str
    columns: list[str]
    boxes: list[Box]
    areas: list[Area]
    edges: list[tuple[int, int]]
    kinds: list[str]
    counters: list[int]
    bottom: float


def numbered(graph: Graph) -> dict[Node, int]:
    """What computes something, in the order of the nodes."""
    computing = {n for n in graph.nodes if n.op.family not in ("structure", "create")}
    computing |= {n for n in graph.nodes if n.op.name == "fusion"}
    return {node: i for i, node in enumerate(n for n in graph.nodes if n in computing)}


def laid_out(
    graph: Graph, numbers: Mapping[Node, int], room: Room, notes: Mapping[Node, str]
) -> Picture:
    """The picture of the nodes that have numbers."""
    steps = sorted(numbers, key=lambda node: numbers[node])
    counters = {node for node in steps if _is_counter(node)}
    shown = [node for node in steps if node not in counters]
    rows = rows_of(shown, room.rows)
    read = sources_among(graph, {node: numbers[node] for node in shown})
    titles = in_order(rows, numbers, read)
    columns = [phase for phase in _PHASES if any(node.phase == phase for node in shown)]
    boxes, areas, bottom = _placed(graph, shown, rows, titles, columns, numbers, room, notes)
    home = {node: i for i, box in enumerate(boxes) for node in box.nodes}
    edges = dict.fromkeys(
        (home[source], home[node]) for node in shown for source in read[node]
        if home[source] != home[node]
    )
    kinds = list(dict.fromkeys(kind_of(node) for node in shown))
    return Picture(
        graph.name, columns, boxes, areas, list(edges), kinds,
        sorted(numbers[node] for node in counters), bottom,
    )


def _is_counter(node: Node) -> bool:
    """Whether a step only counts, as of an optimizer's or a BatchNorm's steps."""
    types = [node.type] if isinstance(node.type, TensorType) else list(node.type.elements)
    if not all(is_scalar(type_) for type_ in types):
        return False
    return node.phase == "optimizer" or all(
        x.op.name in ("input", "const") and is_scalar(x.tensor_type) and x.dtype.is_integer
        for x in node.inputs
    )


def top() -> float:
    """Where the rows begin, below the legend and the columns' titles."""
    return MARGIN + 4 * LINE


def _placed(
    graph: Graph, shown: list[Node], rows: Mapping[Node, Row], titles: list[Row],
    columns: list[str], numbers: Mapping[Node, int], room: Room, notes: Mapping[Node, str],
) -> tuple[list[Box], list[Area], float]:
    """The boxes and frames, and where the last one ends."""
    cells: dict[tuple[int, int], list[Node]] = {}
    places = {row: i for i, row in enumerate(titles)}
    for node in shown:
        cells.setdefault((places[rows[node]], columns.index(node.phase)), []).append(node)
    results = {x.inputs[0] if x.op.name == "get" else x for x in graph.outputs}
    frames = frames_of(titles)
    begins: dict[Frame, float] = {}
    ends: dict[Frame, float] = {}
    boxes: list[Box] = []
    y = top()
    for row, title in enumerate(titles):
        for frame in frames:
            if frame.first == row:
                begins[frame] = y
                y += FRAME_HEAD
        made = [
            (column, cells[row, column], _lines(cells[row, column], title, numbers, room, notes))
            for column in range(len(columns)) if (row, column) in cells
        ]
        height = max(2 * PAD + LINE * (1 + len(lines)) for _, _, lines in made)
        for column, nodes, lines in made:
            result = nodes[0].phase != "optimizer" and any(node in results for node in nodes)
            name = title.title or graph.name
            hover = "\n".join([name, *lines_told(nodes)[:_TOLD]])
            x = float(LEFT + column * (WIDTH + GAP_X))
            boxes.append(Box(nodes, name, lines, row, column, x, y, height, result, hover))
        y += height
        for frame in reversed(frames):
            if frame.last == row:
                y += FRAME_FOOT
                ends[frame] = y
        y += GAP_Y
    areas = [Area(frame, begins[frame], ends[frame] - begins[frame]) for frame in frames]
    return boxes, areas, (y - GAP_Y if titles else top()) + MARGIN


def _lines(
    nodes: list[Node], row: Row, numbers: Mapping[Node, int], room: Room,
    notes: Mapping[Node, str],
) -> list[Line]:
    """What a box says below its title: its steps, and the named tensors that they read."""
    found: list[Line] = []
    wide = WIDTH - 2 * PAD - LINE
    if len(nodes) <= room.steps:
        for node in nodes:
            number = numbers[node]
            head, tail = f"{number}  ", f" → {result_of(node)}{notes.get(node, '')}"
            ops = fit(" ".join(ops_of(node)), wide - text_width(head + tail))
            found.append(Line(colour_of(node), head + ops + tail, number, told(node, number)))
    else:
        for kind, count in Counter(kind_of(node) for node in nodes).most_common():
            first = next(node for node in nodes if kind_of(node) == kind)
            text = f"{count} {kind}" + (" steps" if count > 1 else " step")
            found.append(Line(colour_of(first), text))
        found.append(Line("", f"steps {ranges(sorted(numbers[node] for node in nodes))}"))
    verb = "updates" if nodes[0].phase == "optimizer" else "reads"
    read = _named(nodes, row.title)
    if read:
        found.append(Line("", f"{verb} {', '.join(read)}"))
    return [line._replace(text=fit(line.text, wide)) for line in found]


def _named(nodes: Iterable[Node], title: str) -> list[str]:
    """Names of the tensors that come from outside the graph, relative to the row."""
    found: dict[str, None] = {}
    for node in nodes:
        for source in node.inputs:
            if is_tensor_input(source):
                name = source.attrs["name"]
                owner = name.rpartition(" of ")[2] if node.phase == "optimizer" else name
                found[owner.removeprefix(f"{title}.")] = None
    return list(found)


def ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
