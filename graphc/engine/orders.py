"""Inputs whose memory has no gaps, but its dims in another order than the tensor's: channels last,
a transposed matrix. Code reads such memory where it lies: its graph has the row-major input that
it is, and a permute, which passes and lowering see through. Around the code, arrays have the
tensor's dims; Engine turns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ..backends.host.allocator import BLOCK, address_of
from ..frontend.captured import TensorInput, TracedGraph
from ..frontend.functionalize import dense_order, is_contiguous
from ..frontend.gradient_layout import order_of
from ..ir.graph import Builder, Graph, Node
from ..ir.op import get
from ..ir.rewrite import with_inputs

Order: TypeAlias = tuple[int, ...]  # of the dims in memory, outermost first
Orders: TypeAlias = Mapping[int, Order]  # of inputs, by number; not of those in order
NO_ORDERS: Orders = MappingProxyType({})


def orders_of(traced: TracedGraph) -> dict[int, Order]:
    """Of the inputs of a recording."""
    found: dict[int, Order] = {}
    for source in traced.inputs:
        if not isinstance(source, TensorInput) or source.kind in ("storage", "tangent"):
            continue
        shape = source.type.shape
        if source.type.dtype.is_complex or 0 in shape or is_contiguous(shape, source.strides):
            continue
        order = dense_order(shape, source.strides, traced.graph.env)
        if order is not None:
            found[source.number] = order
    crossed = _crossed(traced.graph, found) if found else set()
    return {number: order for number, order in found.items() if number not in crossed}


def gradient_orders(traced: TracedGraph) -> dict[int, Order]:
    """Of the outputs that are gradients of leaves, by number: `.grad` has the leaf's strides
    (frontend/gradient_layout.py)."""
    found: dict[int, Order] = {}
    if traced.backward is not None:
        pairs = zip(traced.backward.tensors, traced.backward.gradients, strict=True)
        for tensor, number in pairs:
            if number is not None and tensor._graphc_node is None:
                order = order_of(tensor._graphc_array)
                if order is not None:
                    found[number] = order
    return found


def _crossed(graph: Graph, orders: Orders) -> set[int]:
    """The inputs whose memory is walked more than once along others than its innermost dim, which
    is dearer than a copy: by a softmax, say."""
    inner: dict[Node, dict[int, int]] = {}  # by what lies like inputs: their innermost dims
    walks = dict.fromkeys(orders, 0)
    for number, order in orders.items():
        inner[graph.inputs[number]] = {number: order[-1]}
    for node in graph.nodes:
        for x in node.inputs:
            if x not in inner:
                continue
            if node.op.pointwise and x.shape == node.shape:
                inner[node] = {**inner.get(node, {}), **inner[x]}
            along = _along(node, len(x.shape))
            for number, dim in inner[x].items():
                if along and dim not in along:
                    walks[number] += 1 if node.op.family == "reduce" else 2
    return {number for number, count in walks.items() if count > 1}


def _along(node: Node, rank: int) -> tuple[int, ...]:
    """The dims along which an operator computes, if it does."""
    name, attrs = node.op.name, node.attrs
    if name == "batch_norm":
        return (0, *range(2, rank))
    if name in ("cross_entropy", "nll_loss"):
        return (1,)
    if name == "layer_norm" or node.op.family == "reduce":
        dims: tuple[int, ...] = attrs["normalized_dims" if name == "layer_norm" else "dims"]
        return dims
    return (attrs["dim"],) if node.op.family == "composite" and "dim" in attrs else ()


def inverse(order: Order) -> Order:
    """What puts dims back."""
    return tuple([order.index(i) for i in range(len(order))])


def ordered(
    graph: Graph, orders: Orders, mutated: Mapping[int, int], gradients: Orders = NO_ORDERS
) -> Graph:
    """The graph that reads inputs, and writes what goes into their memory (`mutated`), in the order
    of memory; `gradients`: outputs that it gives in another one, too."""
    if not orders and not gradients:
        return graph
    builder, new = Builder(graph.env), dict[Node, Node]()
    for number, node in enumerate(graph.inputs):
        order, type_ = orders.get(number), node.tensor_type
        if order is not None:
            type_ = type_.with_shape(tuple([type_.shape[i] for i in order]))
        made = builder.input(type_, node.attrs["name"])
        new[node] = made if order is None else (
            builder.emit(get("permute"), made, dims=inverse(order))
        )
    for node in graph.nodes:
        if node not in new:
            new[node] = with_inputs(node, [new[source] for source in node.inputs])
    outputs = [new[node] for node in graph.outputs]
    for number, target in mutated.items():
        if target in orders:
            outputs[number] = builder.emit(get("permute"), outputs[number], dims=orders[target])
    for number, order in gradients.items():
        outputs[number] = builder.emit(get("permute"), outputs[number], dims=order)
    return Graph(graph.name, tuple(builder.inputs), tuple(outputs), graph.env)


def put_back(array: np.ndarray, order: Order) -> np.ndarray:
    """An array of memory with the tensor's dims: `order` puts them back. Where an allocator's block
    is below, it lies on that alone, as others that have it to themselves."""
    found, block = array.transpose(order), getattr(array, "base", None)  # none on a device
    while type(block) is np.ndarray:
        block = block.base
    if type(block) is BLOCK and address_of(block) == address_of(array):
        return np.ndarray(found.shape, found.dtype, block, 0, found.strides)
    return found


def turned(arrays: Sequence[np.ndarray], orders: Orders) -> list[np.ndarray]:
    """The inputs of a call with their dims in the order of memory."""
    found = list(arrays)
    for number, order in orders.items():
        found[number] = found[number].transpose(order)
    return found
