"""Writes a graph's nodes one by one, by their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.ir.graph import Graph, Node, get_
from graphc.ir.types import TensorType

from . import patterns
from .rules import rule_of

if TYPE_CHECKING:
    from .writer import Writer


def write(w: Writer, graph: Graph, inputs: Sequence[str]) -> list[str]:
    """The names of the graph's results, given those of its inputs."""
    values: dict[Node, tuple[str, ...]] = {
        node: (name,) for node, name in zip(graph.inputs, inputs, strict=True)
    }
    found = patterns.find(w, graph)
    reads = frozenset(
        (node.inputs[0], node.attrs["index"]) for node in graph.nodes if node.op is get_
    )
    before, outer = w.begin(reads), w.node
    for node in graph.nodes:
        if node in values or node in found.inside:
            continue
        w.node = node
        if node.op is get_:
            values[node] = (values[node.inputs[0]][node.attrs["index"]],)
        elif node in found.ends:
            match = found.ends[node]
            values[node] = _several(match.write(w, *(values[each][0] for each in match.inputs)))
        else:
            result = rule_of(w, node)(w, node, *(values[each][0] for each in node.inputs))
            values[node] = _several(result)
        _check(w, node, values[node])
    w.begin(before)
    w.node = outer
    return [values[node][0] for node in graph.outputs]


def _several(result: str | tuple[str, ...]) -> tuple[str, ...]:
    return (result,) if isinstance(result, str) else tuple(result)


def _check(w: Writer, node: Node, names: tuple[str, ...]) -> None:
    """A rule gives what its operator gives."""
    want = (node.type,) if isinstance(node.type, TensorType) else node.type.elements
    assert len(names) == len(want), (node, names)
    for name, type_ in zip(names, want, strict=True):
        assert not name or w.types[name] is type_.dtype, (node, name, w.types[name])
