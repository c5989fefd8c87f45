"""Reductions, running sums, and sorting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.graph import Node
from graphc.ir.types import TensorType

from .rules import rule

if TYPE_CHECKING:
    from .writer import Writer

_REDUCE = {"sum": "ReduceSum", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin"}
_AXES_AS_INPUT = 18  # the opset from which on the axes of all reductions are an input


def reduced(w: Writer, op: str, x: str, dims: Any, keepdim: bool) -> str:
    """One of ONNX's reductions; x itself over no dims, where ONNX would take all."""
    if not dims:
        return x
    found: str
    if w.opset < _AXES_AS_INPUT and op != "ReduceSum":
        found = w.emit(op, x, axes=list(dims), keepdims=int(keepdim))
    else:
        found = w.emit(op, x, w.ints(list(dims)), keepdims=int(keepdim))
    return found


@rule("sum", "prod", "amax", "amin")
def _reduce(w: Writer, node: Node, x: str) -> Any:
    attrs = node.attrs
    return reduced(w, _REDUCE[node.op.name], x, attrs["dims"], attrs["keepdim"])


@rule("any")
def _any(w: Writer, node: Node, x: str) -> Any:
    return _some(w, node, x)


@rule("all")
def _all(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Not", _some(w, node, w.emit("Not", x)))


def _some(w: Writer, node: Node, x: str) -> str:
    """Whether any is, by a sum: of no elements it is 0, where an extremum is not defined."""
    total = reduced(
        w, "ReduceSum", w.cast(x, dtypes.i32), node.attrs["dims"], node.attrs["keepdim"]
    )
    found: str = w.emit("Greater", total, w.like(0, total))
    return found


@rule("argmax", "argmin")
def _argument(w: Writer, node: Node, x: str) -> Any:
    op = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    return w.emit(op, x, axis=node.attrs["dim"], keepdims=int(node.attrs["keepdim"]))


# --- running -----------------------------------------------------------------------------------


@rule("cumsum")
def _cumsum(w: Writer, node: Node, x: str) -> Any:
    return w.emit("CumSum", x, w.constant(node.attrs["dim"], dtypes.i64)) if node.shape else x


@rule("cumprod")
def _cumprod(w: Writer, node: Node, x: str) -> Any:
    if not node.shape or 0 in node.shape:
        return x
    dtype = node.dtype if node.dtype.bits >= 32 else (
        dtypes.f32 if node.dtype.is_float else dtypes.i32
    )
    x = w.cast(x, dtype)

    def step(carried: list[str], row: str) -> tuple[list[str], list[str]]:
        product = w.emit("Mul", carried[0], row)
        return [product], [w.emit("Identity", product)]

    (found,) = _running(w, node, x, [w.constant(1, dtype)], [dtype], step)
    return w.cast(found, node.dtype)


@rule("cummax", "cummin")
def _cumulative_extremum(w: Writer, node: Node, x: str) -> Any:
    """The latest of equals; a NaN stays."""
    shape = node.inputs[0].shape
    if not shape or 0 in shape:
        return x, w.constant(np.zeros(shape), dtypes.i64)
    dtype, given = node.inputs[0].dtype, x
    largest = node.op.name == "cummax"
    if not dtype.is_float:
        x = w.cast(x, dtypes.i64)
    elif dtype.bits < 32:
        x = w.cast(x, dtypes.f32)
    wide = w.types[x]
    if wide.is_float:
        least: Any = -math.inf if largest else math.inf
    else:
        bounds = np.iinfo(np.int64)
        least = bounds.min if largest else bounds.max

    def step(carried: list[str], row: str) -> tuple[list[str], list[str]]:
        best, place, number = carried
        better = w.emit("GreaterOrEqual" if largest else "LessOrEqual", row, best)
        if wide.is_float:
            better = w.emit("Or", better, w.emit("IsNaN", row))
        best = w.emit("Where", better, row, best)
        place = w.emit("Where", better, number, place)
        number = w.emit("Add", number, w.like(1, number))
        return [best, place, number], [w.emit("Identity", place)]

    starts = [w.constant(least, wide), w.size(0), w.size(0)]
    kinds = [wide, dtypes.i64, dtypes.i64]
    (places,) = _running(w, node, x, starts, kinds, step, results=[dtypes.i64])
    return w.emit("GatherElements", given, places, axis=node.attrs["dim"]), places


def _running(
    w: Writer, node: Node, x: str, starts: list[str], kinds: Any, step: Any, results: Any = None
) -> tuple[str, ...]:
    """A Scan along the dim; every carried value has the shape of a row."""
    dim, shape = node.attrs["dim"], node.inputs[0].shape
    row = (*shape[:dim], *shape[dim + 1 :])
    initial = [w.emit("Expand", start, w.shape(row)) if row else start for start in starts]
    types = [TensorType(kind, row) for kind in kinds]
    stacked = [TensorType(kind, row) for kind in (results or kinds[:1])]
    with w.inside() as nodes:
        names = [w.input("carried", kind) for kind in kinds]
        one = w.input("row", w.types[x])
        carried, outputs = step(names, one)
    body = w.onnx.helper.make_graph(
        nodes, w.name("running"),
        [w.value_info(n, t) for n, t in zip(names, types, strict=True)]
        + [w.value_info(one, TensorType(w.types[x], row))],
        [w.value_info(n, t) for n, t in zip((*carried, *outputs), (*types, *stacked), strict=True)],
    )
    found = w.raw(
        "Scan", [*initial, x], [*kinds, *(t.dtype for t in stacked)], body=body,
        num_scan_inputs=1, scan_input_axes=[dim], scan_output_axes=[dim] * len(outputs),
    )
    return found[len(kinds) :]


# --- sorting -----------------------------------------------------------------------------------


@rule("sort")
def _sort(w: Writer, node: Node, x: str) -> Any:
    dim, shape = node.attrs["dim"], node.inputs[0].shape
    if not shape:
        return x, w.size(0)
    return _topk(w, x, w.shape((shape[dim],)), dim, node.attrs["descending"])


@rule("topk")
def _top(w: Writer, node: Node, x: str) -> Any:
    attrs = node.attrs
    if not node.inputs[0].shape:
        return x, w.size(0)
    return _topk(w, x, w.shape((attrs["k"],)), attrs["dim"], attrs["largest"])


def _topk(w: Writer, x: str, count: str, dim: int, largest: bool) -> Any:
    """Of equals the first comes first, as the standard says."""
    return w.emit("TopK", x, count, outputs=2, axis=dim, largest=int(largest), sorted=1)
