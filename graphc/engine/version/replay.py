"""Double backward through a compiled function: its gradients as eager operations on the tape.

create_graph=True asks how the gradients themselves depend on the inputs. The joint graph that the
compiled backward was cut from says so: run operator by operator on the call's own inputs, its
gradients come with a history, and can be differentiated as often as one likes. (A gradient under
vmap is computed the same way, with the batch inside.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...frontend.captured import Input, TensorInput
from ...frontend.dispatch import constant
from ...frontend.errors import located
from ...frontend.nodes import AccumulateGrad, Edge
from ...frontend.tensor import Tensor, from_array
from ...frontend.worlds import TensorValue
from ...ir.batching import run_graph
from ...ir.graph import Graph
from ...ir.named import NamedTuple


class Replay(NamedTuple):
    """The gradients as a Graph of the forward's inputs and the cotangents.

    `read`: which forward inputs it reads; `sources`: for each tensor that gets a gradient, the
    number of the forward input that it is (-1: it is part of another's memory).
    """

    graph: Graph
    inputs: int
    read: frozenset[int]
    sources: tuple[int, ...]


def replay_of(
    joint: Graph, inputs: int, outputs: int, traced_inputs: Sequence[Input],
    sources: Sequence[tuple[int, Tensor]],
) -> Replay:
    """From the joint graph: its first `inputs` inputs and `outputs` outputs are the forward's."""
    graph = Graph(joint.name, joint.inputs, joint.outputs[outputs:], joint.env)
    used: set[Any] = set(graph.outputs)
    for node in graph.nodes:
        used.update(node.inputs)
    read = frozenset(i for i, node in enumerate(joint.inputs[:inputs]) if node in used)
    numbers: dict[Any, int] = {}
    for i, source in enumerate(traced_inputs):
        if isinstance(source, TensorInput) and source.kind in ("argument", "tensor"):
            key = source.index if source.kind == "argument" else id(source.tensor)
            numbers[source.kind, key] = i
    places = tuple(
        numbers.get(("argument", index) if index >= 0 else ("tensor", id(tensor)), -1)
        for index, tensor in sources
    )
    return Replay(graph, inputs, read, places)


def replay(
    plan: Replay, arrays: Sequence[np.ndarray], grads: Sequence[Any], edges: Sequence[Edge | None],
    dims: dict[str, int], create_graph: bool,
) -> list[Tensor]:
    """The gradients as Tensors; `grads` are the cotangents as Tensors."""
    at = dict(zip(plan.sources, edges, strict=True))
    if create_graph and at.get(-1) is not None:
        raise RuntimeError(located(
            "create_graph=True through a compiled function whose inputs overlap in memory is not "
            "supported. Cure: clone() one of them first, or call the function uncompiled"
        ))
    values: list[Any] = []
    for i, array in enumerate(arrays):
        tensor = from_array(array)
        place = at.get(i) if create_graph else None
        if place is not None:
            leaf = place[0].variable if isinstance(place[0], AccumulateGrad) else None
            if leaf is not None and leaf._graphc_array is array:
                tensor = leaf
            else:
                tensor._graphc_node, tensor._graphc_output = place
        values.append(TensorValue(tensor))
    values += [TensorValue(g) for g in grads]
    like = TensorValue(constant(0.0))
    return [x.tensor for x in run_graph(plan.graph, values, like, dims)]
