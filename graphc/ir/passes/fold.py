"""fold: compute small constant parts of a graph now, by the reference operators."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..dim import is_static
from ..graph import Builder, Constant, Graph, Node, const, get_
from ..interpret import Table
from ..rewrite import everywhere, is_constant, rebuilt, scalar_value, with_inputs
from ..types import TensorType, TupleType, Type

LIMIT = 64  # elements: larger results stay computed, so that graphs and exports stay small


def fold(graph: Graph, table: Table, limit: int = LIMIT) -> Graph:
    """The graph with operators on constants replaced by constants of at most `limit` elements.

    `table` runs the operators (see ir/interpret.py). What raises (a division by zero) stays.
    """
    with np.errstate(all="ignore"):
        return everywhere(graph, lambda g: _fold_one(g, table, limit))


def _fold_one(graph: Graph, table: Table, limit: int) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    several: dict[Node, tuple[np.ndarray, ...]] = {}
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in several:
            array = several[node.inputs[0]][node.attrs["index"]]
            with builder.at(node.loc, node.backward):
                new[node] = builder.emit(const, value=Constant(array))
            continue
        current = with_inputs(node, [new[x] for x in node.inputs])
        new[node] = current
        value = _value(current, table, limit)
        if isinstance(value, tuple):
            several[node] = value
        elif value is not None:
            with builder.at(node.loc, node.backward):
                new[node] = builder.emit(const, value=Constant(value))
    return rebuilt(graph, new)


def _value(node: Node, table: Table, limit: int) -> Any:
    """What a node computes from constants alone, None where it does not or may not."""
    if not node.inputs or node.op.impure or node.graphs or node.op.name not in table:
        return None
    if not all(map(is_constant, node.inputs)):
        return None
    if not all(_is_small(x.type, limit) for x in (node, *node.inputs)):
        return None
    arrays = [_array(x) for x in node.inputs]
    if any(array is None for array in arrays):
        return None
    try:
        return table[node.op.name](*arrays, **node.attrs)
    except (RuntimeError, IndexError):
        return None


def _is_small(type_: Type, limit: int) -> bool:
    if isinstance(type_, TupleType):
        return all(_is_small(element, limit) for element in type_.elements)
    # [0, n] has 0 elements whatever n is, but no concrete shape
    return is_static(type_.shape) and prod(type_.static_shape) <= limit


def _array(node: Node) -> np.ndarray | None:
    if node.op is const:
        array: np.ndarray = node.attrs["value"].array
        return array
    value = scalar_value(node)
    assert isinstance(node.type, TensorType)
    return None if value is None else np.full(node.type.static_shape, value, node.dtype.numpy)


