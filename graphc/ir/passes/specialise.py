"""specialise: named dims that the guards fix become what they equal, throughout a graph.

A trace that decided `m == 3` holds both m and 3 for one size, and so two types for one shape;
what compares sizes as expressions (fusion, the verifier of kernels) needs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dim import Dim, DimEnv, Size, substitute, unwrap
from ..graph import Graph, Node
from ..record import replaced
from ..rewrite import everywhere
from ..types import TensorType, TupleType, Type

Sizes = Mapping[str, Size]


def specialise(graph: Graph) -> Graph:
    """The graph with equal sizes spelled alike, its inputs and outputs too; itself where the
    guards make no dims equal. The dims stay declared: a call passes them, and the guards hold."""
    sizes = _equal_sizes(graph.env)
    return everywhere(graph, lambda g: _substituted(g, sizes)) if sizes else graph


def at_sizes(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """The graph, its sub-graphs included, for these values of its named dims."""
    return everywhere(graph, lambda g: _substituted(g, dims)) if dims else graph


def _equal_sizes(env: DimEnv) -> dict[str, Size]:
    """What each fixed dim stands for, in terms of dims that are not fixed."""
    found: dict[str, Size] = {}
    for guard in env.guards:
        if guard.relation != "eq" or not guard.holds:
            continue
        left, right = (unwrap(substitute(side, found)) for side in (guard.left, guard.right))
        for one, other in ((left, right), (right, left)):
            name = _variable(one)
            if name is None or (isinstance(other, Dim) and name in other.variables()):
                continue
            found = {k: unwrap(substitute(v, {name: other})) for k, v in found.items()}
            found[name] = other
            break
    return found


def _variable(size: Size) -> str | None:
    """The name of a dim that stands alone."""
    if isinstance(size, Dim) and len(names := size.variables()) == 1:
        (name,) = names
        return name if size == Dim.var(name) else None
    return None


def _substituted(graph: Graph, sizes: Sizes) -> Graph:
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        new[node] = replaced(
            node,
            inputs=tuple(new[x] for x in node.inputs),
            type=_type(node.type, sizes),
            attrs={key: _attribute(value, sizes) for key, value in node.attrs.items()},
        )
    inputs, outputs = (tuple(new[n] for n in side) for side in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, graph.env)


def _type(type_: Type, sizes: Sizes) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_tensor_type(t, sizes) for t in type_.elements))
    return _tensor_type(type_, sizes)


def _tensor_type(type_: TensorType, sizes: Sizes) -> TensorType:
    shape = tuple(unwrap(substitute(size, sizes)) for size in type_.shape)
    return TensorType(type_.dtype, shape)


def _attribute(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, Dim):
        return unwrap(substitute(value, sizes))
    if isinstance(value, TensorType):  # of an input
        return _tensor_type(value, sizes)
    if isinstance(value, tuple) and any(isinstance(v, Dim) for v in value):
        return tuple(_attribute(v, sizes) for v in value)
    return value
