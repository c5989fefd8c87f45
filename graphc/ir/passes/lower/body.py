"""A fused body as lowering sees it: sizes in the kernel's names, buffers, numbers of its dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...dim import Size, substitute
from ...dtypes import DType, rounded
from ...graph import Graph, Node
from ...kernel import Literal
from ...machine import Machine
from ...types import Shape


def carrier(dtype: DType) -> DType:
    """The dtype that a value is computed in: f32 for 16-bit floats."""
    return dtypes.f32 if dtype.is_float and dtype.bits == 16 else dtype


class Body:
    """A fused body with its sizes in the kernel's own names, the names of its buffers, and the
    machine that it is lowered for."""

    def __init__(
        self, graph: Graph, machine: Machine, rename: dict[str, Size] | None = None
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.rename = rename or {}
        self.buffers: dict[Node, str] = {node: f"a{i}" for i, node in enumerate(graph.inputs)}
        self._shapes: dict[Node, Shape] = {}

    def size(self, size: Size) -> Size:
        return substitute(size, self.rename) if self.rename else size

    def sizes(self, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(self.size(s) for s in sizes) if self.rename else sizes

    def shape(self, node: Node) -> Shape:
        if not self.rename:
            return node.shape
        shape = self._shapes.get(node)
        if shape is None:
            shape = self._shapes[node] = self.sizes(node.shape)
        return shape


def literal(value: Any, dtype: DType) -> Literal:
    """A number in a dtype's carrier, rounded to the dtype."""
    wide = carrier(dtype)
    if dtype.kind == "bool":
        return Literal(bool(value), wide)
    found = rounded(value, dtype) if dtype.is_float else dtype.numpy.type(value)
    return Literal(float(found) if dtype.is_float else int(found), wide)


def zero(dtype: DType) -> Literal:
    """0 as it is stored in memory of `dtype`."""
    return Literal(literal(0, dtype).value, dtype)


def literal_cast(value: Literal, dtype: DType) -> Literal | None:
    """A cast of a constant where it is plainly the same number."""
    if dtype.kind == "bool":
        return Literal(bool(value.value), dtype)
    if dtype.is_float:
        return literal(value.value, dtype)
    if isinstance(value.value, (bool, int)):
        info = np.iinfo(dtype.numpy)
        if info.min <= value.value <= info.max:
            return literal(value.value, dtype)
    return None
