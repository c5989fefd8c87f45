"""What a Graph means as a few bytes: equal for graphs that the same code serves."""

from __future__ import annotations

import hashlib
from typing import Any

from .dim import Dim
from .dtypes import DType
from .graph import Constant, Graph, Node
from .types import TensorType, TupleType

_PLAIN = frozenset({int, str, float, bool, type(None)})
_SHORT = 64  # bytes of a constant that stand for themselves


class UndigestedError(TypeError):
    """An attribute is of a kind that is not known here."""


def graph_digest(graph: Graph) -> bytes:
    """A digest of operators, operands, attributes, constants' bits, types, dims and guards; lines
    and names are no part of it. Raises UndigestedError."""
    return hashlib.sha256(_text(graph, {}).encode()).digest()


def _text(graph: Graph, types: dict[Any, str]) -> str:
    """All of a graph, as repr() would have it. `types`: their texts, of which there are few."""
    number: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
    place = number.__getitem__
    lines = []
    for node in graph.nodes:
        type_ = node.type
        key = (type_.dtype.name, type_.shape) if type(type_) is TensorType else type_
        text = types.get(key)
        if text is None:
            text = types[key] = repr(_value(type_))
        attrs = [(name, _value(value)) for name, value in node.attrs.items() if name != "name"]
        inner = ", ".join([_text(graph, types) for graph in node.graphs])
        lines.append(
            f"({node.op.name!r}, {tuple(map(place, node.inputs))}, {attrs}, {text}, "
            f"{node.backward}, [{inner}])"
        )
    guards = [guard.text() for guard in graph.env.guards]
    ends = list(map(place, graph.inputs)), list(map(place, graph.outputs))
    return f"([{', '.join(lines)}], {ends}, {list(graph.env.hints.items())}, {guards})"


def _value(value: Any) -> Any:
    """Something whose repr() says all of it."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is TensorType:
        return value.dtype.name, _value(value.shape)
    if kind is tuple:
        return tuple(map(_value, value))
    if kind is DType:
        return "dtype", value.name
    if kind is Dim:
        return "size", value.text()
    if kind is TupleType:
        return "types", tuple(map(_value, value.elements))
    if kind is Constant:
        return _constant(value)
    raise UndigestedError(f"an attribute is a {kind.__name__}")


def _constant(constant: Constant) -> Any:
    array = constant.array
    content = array.tobytes()
    if len(content) > _SHORT:
        content = hashlib.sha256(content).digest()
    return "array", array.dtype.str, str(array.dtype), array.shape, content
