"""What is done to the nodes when all are written: those that nothing reads go, results get their
names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .writer import Writer


def inner_graphs(node: Any) -> Iterator[Any]:
    """The graphs in a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def pruned(nodes: Sequence[Any], results: Sequence[str]) -> list[Any]:
    """The nodes that the results need, in their order. (Those in inner graphs stay.)"""
    needed = set(results)
    kept: list[Any] = []
    for node in reversed(nodes):
        if needed.isdisjoint(node.output):
            continue
        needed.update(reads(node))
        kept.append(node)
    return kept[::-1]


def reads(node: Any) -> Iterator[str]:
    """What a node reads, the graphs in it too."""
    yield from node.input
    for graph in inner_graphs(node):
        yield from (each.name for each in graph.output)
        for inner in graph.node:
            yield from reads(inner)


def renamed(
    w: Writer, nodes: Sequence[Any], values: Sequence[str], names: Sequence[str]
) -> list[Any]:
    """The nodes, where the results' values have the results' names.

    What is no node's value, or is given back more than once, gets its name by an Identity.
    """
    made = {name for node in nodes for name in node.output}
    new: dict[str, str] = {}
    copies: list[Any] = []
    for value, name in zip(values, names, strict=True):
        if value in made and value not in new:
            new[value] = name
        else:
            source = new.get(value, value)
            copies.append(w.onnx.helper.make_node("Identity", [source], [name], name=name))
    for node in nodes:
        _rename(node, new)
    return [*nodes, *copies]


def _rename(node: Any, new: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        for number, name in enumerate(names):
            if name in new:
                names[number] = new[name]
    for graph in inner_graphs(node):
        for inner in graph.node:
            _rename(inner, new)
