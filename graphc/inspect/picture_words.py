"""What a picture says of a graph's steps: their kinds, operators, results, lines."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.inspect.source import user_lines
from graphc.ir.dim import Dim
from graphc.ir.graph import Node
from graphc.ir.types import TensorType

FONT = 11
KINDS = {
    "contraction": "#f2a65a", "window": "#7fc97f", "rows": "#9c8fd4", "loop": "#7fb2e5",
    "scatter": "#e58a8a", "cumulative": "#d8c84a", "attention": "#e39ad0", "sparse": "#8fd0c4",
}
OTHER = "#c8c8c8"  # operators that are steps of their own
_TYPES = 6  # of inputs that are told


def kind_of(node: Node) -> str:
    """What fusion made of it; of an operator by itself, its name."""
    kind: str = node.attrs["kind"] if node.op.name == "fusion" else node.op.name
    return kind.removesuffix("_unchecked")


def colour_of(node: Node) -> str:
    """By its kind."""
    return KINDS.get(kind_of(node), OTHER)


def ops_of(node: Node) -> list[str]:
    """The operators that a step computes, each once."""
    if node.op.name != "fusion":
        return [node.op.name]
    return list(dict.fromkeys(n.op.name for n in inside(node))) or [kind_of(node)]


def inside(node: Node) -> list[Node]:
    """The nodes that a step computes."""
    if node.op.name != "fusion":
        return [node]
    return [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]


def result_of(node: Node) -> str:
    """Its type; of several results the largest."""
    if isinstance(node.type, TensorType):
        return str(node.type)
    if not node.type.elements:
        return "nothing"
    largest = max(node.type.elements, key=_size)
    return f"{largest} and {len(node.type.elements) - 1} more"


def _size(type_: TensorType) -> int:
    size = 1
    for each in type_.shape:
        size *= 2 if isinstance(each, Dim) else each
    return size


def is_scalar(type_: TensorType) -> bool:
    """Whether there is one element."""
    return all(size == 1 for size in type_.shape)


def told(node: Node, number: int) -> str:
    """A step in full: what hovering shows."""
    types = [str(x.type) for x in node.inputs[:_TYPES]]
    more = len(node.inputs) - len(types)
    reads = ", ".join(types) + (f" and {more} more" if more > 0 else "")
    ops = " ".join(ops_of(node))
    kind = kind_of(node)
    name = ops if node.op.name != "fusion" or ops == kind else f"{kind}: {ops}"
    return "\n".join([
        f"{number}  {name}", f"{reads or 'nothing'} → {result_of(node)}", *lines_told([node]),
    ])


def lines_told(nodes: Iterable[Node]) -> list[str]:
    """The user's lines of some steps."""
    lines = user_lines(each for node in nodes for each in inside(node))
    return [str(line) for line in lines if line.place]


# --- how wide it is ---------------------------------------------------------------------------


def text_width(text: str, bold: bool = False) -> float:
    """About how wide a text is, in pixels: viewers' sans-serif fonts differ a little."""
    narrow, wide = "fijlrt.,:;'|!()[] -", "mwMW@%→"
    em = sum(0.38 if c in narrow else 0.94 if c in wide else 0.64 for c in text)
    return em * FONT * (1.08 if bold else 1.0)


def fit(text: str, room: float, bold: bool = False) -> str:
    """The text, cut where there is no room for it."""
    if text_width(text, bold) <= room:
        return text
    while text and text_width(text + "…", bold) > room:
        text = text[:-1]
    return text + "…"
