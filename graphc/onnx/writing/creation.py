"""Operators without inputs: constants, fills and counting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir.dim import Dim
from graphc.ir.graph import Node

from .movement import along, counted
from .rules import rule

if TYPE_CHECKING:
    from .writer import Writer


@rule("const")
def _const(w: Writer, node: Node) -> Any:
    return w.constant(node.attrs["value"].array, node.dtype)


@rule("full")
def _full(w: Writer, node: Node) -> Any:
    value = node.attrs["value"]
    if isinstance(value, Dim):
        number = w.cast(w.size(value), node.dtype)
    else:
        number = w.constant(value, node.dtype)
    return w.emit("Expand", number, w.shape(node.shape)) if node.shape else number


@rule("iota")
def _iota(w: Writer, node: Node) -> Any:
    dim, shape = node.attrs["dim"], node.shape
    line = along(w, w.cast(counted(w, shape[dim]), node.dtype), len(shape), dim)
    return w.emit("Expand", line, w.shape(shape)) if len(shape) > 1 else line
