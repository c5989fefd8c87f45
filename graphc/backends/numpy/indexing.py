"""Indexing operators: gather, scatter, NumPy-style advanced indexing and its update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.ir.failure import check_error
from graphc.ir.op import OutOfRange
from graphc.ir.types import TensorType

from .common import F32, HALF, Array, Function

_UFUNC = {"add": np.add, "mul": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _check_index(index: Array, size: int, dim: int, subject: str = "") -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)].flat[0]
        if subject:
            raise IndexError(f"{subject} {bad} is out of bounds.")
        raise OutOfRange(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def _along(index: Array, dim: int) -> tuple[Array, ...]:
    """Index arrays that address position index[i] of dim and i elsewhere."""
    grid: list[Array] = []
    for d, n in enumerate(index.shape):
        if d == dim:
            grid.append(index)
        else:
            grid.append(np.arange(n).reshape([-1 if e == d else 1 for e in range(index.ndim)]))
    return tuple(grid)


def _gather(x: Array, index: Array, *, dim: int, subject: str = "") -> Array:
    if x.ndim == 0:
        _check_index(index, 1, 0, subject)
        return np.array(np.broadcast_to(x, index.shape))
    _check_index(index, x.shape[dim], dim, subject)
    if index.ndim == 0:
        return np.asarray(x[index])
    return np.asarray(x[_along(index, dim)])


def _scatter(x: Array, index: Array, source: Array, *, dim: int, reduce: str) -> Array:
    result = x.astype(F32, order="C") if reduce and x.dtype.char in HALF else x.copy(order="C")
    if index.size == 0:
        return result.astype(x.dtype, copy=False)
    if x.ndim == 0:
        _scatter_into(result.reshape(1), index.reshape(1), source.reshape(1), dim, reduce)
    else:
        _scatter_into(result, index, source, dim, reduce)
    return result.astype(x.dtype, copy=False).reshape(x.shape)


def _scatter_into(result: Array, index: Array, source: Array, dim: int, reduce: str) -> None:
    _check_index(index, result.shape[dim], dim)
    source = source[tuple(slice(0, n) for n in index.shape)]
    where = _along(index, dim)
    if reduce:
        _UFUNC[reduce].at(result, where, source.astype(result.dtype, copy=False))
    else:
        result[where] = source


def subscript(
    x: Array, indices: tuple[Array, ...], dim: int, subject: str = ""
) -> tuple[Any, ...]:
    """The NumPy subscript; raises IndexError in torch's words."""
    for d, index in enumerate(indices, dim):
        size = x.shape[d]
        if index.size and (index.min() < -size or index.max() >= size):
            bad = index[(index < -size) | (index >= size)].flat[0]
            if ": " in subject:
                raise check_error(subject, ())
            if subject:
                raise IndexError(f"{subject} {bad} is out of bounds.")
            raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {size}")
    return (slice(None),) * dim + indices


def _index(x: Array, *indices: Array, dim: int, subject: str = "") -> Array:
    try:
        if len(indices) == 1 and indices[0].ndim:
            return x.take(indices[0], axis=dim)
        return np.array(x[(slice(None),) * dim + indices])
    except IndexError:
        subscript(x, indices, dim, subject)  # raises it in torch's words
        raise


def _index_put(
    x: Array, source: Array, *indices: Array, dim: int, accumulate: bool
) -> Array:
    where = subscript(x, indices, dim)
    if not accumulate:
        result = x.copy(order="C")
        result[where] = source
        return result
    result = x.astype(F32, order="C") if x.dtype.char in HALF else x.copy(order="C")
    _add_rows(result, source.astype(result.dtype, copy=False), indices, dim)
    return result.astype(x.dtype, copy=False)


_FEW = 1024  # numbers that NumPy adds one by one before it has sorted where they go


def _add_rows(result: Array, source: Array, indices: tuple[Array, ...], dim: int) -> None:
    """result[..., indices, ...] += source, repeated indices in order: few numbers one by one, many
    by sorted segments."""
    k = len(indices)
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    if prod(shape) * prod(result.shape[:dim]) * prod(result.shape[dim + k :]) <= _FEW:
        where: Any = (slice(None),) * dim + indices
        np.add.at(result, where, source)
        return
    sizes = result.shape[dim : dim + k]
    flat = np.zeros(shape, np.int64)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + np.where(index < 0, index + size, index)
    ids = flat.reshape(-1)
    lead, trail = result.shape[:dim], result.shape[dim + k :]
    full = np.broadcast_to(source, lead + shape + trail)
    if ids.size == 0 or full.size == 0:
        return
    rows = full.reshape((int(np.prod(lead, dtype=int)), ids.size, -1))
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sums = np.add.reduceat(rows[:, order], starts, axis=1)
    result.reshape((rows.shape[0], -1, rows.shape[2]))[:, ordered[starts]] += sums


def _scattering(types: Sequence[TensorType], dim: int, reduce: str) -> Callable[..., None]:
    """_scatter_into() of arrays of these types."""
    shape: Any = types[1].shape
    size: Any = types[0].shape[dim]
    lines = [
        None if d == dim else np.arange(n).reshape([-1 if e == d else 1 for e in range(len(shape))])
        for d, n in enumerate(shape)
    ]
    part = None if types[2].shape == shape else tuple([slice(0, n) for n in shape])
    combine, few = _UFUNC.get(reduce), prod(shape) <= _ASKED_ONE_BY_ONE

    def scatter(x: Array, index: Array, source: Array, out: Array) -> None:
        if few:
            known = index.ravel().tolist()
            fits = min(known) >= 0 and max(known) < size
        if not few or not fits:
            _check_index(index, size, dim)
        where = tuple([index if line is None else line for line in lines])
        if part is not None:
            source = source[part]
        if combine is None:
            out[where] = source
        else:
            combine.at(out, where, source.astype(out.dtype, copy=False))

    return scatter


_ASKED_ONE_BY_ONE = 64  # positions, of which a list's smallest is found before a ufunc has begun


def into(
    name: str, types: Sequence[TensorType], attrs: Mapping[str, Any]
) -> Callable[..., None] | None:
    """What writes to an array behind the operands, which is the first of them, if the operator
    changes that at some places alone."""
    if not types or not types[0].shape or any(0 in t.shape for t in types):
        return None
    if types[0].dtype.numpy.char in HALF and (attrs.get("reduce") or attrs.get("accumulate")):
        return None  # added up in float32
    dim: int = attrs.get("dim", 0)
    if name == "scatter":
        return _scattering(types, dim, attrs["reduce"])
    if name != "index_put":
        return None

    def put(x: Array, source: Array, *indices_out: Array) -> None:
        *indices, out = indices_out
        where = subscript(out, tuple(indices), dim)
        if attrs["accumulate"]:
            _add_rows(out, source.astype(out.dtype, copy=False), tuple(indices), dim)
        else:
            out[where] = source

    return put


TABLE: dict[str, Function] = {
    "gather": _gather,
    "scatter": _scatter,
    "index": _index,
    "index_put": _index_put,
}
