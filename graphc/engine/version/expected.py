"""What the memory of an input must be like: shape, dtype, layout, device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend.captured import NumberInput, TensorInput
from ...frontend.functionalize import is_contiguous
from ...frontend.placement import Place, place_at
from ...frontend.storage import strides_of
from ...ir.dim import Dim, evaluate, is_variable


def place_of_input(source: Any) -> Place | None:
    """Where the memory of an input lies; None: on the CPU."""
    tensor = source.tensor if isinstance(source, TensorInput) else None
    return None if tensor is None else place_at(tensor)


def expectation(source: Any) -> tuple[Any, np.dtype, bool, Any]:
    """Shape, dtype, whether it is row-major without gaps, strides."""
    type_ = source.type
    if isinstance(source, NumberInput):
        return type_.shape, type_.dtype.numpy, True, None
    rows = is_contiguous(type_.shape, source.strides)
    return type_.shape, type_.dtype.numpy, rows, tuple(source.strides)


def is_laid_out(array: np.ndarray, strides: tuple[Any, ...], dims: dict[str, int]) -> bool:
    """Whether memory is as the trace took it to be; the steps of gaps are noted among the dims.

    A dimension of size 1 may have any stride.
    """
    steps = list(zip(array.shape, strides_of(array), strides, strict=True))
    for _, have, want in steps:
        if isinstance(want, Dim) and is_variable(want):
            if have < 2:
                return False
            dims.setdefault(str(want), have)
    return all(
        size == 1 or have == (want if isinstance(want, int) else evaluate(want, dims))
        for size, have, want in steps
    )


def bind(have: tuple[int, ...], want: tuple[Any, ...], dims: dict[str, int]) -> bool:
    """Match sizes against a shape with named dims, and note the dims' values."""
    if len(have) != len(want):
        return False
    for size, expected in zip(have, want, strict=True):
        if isinstance(expected, int):
            if size != expected:
                return False
            continue
        name = str(expected)
        if dims.setdefault(name, size) != size or size < 2:
            return False
    return True
