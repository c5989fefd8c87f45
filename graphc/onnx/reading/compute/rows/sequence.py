"""Sequences (Python's lists) and optional values (None, or what is there)."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..numbers import Numbers
from ..table import Node, operator


def _place(node: Node, value: Any, length: int, end: bool = False) -> int:
    index = int(value.items[0]) if type(value) is Numbers else int(value)
    if not -length <= index < length + end:
        node.refuse(f"its position is {index} in a sequence of {length}", "give one inside")
    return index + length if index < 0 else index


@operator("SequenceEmpty", 11, raw=True)
def empty(node: Node) -> Any:
    return ([],)


@operator("SequenceConstruct", 11, raw=True)
def construct(node: Node, *items: Any) -> Any:
    return (list(items),)


@operator("SequenceInsert", 11, raw=True)
def insert(node: Node, items: list[Any], item: Any, position: Any = None) -> Any:
    at = len(items) if position is None else _place(node, position, len(items), True)
    return ([*items[:at], item, *items[at:]],)


@operator("SequenceErase", 11, raw=True)
def erase(node: Node, items: list[Any], position: Any = None) -> Any:
    at = len(items) - 1 if position is None else _place(node, position, len(items))
    return ([*items[:at], *items[at + 1:]],)


@operator("SequenceAt", 11, raw=True)
def at_place(node: Node, items: list[Any], position: Any) -> Any:
    return items[_place(node, position, len(items))]


@operator("SequenceLength", 11, raw=True)
def length(node: Node, items: list[Any]) -> Any:
    return Numbers([len(items)], (), T.int64.numpy)


@operator("ConcatFromSequence", 11)
def concat(node: Node, items: list[Tensor]) -> Any:
    axis = node.get("axis", 0)
    return T.stack(items, axis) if node.get("new_axis", 0) else T.cat(items, axis)


@operator("SplitToSequence", 11, numbers=(1,))
def split(node: Node, x: Tensor, sizes: Numbers | None = None) -> Any:
    dim = node.get("axis", 0) % x.dim()
    length = x.shape[dim]
    if sizes is None:
        parts = [x.narrow(dim, i, 1) for i in range(int(length))]
        return ([p.squeeze(dim) for p in parts] if not node.get("keepdims", 1) else parts,)
    if sizes.rank == 0:
        return (list(x.split(int(sizes.items[0]), dim)),)
    return (list(x.split([int(n) for n in sizes.items], dim)),)


@operator("SequenceMap", 17, raw=True)
def mapped(node: Node, items: list[Any], *more: Any) -> Any:
    """The body for each item; other sequences go along, other values are the same each time."""
    rows = [
        node.get("body")(item, *[x[i] if type(x) is list else x for x in more])
        for i, item in enumerate(items)
    ]
    count = len(node.get("body").program.outputs)
    return tuple([row[i] for row in rows] for i in range(count))


@operator("Optional", 15, raw=True)
def optional(node: Node, value: Any = None) -> Any:
    return (value,)


@operator("OptionalHasElement", 15, raw=True)
def has_element(node: Node, value: Any = None) -> Any:
    return Numbers([value is not None], (), T.bool.numpy)


@operator("OptionalGetElement", 15, raw=True)
def get_element(node: Node, value: Any) -> Any:
    if value is None:
        node.refuse("its input has no element", "ask OptionalHasElement before")
    return (value,)
