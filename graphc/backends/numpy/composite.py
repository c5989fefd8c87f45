"""Composite operators: the common ones written out for speed, the others by decomposition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir import interpret
from graphc.ir.decomposition import decomposition_graph
from graphc.ir.dtypes import from_numpy
from graphc.ir.op import get
from graphc.ir.types import TensorType

from . import elementwise, movement, random
from .common import Array, Function, as_array, through_f32, widen
from .contract import TABLE as CONTRACT
from .indexing import TABLE as INDEXING
from .special import erf


def _shifted(x: Array, dim: int) -> tuple[Array, Array]:
    """x - max(x) and its exponential."""
    away = x - np.max(x, axis=dim, keepdims=True)
    return away, np.exp(away)


def _softmax(x: Array, *, dim: int) -> Any:
    if x.shape[dim] == 0:
        return x.copy()
    _, e = _shifted(x, dim)
    e /= np.sum(e, axis=dim, keepdims=True)
    return e


def _log_softmax(x: Array, *, dim: int) -> Any:
    if x.shape[dim] == 0:
        return x.copy()
    away, e = _shifted(x, dim)
    away -= np.log(np.sum(e, axis=dim, keepdims=True))
    return away


def _logsumexp(x: Array, *, dim: int, keepdim: bool) -> Any:
    if x.shape[dim] == 0:
        return as_array(np.log(np.sum(x, axis=dim, keepdims=keepdim)))
    peak = np.max(x, axis=dim, keepdims=True)
    peak = np.where(np.isinf(peak), x.dtype.type(0), peak)
    total = np.log(np.sum(np.exp(x - peak), axis=dim, keepdims=True)) + peak
    return total if keepdim else total.squeeze(dim)


def _gelu(x: Array, *, approximate: str) -> Any:
    number = x.dtype.type
    if approximate == "tanh":
        inner = (x + x * x * x * number(0.044715)) * number(math.sqrt(2.0 / math.pi))
        return x * number(0.5) * (np.tanh(inner) + number(1))
    return x * number(0.5) * (erf(as_array(x * number(math.sqrt(0.5)))) + number(1))


def _silu(x: Array) -> Any:
    one = x.dtype.type(1)
    return x * (one / (one + np.exp(-x)))


def _softplus(x: Array, *, beta: float, threshold: float) -> Any:
    z = x * x.dtype.type(beta)
    return np.where(z > threshold, x, np.log1p(np.exp(z)) / x.dtype.type(beta))


def _moments(x: Array, dims: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """x - mean, mean, biased variance over dims, kept as size 1. A mean is rounded: what is left
    when it is subtracted, on average, belongs to it."""
    n = x.dtype.type(math.prod(x.shape[d] for d in dims))
    mean = np.add.reduce(x, axis=dims, keepdims=True) / n
    centred = x - mean
    left = np.add.reduce(centred, axis=dims, keepdims=True) / n
    centred -= left
    return centred, mean + left, np.add.reduce(centred * centred, axis=dims, keepdims=True) / n


def _layer_norm(
    x: Array, *parameters: Array, normalized_dims: Sequence[int], eps: float
) -> Array:
    dtype = x.dtype
    wide = widen(x)
    y, _, variance = _moments(wide, tuple(normalized_dims))
    y *= wide.dtype.type(1) / np.sqrt(variance + wide.dtype.type(eps))
    if parameters:
        y *= widen(parameters[0])
    if len(parameters) > 1:
        y += widen(parameters[1])
    return y.astype(dtype, copy=False)


def _batch_norm(x: Array, *parameters: Array, eps: float) -> tuple[Array, Array, Array]:
    dtype = x.dtype
    wide = widen(x)
    y, mean, variance = _moments(wide, tuple(d for d in range(x.ndim) if d != 1))
    y *= wide.dtype.type(1) / np.sqrt(variance + wide.dtype.type(eps))
    if parameters:
        column = (-1, *(1,) * (x.ndim - 2))
        y *= widen(parameters[0]).reshape(column)
        y += widen(parameters[1]).reshape(column)
    return y.astype(dtype, copy=False), mean.reshape(-1), variance.reshape(-1)


_PARTS: dict[str, Function] = {
    **elementwise.TABLE, **movement.TABLE, **INDEXING, **CONTRACT, **random.TABLE,
}


def _by_decomposition(name: str) -> Function:
    """Run the record's decomposition, traced once per signature."""

    def run(*arrays: Array, **attrs: Any) -> Any:
        types = tuple(TensorType(from_numpy(a.dtype), a.shape) for a in arrays)
        graph = decomposition_graph(get(name), types, attrs)
        results = interpret.evaluate(graph, arrays, _PARTS)
        return results[0] if len(results) == 1 else tuple(results)

    return run


TABLE: dict[str, Function] = {
    "softmax": through_f32(_softmax),
    "log_softmax": through_f32(_log_softmax),
    "logsumexp": through_f32(_logsumexp),
    "gelu": through_f32(_gelu),
    "silu": through_f32(_silu),
    "softplus": through_f32(_softplus),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "cross_entropy": _by_decomposition("cross_entropy"),
    "nll_loss": _by_decomposition("nll_loss"),
    "partial": _by_decomposition("partial"),
    "attention": _by_decomposition("attention"),
    "attention_grad": _by_decomposition("attention_grad"),
}
_PARTS.update(TABLE)  # attention of 16-bit floats is made of a wider one
