"""pairs: complex arithmetic between view_as_complex and view_as_real (rotary embeddings, say) as
arithmetic on real and imaginary parts, which kernels are made of.

A complex value is replaced where all of its readers are, or are view_as_real: none has to be put
together again. What it is computed from may be complex (an argument): its parts are read once. The
parts of a product are (ac - bd, ad + bc), each operation rounded, as in NumPy's and torch's loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import ops
from ..graph import Builder, Expr, Graph, Node
from ..rewrite import everywhere, rebuilt, with_inputs
from ..types import TensorType


class Pair(NamedTuple):
    """The parts of a complex value, each of its shape."""

    real: Any
    imag: Any


def _mul(x: Pair, y: Pair) -> Pair:
    return Pair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _each(name: str) -> Callable[..., Pair]:
    """What is done to both parts alike."""

    def made(*pairs: Pair, **attrs: Any) -> Pair:
        op = getattr(ops, name)
        return Pair(*(op(*parts, **attrs) for parts in zip(*pairs, strict=True)))

    return made


_RULES: dict[str, Callable[..., Pair]] = {
    "mul": _mul,
    "conj": lambda x: Pair(x.real, -x.imag),
    **{name: _each(name) for name in ("add", "sub", "neg")},
    **{name: _each(name) for name in ("reshape", "permute", "expand", "slice")},
}


def pairs(graph: Graph) -> Graph:
    """The graph, its sub-graphs included, with such values in parts; itself where there are none.
    """
    return everywhere(graph, _in_parts)


def _in_parts(graph: Graph) -> Graph:
    chosen = _chosen(graph)
    if not any(node.op.name == "mul" for node in chosen):
        return graph  # nothing but moves, which are cheaper of whole numbers
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    parts: dict[Node, Pair] = {}

    def parts_of(node: Node) -> Pair:
        if node not in parts:
            parts[node] = _apart(builder, node.inputs[0], new) if _joins(node) else Pair(
                *_cut(ops.view_as_real(Expr(builder, new[node])), node)
            )
        return parts[node]

    for node in graph.nodes:
        with builder.at(node.loc, node.backward):
            if node in chosen:
                if not _joins(node):
                    found = [parts_of(x) for x in node.inputs]
                    parts[node] = _RULES[node.op.name](*found, **node.attrs)
            elif node.op.name == "view_as_real" and node.inputs[0] in chosen:
                new[node] = _together(parts_of(node.inputs[0])).node
            else:
                new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return rebuilt(graph, new)


def _joins(node: Node) -> bool:
    return node.op.name == "view_as_complex"


def _chosen(graph: Graph) -> set[Node]:
    """The complex values that no one reads as such."""
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    kept = {*graph.outputs}
    chosen: set[Node] = set()
    for node in reversed(graph.nodes):
        if not isinstance(node.type, TensorType) or not node.type.dtype.is_complex:
            continue
        if node in kept or not (_joins(node) or node.op.name in _RULES):
            continue
        if all(x.op.name == "view_as_real" or x in chosen for x in readers.get(node, ())):
            chosen.add(node)
    return chosen


def _apart(builder: Builder, joined: Node, new: dict[Node, Node]) -> Pair:
    return Pair(*_cut(Expr(builder, new[joined]), joined))


def _cut(x: Any, like: Node) -> list[Any]:
    """The parts of [..., 2]."""
    *shape, _ = x.shape
    none, steps = (0,) * len(shape), (1,) * len(x.shape)
    return [
        ops.reshape(
            ops.slice(x, starts=(*none, part), stops=(*shape, part + 1), steps=steps),
            shape=tuple(shape),
        )
        for part in (0, 1)
    ]


def _together(pair: Pair) -> Any:
    """[..., 2]."""
    shape = (*pair.real.shape, 1)
    return ops.concat(
        *(ops.reshape(part, shape=shape) for part in pair), dim=len(shape) - 1
    )
