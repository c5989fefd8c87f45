"""Operands of compiled code whose memory is not row-major: turned around, or with gaps.

A copy without gaps costs less than NumPy's arithmetic on what is left of a line. What is turned
(a transposed matrix) stays so where the order of elements is nothing to the operator, and its
result lies as it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.memory import contiguous
from ..ir.op import Attrs, Op


def in_row_major(
    op: Op, shape: tuple[int, ...], arrays: Sequence[np.ndarray], call: Callable[..., Any],
    ready: Callable[..., Any],
) -> Any:
    """`call` on row-major arrays that have these values; `ready`, which is NumPy, where results,
    of `shape`, are to lie in an order that `call` knows nothing of."""
    if op.family == "movement":  # NumPy copies what it reads once
        return ready(*arrays)
    if op.family == "reduce":  # NumPy goes along memory, whichever dims are left
        x = arrays[0]
        turned_around = x.transpose(np.argsort([-s for s in x.strides])).flags.c_contiguous
        return ready(x) if turned_around else call([contiguous(x)])
    if op.name in _LIGHT and arrays[0].dtype.char in "fd" and all(map(_has_gaps_alone, arrays)):
        return ready(*arrays)
    order = _order(shape, arrays) if op.keeps_order else None
    if order is None or order == sorted(order):
        return call([contiguous(a) for a in arrays])
    if not op.pointwise or any(a.shape not in (shape, ()) for a in arrays):
        return ready(*arrays)
    turned = [
        contiguous(a.transpose(order)).reshape(shape) if a.ndim else a for a in arrays
    ]
    sizes = tuple([shape[d] for d in order])
    return call(turned).reshape(sizes).transpose(np.argsort(order))


# as quick and to the same bits by NumPy, which needs no copy of what has gaps
_LIGHT = frozenset(
    "add sub mul div neg abs square sqrt maximum minimum eq ne lt le gt ge".split()
)


def _has_gaps_alone(array: np.ndarray) -> bool:
    """Whether its dims lie in their order, each element once."""
    before = 0
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size > 1:
            if stride <= before:
                return False
            before = stride
    return True


def unexpanded(shape: tuple[int, ...], arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The arrays without the dims that are repeated, where they are row-major then, and come to
    `shape` all the same: no copy is made of what one number stands for."""
    found = []
    for array in arrays:
        part: Any = array
        if 0 in array.strides:
            part = array[tuple([
                slice(0, 1) if stride == 0 else slice(None) for stride in array.strides
            ])]
        if not part.flags.c_contiguous:
            return None
        found.append(part)
    if np.broadcast_shapes(*[part.shape for part in found]) != shape:
        return None
    return found


def reduced_once(
    op: Op, x: np.ndarray, attrs: Attrs, shape: Any, run: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    """A reduction to `shape` of what is repeated, by `run` on it without its repeats: n times x is
    a product, and an extremum is the same. None: others see to it."""
    repeated = [d for d, stride in enumerate(x.strides) if stride == 0 and x.shape[d] > 1]
    times = math.prod([x.shape[d] for d in repeated if d in attrs["dims"]])
    if not repeated or op.name not in _OF_REPEATS or x.dtype.char not in "fd" or times > _EXACT:
        return None
    found = run(x[tuple([slice(0, 1) if d in repeated else slice(None) for d in range(x.ndim)])])
    if op.name == "sum" and times > 1:
        found = np.asarray(found * x.dtype.type(times))
    return found if found.shape == shape else np.array(np.broadcast_to(found, shape), order="C")


_OF_REPEATS = frozenset({"sum", "amax", "amin"})
_EXACT = 1 << 24  # up to which each count is a number of float32


def along_memory(
    op: Op, shape: tuple[int, ...], arrays: Sequence[np.ndarray]
) -> tuple[list[int], list[np.ndarray]] | None:
    """The order of the result's dims in memory, and the arrays with their dims in it, where some
    are repeated along some dims: a turned matrix and a row. None: others see to it."""
    if not op.keeps_order or all(a.shape in (shape, ()) for a in arrays):
        return None
    order = _order(shape, arrays)
    if order is None or order == sorted(order):
        return None
    parts = []
    for array in arrays:
        if 0 in array.strides:
            return None
        whole = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        parts.append(contiguous(whole.transpose(order)))
    return order, parts


def _order(shape: tuple[int, ...], arrays: Sequence[np.ndarray]) -> list[int] | None:
    """The dims of a result from the widest apart to those next to each other, as the NumPy
    backend's `laid_out` has them; None: row-major."""
    for array in arrays:
        if array.shape == shape:
            if array.flags.c_contiguous or 0 in array.strides:
                return None
            return sorted(range(array.ndim), key=lambda d: -array.strides[d])
    return None
