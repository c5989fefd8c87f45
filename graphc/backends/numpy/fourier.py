"""Fourier transforms, by NumPy's pocketfft (which keeps float32)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .common import Array, Function, as_array


def _scaled(x: Any, scale: float, parts: Any) -> Array:
    return as_array(x if scale == 1.0 else x * parts.type(scale))


# along one dim NumPy's functions for several come to those for one, and take as long before that


def _complex(x: Array, *, dims: Sequence[int], inverse: bool, scale: float) -> Array:
    if not dims:
        return _scaled(x.copy(), scale, x.real.dtype)
    # NumPy scales its inverse by 1/n: "forward" moves that to the transform that is not used
    if len(dims) == 1:
        (d,) = dims
        found = np.fft.ifft(x, axis=d, norm="forward") if inverse else np.fft.fft(x, axis=d)
    elif inverse:
        found = np.fft.ifftn(x, axes=dims, norm="forward")
    else:
        found = np.fft.fftn(x, axes=dims)
    return _scaled(found, scale, x.real.dtype)


def _real(x: Array, *, dims: Sequence[int], scale: float) -> Array:
    if len(dims) == 1:
        return _scaled(np.fft.rfft(x, axis=dims[0]), scale, x.dtype)
    return _scaled(np.fft.rfftn(x, axes=dims), scale, x.dtype)


def _inverse_real(x: Array, *, dims: Sequence[int], size: int, scale: float) -> Array:
    sizes = [x.shape[d] for d in dims[:-1]] + [size]
    if prod(sizes) == 0:
        shape = [size if i == dims[-1] else n for i, n in enumerate(x.shape)]
        return np.zeros(shape, x.real.dtype)
    if len(dims) == 1:
        found = np.fft.irfft(x, size, axis=dims[0], norm="forward")
    else:
        found = np.fft.irfftn(x, sizes, axes=dims, norm="forward")
    return _scaled(found, scale, x.real.dtype)


TABLE: dict[str, Function] = {
    "fft_complex": _complex, "fft_real": _real, "fft_inverse_real": _inverse_real,
}
