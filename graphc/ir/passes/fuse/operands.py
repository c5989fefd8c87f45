"""Contractions whose operands cannot be addressed by one stride per index: they get a copy.

A gemm's operand must be affine in m, n and k. Where the dims that make up one of them do not lie
together in memory (summing over the batch and time of a [batch, channel, time] tensor), the
operand is permuted first; fusion then keeps the permuted value in memory.
"""

from __future__ import annotations

from ...graph import Builder, Graph, Node
from ...machine import Machine
from ...op import get
from ...rewrite import remade
from ..lower.body import Body
from ..lower.contraction import contraction, has_template, operand_index, widens_operand


def affine_operands(graph: Graph, machine: Machine) -> Graph:
    """Put in the permutes that are needed; the graph itself where none is."""
    body = Body(graph, machine)
    body.buffers = {}
    wrong: dict[Node, tuple[bool, bool]] = {}
    for node in graph.nodes:
        if node.op.name == "dot_general" and has_template(node, machine):
            t = contraction(body, node)
            sides = (
                operand_index(body, t.left, t.left_at, t.left) is None,
                operand_index(body, t.right, t.right_at, t.right) is None,
            )
            if any(sides):
                wrong[node] = sides
    if not wrong:
        return graph

    def make(builder: Builder, node: Node, new: dict[Node, Node]) -> Node:
        inputs, attrs = [new[x] for x in node.inputs], dict(node.attrs)
        for i, side in enumerate("ab"):
            if node in wrong and wrong[node][i]:
                inputs[i] = _permuted(builder, inputs[i], attrs, side)
        return builder.emit(node.op, *inputs, graphs=node.graphs, **attrs)

    return remade(graph, make)


def _permuted(builder: Builder, operand: Node, attrs: dict[str, object], side: str) -> Node:
    """The operand as (batch, free, contracted); updates the contraction's attributes."""
    if widens_operand(operand):  # what is copied is narrow
        narrow = _permuted(builder, operand.inputs[0], attrs, side)
        return builder.emit(operand.op, narrow, **operand.attrs)
    batch: tuple[int, ...] = attrs[f"batch_{side}"]  # type: ignore[assignment]
    contract: tuple[int, ...] = attrs[f"contract_{side}"]  # type: ignore[assignment]
    rank = len(operand.shape)
    free = tuple(d for d in range(rank) if d not in batch and d not in contract)
    attrs[f"batch_{side}"] = tuple(range(len(batch)))
    attrs[f"contract_{side}"] = tuple(range(rank - len(contract), rank))
    return builder.emit(get("permute"), operand, dims=(*batch, *free, *contract))
