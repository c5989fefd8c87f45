"""The gradient rule of cond, and what rules of operators with sub-graphs share.

The branch that ran is the branch whose gradient runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import autodiff
from ..graph import Builder, Graph, Node
from ..types import TensorType
from ._rules import ops


def copied(
    builder: Builder, graph: Graph, inputs: Sequence[Node],
    replaced: Mapping[Node, Node] | None = None,
) -> list[Node]:
    """A graph's nodes again, in another Builder, on these inputs: its outputs. What is `replaced`
    is not computed."""
    at: dict[Node, Node] = {**dict(zip(graph.inputs, inputs, strict=True)), **(replaced or {})}
    for node in graph.nodes:
        if node not in at:
            sources = (at[x] for x in node.inputs)
            with builder.at(node.loc, node.backward):
                at[node] = builder.emit(node.op, *sources, graphs=node.graphs, **node.attrs)
    return [at[node] for node in graph.outputs]


def packed(values: Any) -> tuple[Any, ...]:
    """The results of an operator with one or several as a tuple."""
    return values if isinstance(values, tuple) else (values,)


def _zero(builder: Builder, type_: TensorType) -> Node:
    return builder.emit(
        ops.full, shape=type_.shape, value=0.0 if type_.dtype.is_float else 0, dtype=type_.dtype
    )


def gradients(
    builder: Builder, graph: Graph, inputs: Sequence[Node], given: Sequence[int],
    cotangents: Sequence[Node], wanted: Sequence[int],
) -> list[Node]:
    """The gradients of outputs `given` of a copy of `graph` with regard to inputs `wanted`."""
    outputs = copied(builder, graph, inputs)
    found = autodiff.backward(
        builder, [outputs[i] for i in given], list(cotangents), [inputs[i] for i in wanted]
    )
    return [
        _zero(builder, inputs[i].tensor_type) if g is None else g
        for i, g in zip(wanted, found, strict=True)
    ]


def _restricted(graph: Graph, kept: Sequence[int]) -> Graph:
    """The graph with only some of its inputs; the others must be unused."""
    builder = Builder(graph.env)
    inputs: list[Any] = [None] * len(graph.inputs)
    for i in kept:
        inputs[i] = builder.input(graph.inputs[i].tensor_type)
    used = [node for node, x in zip(graph.inputs, inputs, strict=True) if x is not None]
    small = Graph(graph.name, tuple(used), graph.outputs, graph.env)
    return builder.build(copied(builder, small, [x for x in inputs if x is not None]), graph.name)


def _reads(graph: Graph) -> set[int]:
    read = set(graph.outputs)
    for node in graph.nodes:
        read.update(node.inputs)
    return {i for i, node in enumerate(graph.inputs) if node in read}


# --- cond --------------------------------------------------------------------------------------


def cond_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, graphs: tuple[Graph, ...]
) -> list[Any]:
    """The gradient of the branch that was taken."""
    operands = inputs[1:]
    given = [i for i, g in enumerate(grads) if g is not None]
    wanted = [i for i, need in enumerate(needs[1:]) if need]
    branches: list[Graph] = []
    for graph in graphs:
        builder = Builder(graph.env)
        xs = [builder.input(node.tensor_type) for node in graph.inputs]
        cotangents = [builder.input(graph.outputs[i].tensor_type) for i in given]
        branches.append(builder.build(
            gradients(builder, graph, xs, given, cotangents, wanted), f"{graph.name}_vjp"
        ))
    values = [*operands, *(grads[i] for i in given)]
    kept = sorted(_reads(branches[0]) | _reads(branches[1]))
    small = tuple(_restricted(graph, kept) for graph in branches)
    found = packed(ops.cond(inputs[0], *[values[i] for i in kept], graphs=small))
    results: list[Any] = [None] * len(inputs)
    for i, gradient in zip(wanted, found, strict=True):
        results[i + 1] = gradient
    return results
