"""What is done to many gradients at once, on their arrays: eager mode's operators, without a
Tensor around each, and in place where eager mode would copy. The bits are eager mode's.

Each function says whether it has done its work: not where anybody records or watches operators, or
where tensors are not plain memory on the CPU; then nothing has happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graphc.ir import ops

from .context import local
from .layouts import NotDense
from .placement import is_watched
from .storage import readers
from .tensor import Tensor, from_array
from .values import Eager


def is_unwatched() -> bool:
    """Whether nobody records, counts, watches or changes what operators of this thread do."""
    return (
        local.trace is None and local.counted is None and not local.inference
        and local.autocast is None and not is_watched()
    )


def arrays_of(tensors: Sequence[Tensor], kinds: str = "fd") -> list[np.ndarray] | None:
    """The arrays of tensors of one dtype, float32 or float64, that may be written to; or of dtypes
    of other `kinds`, as NumPy's characters."""
    if not tensors or not is_unwatched():
        return None
    found = []
    for tensor in tensors:
        try:
            array = tensor._graphc_array
        except NotDense:
            return None
        if (
            type(array) is not np.ndarray
            or array.dtype.char not in kinds
            or array.dtype.char != tensors[0]._graphc_array.dtype.char
            or not array.flags.c_contiguous
            or not array.flags.writeable
            or tensor._graphc_trace is not None
            or tensor._graphc_storage.inference
            or (local.grad and tensor.requires_grad)
        ):
            return None
        found.append(array)
    return found


def fill_with_zeros(tensor: Tensor) -> bool:
    """zero_()."""
    arrays = arrays_of([tensor])
    if arrays is None:
        return False
    begin(tensor)
    arrays[0].fill(0)
    return True


def euclidean_norm(tensors: Sequence[Tensor]) -> Tensor | None:
    """The 2-norm of the 2-norms of tensors."""
    arrays = arrays_of(tensors)
    if arrays is None:
        return None
    return from_array(_norm(np.array([_norm(array) for array in arrays])))


def _norm(array: np.ndarray) -> np.ndarray:
    squares = Eager.run(ops.square, [array], {})
    attrs = {"dims": tuple(range(array.ndim)), "keepdim": False}
    return np.asarray(Eager.run(ops.sqrt, [Eager.run(ops.sum, [squares], attrs)], {}))


def scale(tensors: Sequence[Tensor], factor: Tensor) -> bool:
    """tensor.mul_(factor) of each; `factor` has no dimensions."""
    arrays = arrays_of(tensors)
    if arrays is None or arrays_of([factor]) is None or factor.dtype is not tensors[0].dtype:
        return False
    number = factor._graphc_array
    with np.errstate(all="ignore"):
        for tensor, array in zip(tensors, arrays, strict=True):
            begin(tensor)
            np.multiply(array, number, out=array)
    return True


def follow(
    pairs: Sequence[tuple[Tensor, Any, float | None]], momentum: float
) -> bool:
    """running.mul_(1 - momentum).add_(value * factor * momentum) of each (running, value, factor);
    None is no factor."""
    arrays = arrays_of([x for running, value, _ in pairs for x in (running, value)])
    if arrays is None or any(a.shape != b.shape for a, b in _by_two(arrays)):
        return False
    dtype = arrays[0].dtype
    part, rest = _number(momentum, dtype), _number(1 - momentum, dtype)
    with np.errstate(all="ignore"):
        for (running, _, factor), (target, new) in zip(pairs, _by_two(arrays), strict=True):
            begin(running)
            if factor is not None:
                new = np.multiply(new, _number(factor, dtype))
            np.multiply(target, rest, target)
            np.add(target, np.multiply(new, part), target)
            running._graphc_storage.version += 1  # two writes
    return True


def _by_two(arrays: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two by two."""
    return zip(arrays[::2], arrays[1::2], strict=True)


def _number(value: float, dtype: np.dtype[Any]) -> np.ndarray:
    """A number as an array, to be read alone."""
    return _known(value, dtype) if value else np.asarray(value, dtype)  # one zero equals another


@lru_cache(maxsize=512)
def _known(value: float, dtype: np.dtype[Any]) -> np.ndarray:
    return np.asarray(value, dtype)


def begin(tensor: Tensor) -> None:
    """A tensor's memory is about to be written to."""
    storage = tensor._graphc_storage
    if readers:
        storage.before_write()
    storage.version += 1
