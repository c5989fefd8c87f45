"""Products whose right operand is a constant read it in panels of the machine's tiles, which are
laid out once.

A product packs its right operand into such panels at every call, which is as much work as some
rows. Where few rows meet it, it is read where it lies, along the columns of the product: memory
gives whole panels faster, a cache does not.
"""

from __future__ import annotations

from collections.abc import Collection

from ...graph import Builder, Graph, Node
from ...machine import Machine, Tiling
from ...op import get
from ...rewrite import rebuilt, with_inputs
from ..panels import Panels, narrowed, panels_for, rows_of, size_of

LEAST = 1 << 12  # elements of a weight: fewer are packed in no time to speak of


def pack_products(
    graph: Graph, constant: Collection[Node], machine: Machine
) -> tuple[Graph, frozenset[Node]]:
    """The graph with such products, and the weights that are laid out in it."""
    chosen = {} if machine.tiling is None else _chosen(graph, constant, machine.tiling)
    if not chosen:
        return graph, frozenset()
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    laid_out: dict[tuple[Node, Panels], Node] = {}
    for node in graph.nodes:
        panels = chosen.get(node)
        if panels is None:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
            continue
        left, weight = new[node.inputs[0]], new[narrowed(node)[1]]
        with builder.at(node.loc, node.backward):
            if (weight, panels) not in laid_out:
                laid_out[weight, panels] = panels.made(builder, weight)
            rows = panels.rows(builder, laid_out[weight, panels], weight)
            if rows.dtype is not left.dtype:
                rows = builder.emit(get("cast"), rows, dtype=left.dtype)
            contract = tuple(range(1, len(rows.shape)))
            found = builder.emit(node.op, left, rows, **{**node.attrs, "contract_b": contract})
            new[node] = builder.emit(get("reshape"), found, shape=node.shape)
    return rebuilt(graph, new), frozenset(laid_out.values())


def _chosen(graph: Graph, constant: Collection[Node], tiling: Tiling) -> dict[Node, Panels]:
    """The products that are better off with panels."""
    found = {
        node: panels for node in graph.nodes
        if node.op.name == "dot_general" and node not in constant and node.inputs[1] in constant
        and (panels := _panels(node, tiling, graph.env.hint(rows_of(node))))
    }
    weights = dict.fromkeys(narrowed(node)[1] for node in found)
    cached = sum(size_of(x, range(len(x.shape))) * x.dtype.itemsize for x in weights) <= (
        tiling.in_place_bytes
    )
    least = tiling.dot_rows + 1 if cached else 1
    return {
        node: panels for node, panels in found.items()
        if least <= graph.env.hint(rows_of(node)) <= tiling.packed_rows * panels.shape.group
    }


def _panels(node: Node, tiling: Tiling, rows: int) -> Panels | None:
    """How a product's right operand would be laid out; None where it is well as it is."""
    weight = node.inputs[1]
    if size_of(weight, range(len(weight.shape))) < LEAST:
        return None
    return panels_for(node, tiling, rows)
