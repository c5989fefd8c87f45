"""Complex numbers: conjugate, absolute value, sign, and the views of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import Array, Function, as_array

_WIDER = {"f": np.complex64, "d": np.complex128}
_PARTS = {"F": np.float32, "D": np.float64}


def _sign(x: Array) -> Any:
    size = np.abs(x)
    return np.where(size == 0, x.dtype.type(0), x / np.where(size == 0, 1, size)).astype(x.dtype)


def view_as_real(x: Array) -> Array:
    """[..., 2] over the memory of complex [...]."""
    part = np.dtype(_PARTS[x.dtype.char])
    # x.real is strided by whole complex numbers: the imaginary parts lie between
    return np.lib.stride_tricks.as_strided(
        x.real, (*x.shape, 2), (*x.strides, part.itemsize), writeable=x.flags.writeable
    )


def view_as_complex(x: Array) -> Array:
    """Complex [...] over the memory of [..., 2]; the pairs must be adjacent."""
    kind = np.dtype(_WIDER[x.dtype.char])
    if x.size == 0:
        return np.empty(x.shape[:-1], kind)
    if x.strides[-1] != x.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % kind.itemsize for n, s in zip(x.shape[:-1], x.strides, strict=False) if n > 1):
        raise RuntimeError(
            "Tensor must have a stride divisible by 2 for all but last dimension"
        )
    return as_array(x.view(kind)[..., 0])


def _complex_copy(x: Array) -> Array:
    """A routine's reading: any layout."""
    return view_as_complex(np.ascontiguousarray(x))


TABLE: dict[str, Function] = {
    "conj": lambda x: as_array(np.conjugate(x)),
    "complex_abs": lambda x: as_array(np.abs(x)),
    "complex_sign": lambda x: as_array(_sign(x)),
    "view_as_real": view_as_real,
    "view_as_complex": _complex_copy,
}
