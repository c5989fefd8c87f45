"""Operators on complex numbers, which no kernel computes: what stands between Fourier transforms
stays on the GPU. As the NumPy backend has them, in what CuPy's arrays do themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.backends.cuda.routines.library import CuPy
from graphc.ir.dtypes import DType

Array = Any  # cupy.ndarray
Function = Callable[..., Any]


def _applied(name: str) -> Function:
    """One of CuPy's functions of arrays alone."""
    return lambda library, *arrays: getattr(library.cupy, name)(*arrays)


def _cast(library: CuPy, x: Array, *, dtype: DType) -> Array:
    if x.dtype.kind == "c" and dtype.numpy.kind != "c":
        x = x != 0 if dtype.numpy.kind == "b" else x.real
    return x.astype(dtype.numpy)


def _sign(library: CuPy, x: Array) -> Array:
    size = library.cupy.abs(x)
    where = library.cupy.where
    return where(size == 0, x * 0, x / where(size == 0, 1, size)).astype(x.dtype)


def _view_as_real(library: CuPy, x: Array) -> Array:
    return x.reshape(*x.shape, 1).view(x.real.dtype)


def _view_as_complex(library: CuPy, x: Array) -> Array:
    return x.view("c8" if x.dtype.itemsize == 4 else "c16").reshape(x.shape[:-1])


def _sum(library: CuPy, x: Array, *, dims: Sequence[int], keepdim: bool) -> Array:
    return x.sum(axis=tuple(dims), keepdims=keepdim) if dims else x


def _slices(
    starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def _pad(
    library: CuPy, x: Array, *, low: Sequence[int], high: Sequence[int], interior: Sequence[int],
    value: Any,
) -> Array:
    shape, where = [], []
    for n, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        body = n + (n - 1) * gap
        shape.append(before + body + after)
        where.append(slice(before, before + body, gap + 1))
    result = library.cupy.full(tuple(shape), value, x.dtype)
    result[tuple(where)] = x
    return result


def _dot_general(
    library: CuPy, a: Array, b: Array, *, batch_a: Sequence[int], batch_b: Sequence[int],
    contract_a: Sequence[int], contract_b: Sequence[int],
) -> Array:
    free_a = [d for d in range(a.ndim) if d not in (*batch_a, *contract_a)]
    free_b = [d for d in range(b.ndim) if d not in (*batch_b, *contract_b)]
    batch = [a.shape[d] for d in batch_a]
    inner = math.prod(a.shape[d] for d in contract_a)
    rows, columns = [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    left = a.transpose((*batch_a, *free_a, *contract_a)).reshape(*batch, math.prod(rows), inner)
    right = b.transpose((*batch_b, *contract_b, *free_b))
    right = right.reshape(*batch, inner, math.prod(columns))
    return library.cupy.matmul(left, right).reshape(*batch, *rows, *columns)


COMPLEX: Mapping[str, Function] = {
    **{
        name: _applied(called) for name, called in {
            "conj": "conj", "complex_abs": "abs", "add": "add", "sub": "subtract",
            "mul": "multiply", "div": "divide", "neg": "negative", "exp": "exp", "log": "log",
            "sqrt": "sqrt", "sin": "sin", "cos": "cos", "eq": "equal", "ne": "not_equal",
            "where": "where",
        }.items()
    },
    "square": lambda library, x: x * x, "reciprocal": lambda library, x: 1 / x,
    "cast": _cast, "complex_sign": _sign, "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex, "sum": _sum, "pad": _pad, "dot_general": _dot_general,
    "reshape": lambda library, x, *, shape: x.reshape(shape),
    "permute": lambda library, x, *, dims: x.transpose(dims),
    "expand": lambda library, x, *, shape: library.cupy.broadcast_to(x, tuple(shape)),
    "slice": lambda library, x, *, starts, stops, steps: x[_slices(starts, stops, steps)],
    "flip": lambda library, x, *, dims: x[
        tuple(slice(None, None, -1 if d in dims else 1) for d in range(x.ndim))
    ],
    "concat": lambda library, *xs, dim: library.cupy.concatenate(xs, axis=dim),
}
