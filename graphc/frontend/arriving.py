"""What becomes of a gradient where it arrives: the type that is wanted, and a leaf's `.grad`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from graphc.ir import ops
from graphc.ir.autodiff import sum_to
from graphc.ir.types import TensorType

from .dispatch import apply, inplace
from .errors import located
from .grad_mode import no_grad
from .nodes import Node, World
from .tensor import Tensor, from_array


def accumulate(variable: Tensor, value: np.ndarray, alone: bool) -> None:
    """Add an array to a leaf's `.grad`, or make it that. `alone`: nobody else refers to it, so that
    it may be taken over."""
    old = variable._grad
    if old is None:
        if not (alone and lone_memory(value)):
            value = np.array(value, order="C")
        variable._grad = from_array(value)
    elif _adds_in_place(old):
        np.add(old._array, value, out=old._array)
        old._storage.version += 1
    else:
        with no_grad():
            inplace(old, apply(ops.add, old, from_array(value)))


def _adds_in_place(old: Tensor) -> bool:
    """Whether NumPy can add to a gradient as the backend would."""
    array = old._array
    return (
        array.flags.c_contiguous and array.flags.writeable and array.dtype.char in "fd"
        and old._trace is None
    )


def lone_memory(array: np.ndarray) -> bool:
    """Whether no other array can see a contiguous array's memory."""
    if not (array.flags.c_contiguous and array.flags.writeable):
        return False
    owner = array.base
    # references: the array's, the variable here, and getrefcount's argument
    return not isinstance(owner, np.ndarray) or sys.getrefcount(owner) <= 3


def conform(node: Node, i: int, given: Any, want: TensorType, world: World) -> Any:
    """Sum a gradient of a broadcast shape down. Raises RuntimeError where it does not fit."""
    value = world.to_expr(given)
    have: TensorType = value.type
    if have == want:
        return given
    if have.dtype is not want.dtype:
        value = ops.cast(value, dtype=want.dtype)
    if have.shape != want.shape:
        try:
            value = sum_to(value, want.shape)
        except Exception:
            raise RuntimeError(located(
                f"Function {node.name()} returned an invalid gradient at index {i} - got "
                f"{list(have.shape)} but expected shape compatible with {list(want.shape)}"
            )) from None
    return world.from_expr(value)
