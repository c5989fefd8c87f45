"""Fourier transforms along one dim, of arrays of known types: the functions that NumPy's own call,
which take a fifth of the time on few numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.types import TensorType

from .common import Array, Function

Types = Sequence[TensorType]


@functools.cache
def _functions() -> Any:
    """The module of NumPy's that has them; None: it is not where it was, or not as it was."""
    found: Any = getattr(np.fft, "_pocketfft_umath", None)
    x, half = np.arange(5) + 0.5j, np.arange(3) + 0.5j
    odd, even = x.real, x.real[:4]
    along: Any = [(0,), (), (0,)]
    try:
        same = [
            (found.fft(x, 1, axes=along, out=x.copy()), np.fft.fft(x)),
            (found.ifft(x, 1, axes=along, out=x.copy()), np.fft.ifft(x, norm="forward")),
            (found.rfft_n_odd(odd, 1, axes=along, out=half.copy()), np.fft.rfft(odd)),
            (found.rfft_n_even(even, 1, axes=along, out=half.copy()), np.fft.rfft(even)),
            (
                found.irfft(half, 1, axes=along, out=np.empty(4)),
                np.fft.irfft(half, 4, norm="forward"),
            ),
        ]
    except (AttributeError, TypeError, ValueError):
        return None
    return found if all(a.tobytes() == b.tobytes() for a, b in same) else None


def _along(
    name: str, dim: int, shape: Sequence[Any], dtype: Any, scale: float, parts: Any
) -> Function | None:
    """`name` of the module, along a dim, into arrays of a shape; None: there is no such."""
    function: Callable[..., Any] | None = getattr(_functions(), name, None)
    if function is None or 0 in shape:
        return None
    axes, sizes, factor = [(dim,), (), (dim,)], tuple(shape), parts.type(scale)
    empty, multiply = np.empty_like, None if scale == 1.0 else np.multiply

    def run(x: Array) -> Array:
        out: Array = empty(x, shape=sizes, dtype=dtype)
        function(x, 1, axes=axes, out=out)
        return out if multiply is None else multiply(out, factor, out)

    return run


def _complex(types: Types, *, dims: Sequence[int], inverse: bool, scale: float) -> Function | None:
    shape, dtype = types[0].shape, types[0].dtype.numpy
    if len(dims) != 1:
        return None
    return _along("ifft" if inverse else "fft", dims[0], shape, dtype, scale, _part(dtype))


def _real(types: Types, *, dims: Sequence[int], scale: float) -> Function | None:
    shape, dtype = list(types[0].shape), types[0].dtype.numpy
    if len(dims) != 1 or dtype.char not in _WHOLE:
        return None
    size: Any = shape[dims[0]]
    shape[dims[0]] = size // 2 + 1
    name = "rfft_n_odd" if size % 2 else "rfft_n_even"
    return _along(name, dims[0], shape, _WHOLE[dtype.char], scale, dtype) if size else None


def _inverse_real(
    types: Types, *, dims: Sequence[int], size: int, scale: float
) -> Function | None:
    shape, dtype = list(types[0].shape), types[0].dtype.numpy
    if len(dims) != 1 or 0 in shape or shape[dims[0]] != size // 2 + 1:
        return None
    shape[dims[0]] = size
    return _along("irfft", dims[0], shape, _part(dtype), scale, _part(dtype))


_WHOLE = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)


TABLE: dict[str, Callable[..., Function | None]] = {
    "fft_complex": _complex, "fft_real": _real, "fft_inverse_real": _inverse_real,
}
