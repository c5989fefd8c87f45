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
from .gradient_layout import Order, in_order, order_of
from .layouts import NotDense, strided
from .nodes import AccumulateGrad, Node, World
from .tensor import Tensor, from_array


def accumulate(variable: Tensor, value: np.ndarray, alone: bool) -> None:
    """Add an array to a leaf's `.grad`, or make it that. `alone`: nobody else refers to it, so that
    it may be taken over."""
    old = variable._grad
    try:
        if old is None:
            order = order_of(variable._graphc_array)
            if not (alone and lone_memory(value, order)):
                value = in_order(value, order)
            variable._grad = from_array(value)
        elif _adds_in_place(old):
            np.add(old._graphc_array, value, out=old._graphc_array)
            old._graphc_storage.version += 1
        else:
            with no_grad():
                inplace(old, apply(ops.add, old, from_array(value)))
    except NotDense:  # what is there is sparse
        with no_grad():
            variable._grad = apply(ops.add, from_array(value), old)


def _adds_in_place(old: Tensor) -> bool:
    """Whether NumPy can add to a gradient as the backend would."""
    array = old._graphc_array
    return (
        array.flags.writeable and array.dtype.char in "fd" and old._graphc_trace is None
        and (array.flags.c_contiguous or order_of(array) is not None)
    )


def lone_memory(array: np.ndarray, order: Order | None = None) -> bool:
    """Whether no other array can see the memory of an array without gaps, whose dims have this
    order there; None: row-major."""
    rows = array if order is None else array.transpose(order)
    if not (rows.flags.c_contiguous and rows.flags.writeable):
        return False
    del rows  # which refers to the owner
    owner = array.base
    # references: the array's, the variable here, and getrefcount's argument
    return not isinstance(owner, np.ndarray) or sys.getrefcount(owner) <= 3


def conform(node: Node, i: int, given: Any, want: TensorType, world: World) -> Any:
    """Sum a gradient of a broadcast shape down. Raises RuntimeError where it does not fit."""
    if isinstance(given, Tensor):  # a sparse one
        return _of_sparse(node, i, given, world)
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


def accumulate_sparse(variable: Tensor, value: Tensor) -> None:
    """Add a sparse gradient to a leaf's `.grad`, or make it that."""
    old = variable._grad
    with no_grad():
        if old is None:
            variable._grad = value._graphc_apart()
        elif old.layout is strided:
            inplace(old, apply(ops.add, old, value))
        else:
            variable._grad = apply(ops.add, old, value)


def _of_sparse(node: Node, i: int, given: Tensor, world: World) -> Any:
    """A sparse gradient: for a leaf, and for what makes a sparse tensor, as it is."""
    target = node.edges[i]
    assert target is not None
    want = target[0].out_types[target[1]]
    if tuple(given.shape) != tuple(want.shape):
        raise RuntimeError(located(
            f"Function {node.name()} returned an invalid gradient at index {i} - got "
            f"{list(given.shape)} but expected shape compatible with {list(want.shape)}"
        ))
    if given.dtype is not want.dtype:
        given = given.to(want.dtype)
    if isinstance(target[0], AccumulateGrad) or getattr(target[0], "function", None) is not None:
        return world.from_tensor(given)
    return world.from_tensor(given.to_dense())
