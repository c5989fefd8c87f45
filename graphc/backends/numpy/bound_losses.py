"""Losses of rows with known sizes, in the steps of their decompositions; see bound.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.types import TensorType

from .common import Array, Function
from .composite import TABLE as COMPOSITE

_EXACT = 2**24  # up to so many, a sum of ones is exact in float32


def cross_entropy(
    types: Sequence[TensorType], *, ignore_index: int, label_smoothing: float, reduction: str
) -> Function | None:
    """Of logits [N, C] without weights or smoothing; where a target is no class, and not ignored,
    the table's function is called."""
    shape = types[0].shape
    if len(types) != 2 or len(shape) != 2 or label_smoothing or 0 in shape or shape[0] > _EXACT:  # type: ignore[operator]
        return None
    rows, classes = np.arange(shape[0]), np.uint64(shape[1])  # type: ignore[arg-type]
    every = np.asarray(shape[0], types[0].dtype.numpy)
    ignoring = 0 <= ignore_index < shape[1]  # type: ignore[operator]
    slow = COMPOSITE["cross_entropy"]
    peak: Any = np.maximum.reduce
    total: Any = np.add.reduce
    attrs = {"ignore_index": ignore_index, "label_smoothing": label_smoothing,
             "reduction": reduction}

    def run(x: Array, target: Array) -> Any:
        valid = None
        if ignoring or not peak(target.view(np.uint64)) < classes:
            valid, given = np.not_equal(target, ignore_index), target
            target = np.where(valid, target, 0)
            if not peak(target.view(np.uint64)) < classes:
                return slow(x, given, **attrs)
        highest = peak(x, 1)
        away = np.subtract(x, highest[:, None])
        loss = total(np.exp(away, away), 1)
        np.log(loss, loss)
        picked = x[rows, target]
        np.subtract(picked, highest, picked)
        np.subtract(loss, picked, loss)
        return _reduced(loss, valid, reduction, every)

    return run


def nll_loss(
    types: Sequence[TensorType], *, ignore_index: int, reduction: str
) -> Function | None:
    """The same of log-probabilities."""
    shape: Any = types[0].shape
    if len(types) != 2 or len(shape) != 2 or 0 in shape or shape[0] > _EXACT:
        return None
    rows, classes = np.arange(shape[0]), np.uint64(shape[1])
    every = np.asarray(shape[0], types[0].dtype.numpy)
    ignoring = 0 <= ignore_index < shape[1]
    slow = COMPOSITE["nll_loss"]
    peak: Any = np.maximum.reduce

    def run(x: Array, target: Array) -> Any:
        valid = None
        if ignoring or not peak(target.view(np.uint64)) < classes:
            valid, given = np.not_equal(target, ignore_index), target
            target = np.where(valid, target, 0)
            if not peak(target.view(np.uint64)) < classes:
                return slow(x, given, ignore_index=ignore_index, reduction=reduction)
        loss = x[rows, target]
        np.negative(loss, loss)
        return _reduced(loss, valid, reduction, every)

    return run


def _reduced(loss: Array, valid: Array | None, reduction: str, every: Array) -> Any:
    """The losses of valid targets; `every`: how many there are, where all are valid."""
    if valid is not None:
        loss = np.where(valid, loss, loss.dtype.type(0))
        every = np.asarray(np.count_nonzero(valid), loss.dtype)
    if reduction == "none":
        return loss
    total: Any = np.add.reduce
    summed = total(loss, 0, None, np.empty((), loss.dtype))
    return summed if reduction == "sum" else np.true_divide(summed, every, summed)
