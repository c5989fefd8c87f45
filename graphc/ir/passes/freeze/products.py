"""Products whose right operand is a constant read it in panels of the machine's tiles, which are
laid out once.

A product packs its right operand into such panels at every call, which is as much work as some
rows. Where few rows meet it, it is read where it lies, along the columns of the product: memory
gives whole panels faster, a cache does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ... import dtypes
from ...dim import Size, product, unwrap
from ...graph import Builder, Graph, Node
from ...machine import Machine, Tiling
from ...op import get
from ...rewrite import rebuilt, with_inputs
from ..lower.contraction import widens_operand

LEAST = 1 << 12  # elements of a weight: fewer are packed in no time to speak of


@dataclass(frozen=True)
class _Panels:
    """How a weight is laid out for a product: its dims that are columns of the product, those that
    are summed over, and how many columns a panel has."""

    free: tuple[int, ...]
    contract: tuple[int, ...]
    columns: int

    def made(self, builder: Builder, weight: Node) -> Node:
        """The weight as [panels, *k, columns], with zeros for what the last panel has too many."""
        n, inner = _size(weight, self.free), [weight.shape[d] for d in self.contract]
        rows = builder.emit(get("permute"), weight, dims=(*self.free, *self.contract))
        rows = builder.emit(get("reshape"), rows, shape=(n, *inner))
        panels = -(-n // self.columns)
        if panels * self.columns != n:
            none = (0,) * len(inner)
            high = (panels * self.columns - n, *none)
            rows = builder.emit(
                get("pad"), rows, low=(0, *none), high=high, interior=(0, *none), value=0.0
            )
        split = builder.emit(get("reshape"), rows, shape=(panels, self.columns, *inner))
        return builder.emit(get("permute"), split, dims=(0, *range(2, 2 + len(inner)), 1))

    def rows(self, builder: Builder, packed: Node, n: int) -> Node:
        """The panels as a view [n, *k]."""
        panels, *inner, columns = packed.shape
        last = len(inner) + 1
        rows = builder.emit(get("permute"), packed, dims=(0, last, *range(1, last)))
        rows = builder.emit(get("reshape"), rows, shape=(panels * columns, *inner))
        if rows.shape[0] == n:
            return rows
        none, one = (0,) * last, (1,) * last
        return builder.emit(get("slice"), rows, starts=none, stops=(n, *inner), steps=one)


def pack_products(
    graph: Graph, constant: Collection[Node], machine: Machine
) -> tuple[Graph, frozenset[Node]]:
    """The graph with such products, and the weights that are laid out in it."""
    chosen = {} if machine.tiling is None else _chosen(graph, constant, machine.tiling)
    if not chosen:
        return graph, frozenset()
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    laid_out: dict[tuple[Node, _Panels], Node] = {}
    for node in graph.nodes:
        panels = chosen.get(node)
        if panels is None:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
            continue
        left, weight = (new[x] for x in node.inputs)
        with builder.at(node.loc, node.backward):
            if (weight, panels) not in laid_out:
                laid_out[weight, panels] = panels.made(builder, weight)
            rows = panels.rows(builder, laid_out[weight, panels], _size(weight, panels.free))
            contract = tuple(range(1, len(rows.shape)))
            found = builder.emit(node.op, left, rows, **{**node.attrs, "contract_b": contract})
            new[node] = builder.emit(get("reshape"), found, shape=node.shape)
    return rebuilt(graph, new), frozenset(laid_out.values())


def _chosen(
    graph: Graph, constant: Collection[Node], tiling: Tiling
) -> dict[Node, _Panels]:
    """The products that are better off with panels."""
    found = {
        node: panels for node in graph.nodes
        if node.op.name == "dot_general" and node not in constant and node.inputs[1] in constant
        and (panels := _panels(node, tiling))
    }
    weights = dict.fromkeys(node.inputs[1] for node in found)
    size = sum(_size(x, range(len(x.shape))) * x.dtype.itemsize for x in weights)
    least = tiling.dot_rows + 1 if size <= tiling.in_place_bytes else 1
    most = tiling.packed_rows // (1 if size <= tiling.packed_bytes else 2)
    return {
        node: panels for node, panels in found.items()
        if least <= graph.env.hint(_rows(node)) <= most
    }


def _panels(node: Node, tiling: Tiling) -> _Panels | None:
    """How a product's right operand would be laid out; None where it is well as it is."""
    weight, attrs = node.inputs[1], node.attrs
    if attrs["batch_b"] or node.dtype not in (dtypes.f32, dtypes.f64) or widens_operand(weight):
        return None
    contract: tuple[int, ...] = attrs["contract_b"]
    free = tuple([d for d in range(len(weight.shape)) if d not in contract])
    if _size(weight, range(len(weight.shape))) < LEAST:
        return None
    return _Panels(free, contract, tiling.columns(node.dtype.itemsize))


def _rows(node: Node) -> Size:
    left, contract = node.inputs[0], node.attrs["contract_a"]
    return unwrap(product(s for d, s in enumerate(left.shape) if d not in contract))


def _size(weight: Node, dims: Iterable[int]) -> int:
    found = unwrap(product(weight.shape[d] for d in dims))
    assert isinstance(found, int)
    return found
