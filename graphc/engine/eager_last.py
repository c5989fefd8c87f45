"""Eager mode on images with their channels last: operators that keep them so (Op.keeps_channels)
run along memory, where that is the same operator with its dims in another order.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.channels import asks_for_last, last_order, with_channels_last
from ..ir.memory import contiguous, inverse
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_form import Types

Run = Callable[..., Any]
Prepare = Callable[[Op, Types, Attrs, Types], Run]


def kept(
    op: Op, types: Types, attrs: Attrs, results: Types, ready: Run, prepare: Prepare,
    compiled: bool,
) -> Run:
    """`ready`, or on images with their channels last what gives results like them. `compiled`:
    whether there is much to do, and kernels may be made for it."""
    rank = len(results[0].shape)
    gray = any(len(t.shape) > 3 and t.shape[1] == 1 for t in types)
    last: list[Run] = []
    asked: dict[Any, bool] = {}  # by strides; all else that it hangs on is known

    def chosen(*arrays: np.ndarray) -> Any:
        for array in arrays:
            if gray or not array.flags.c_contiguous:
                break
        else:
            return ready(*arrays)
        strides = tuple([array.strides for array in arrays])
        asks = asked.get(strides)
        if asks is None:
            asks = asked[strides] = asks_for_last(op, arrays, rank)
        if not asks:
            return ready(*arrays)
        if not last:
            make = _RULES.get(op.name)
            run = None if make is None else make(op, types, attrs, results, prepare)
            if run is None and compiled and op.name == "conv":
                kernels = importlib.import_module(".eager_kernels", __package__)
                run = kernels.convolution_last(op, types, attrs, results)
            last.append(_after(ready) if run is None else run)
        return last[0](*arrays)

    if hasattr(ready, "into"):
        chosen.__dict__["into"] = ready.into
    return chosen


def _after(ready: Run) -> Run:
    """Computed in rows, and laid out then."""

    def run(*arrays: np.ndarray) -> Any:
        out = ready(*map(contiguous, arrays))
        if type(out) is not tuple:
            return with_channels_last(out)
        return tuple([with_channels_last(part) if part.ndim > 3 else part for part in out])

    return run


def _turned(types: Types, order: Sequence[int]) -> list[TensorType]:
    return [TensorType(t.dtype, tuple([t.shape[d] for d in order])) for t in types]


def _along_memory(
    op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare
) -> Run:
    """The operator with these attributes, on operands whose last dim is that of channels."""
    order = last_order(len(types[0].shape))
    back = inverse(order)
    run = prepare(op, _turned(types, order), attrs, _turned(results, order))

    def along(*arrays: np.ndarray) -> Any:
        out = run(*[contiguous(a.transpose(order)) for a in arrays])
        if type(out) is tuple:
            return tuple([part.transpose(back) for part in out])
        return out.transpose(back)

    return along


def _pad(op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare) -> Run:
    order = last_order(len(types[0].shape))
    moved = {
        name: tuple([attrs[name][d] for d in order]) for name in ("low", "high", "interior")
    }
    return _along_memory(op, types, {**attrs, **moved}, results, prepare)


def _concat(op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare) -> Run:
    place = last_order(len(types[0].shape)).index(attrs["dim"])
    return _along_memory(op, types, {**attrs, "dim": place}, results, prepare)


def _with_channels(attrs: Attrs) -> Attrs:
    """Windows of one channel each."""
    one = {"window": 1, "stride": 1, "pad_low": 0, "pad_high": 0, "dilation": 1}
    return {**attrs, **{name: (*attrs[name], value) for name, value in one.items()}}


def _window_sum(op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare) -> Run:
    return _along_memory(op, types, _with_channels(attrs), results, prepare)


def _max_pool(op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare) -> Run:
    run = _along_memory(op, types, _with_channels(attrs), results, prepare)
    channels: Any = types[0].shape[1]

    def pool(x: np.ndarray) -> Any:
        values, places = run(x)
        np.floor_divide(places, channels, places)  # of the plane, without its channels
        return values, places

    return pool


def _batch_norm(op: Op, types: Types, attrs: Attrs, results: Types, prepare: Prepare) -> Run:
    """Of rows of channels."""
    shape: Any = types[0].shape
    order, rows = last_order(len(shape)), (math.prod(shape) // max(shape[1], 1), shape[1])
    flat = [TensorType(t.dtype, rows) for t in (types[0], results[0])]
    run = prepare(op, [flat[0], *types[1:]], attrs, [flat[1], *results[1:]])
    sizes, back = [shape[d] for d in order], inverse(order)

    def norm(x: np.ndarray, *parameters: np.ndarray) -> Any:
        y, mean, variance = run(
            contiguous(x.transpose(order)).reshape(rows), *map(contiguous, parameters)
        )
        return y.reshape(sizes).transpose(back), mean, variance

    return norm


_RULES: dict[str, Callable[[Op, Types, Attrs, Types, Prepare], Run]] = {
    "pad": _pad, "concat": _concat, "window_sum": _window_sum, "max_pool": _max_pool,
    "batch_norm": _batch_norm,
}
