"""The numbers that a tensor is made of, as its dtype."""

from __future__ import annotations

import numpy as np

from graphc.ir.dtypes import DType

from ..errors import located
from .arguments import fitting


def converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The data as `dtype`. Raises RuntimeError for an integer outside its range."""
    if array.dtype == dtype.numpy:
        return array.copy()
    if array.dtype.kind == "c" and not dtype.is_complex:
        raise RuntimeError(located(
            f"value cannot be converted to type {dtype.torch_name} without overflow"
        ))
    if dtype.is_integer and array.size and array.dtype.kind in "iuf":
        for bound in (array.min(), array.max()):
            if not np.isnan(bound) and not isinstance(bound, np.floating):
                _fits(int(bound), dtype)
    with np.errstate(all="ignore"):  # a float too large is infinite, as in torch
        return array.astype(dtype.numpy)


def floats_fit(array: np.ndarray, dtype: DType) -> None:
    """Raise RuntimeError for a Python float that integers of `dtype` cannot hold."""
    most = float(2 ** (dtype.bits - dtype.is_signed))
    least = -most if dtype.is_signed else 0.0
    inside = (array >= least) & (array <= (most if dtype.bits == 64 else most - 1))
    if not inside.all():
        raise RuntimeError(located(
            f"value cannot be converted to type {dtype.torch_name} without overflow: "
            f"{array[~inside][0] if array.ndim else array[()]}"
        ))


def _fits(value: int, dtype: DType) -> None:
    try:
        fitting(value, dtype)
    except RuntimeError:
        raise RuntimeError(located(
            f"value cannot be converted to type {dtype.torch_name} without overflow: {value}"
        )) from None
