"""Repetition: expand (a view), repeat, tile, repeat_interleave."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops

from ..dispatch import apply, constant
from ..errors import located
from ..ownership import owns_result
from ..placement import beside
from ..recalled import recalled
from ..replayed import replayed
from ..tensor import Tensor, concrete
from .arguments import (
    as_size,
    broadcast_sizes,
    recorded_as,
    shape,
    shape_of,
    variadic,
    wrap_dim,
)
from .copies import clone_contiguous
from .dtype_names import TYPE_NAMES
from .indexing import take
from .shape import reshape

_CURE = "its result's size depends on values: call it outside the compiled function"


def _reshaped(x: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    result: Tensor = apply(ops.reshape, x, shape=sizes)
    return result


@recalled
def expand(input: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Dims of size 1 repeated (without a copy) to `sizes`; -1 keeps a size."""
    want = shape_of(sizes if size is None else (size,), "expand")
    have = shape(input)
    extra = len(want) - len(have)
    if extra < 0:
        raise RuntimeError(located(
            f"expand(torch.{TYPE_NAMES[input.dtype]}{{{list(have)}}}, "
            f"size={list(want)}): the number of sizes provided ({len(want)}) must be greater or "
            "equal to the number of dimensions in the tensor "
            f"({len(have)})"
        ))
    full: list[Any] = []
    for i, n in enumerate(want):
        if isinstance(n, int) and n == -1:
            if i < extra:
                raise RuntimeError(located(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, "
                    f"non-existing dimension {i}"
                ))
            n = have[i - extra]
        full.append(n)
    result: Tensor = apply(ops.expand, input, shape=tuple(full))
    return result


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand() to the shape of `other`."""
    return expand(self, *shape(other))


@variadic("size")
def broadcast_to(input: Tensor, *size: Any) -> Tensor:
    """expand() to `size`: broadcast_to(x, (2, 3)), or x.broadcast_to(2, 3)."""
    return expand(input, *size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    common = broadcast_sizes(*(shape(x) for x in given))
    return tuple(x if shape(x) == common else expand(x, *common) for x in given)


@variadic("repeats")
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """A new tensor with copies of this one along each dim."""
    return _repeated(self, shape_of(repeats, "repeat"))


@replayed
@owns_result
@recorded_as("RepeatBackward0")
def _repeated(self: Tensor, counts: tuple[Any, ...]) -> Tensor:
    have = shape(self)
    extra = len(counts) - len(have)
    if extra < 0:
        raise RuntimeError(located(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        ))
    if any(isinstance(n, int) and n < 0 for n in counts):
        raise RuntimeError(located(
            f"Trying to create tensor with negative dimension: repeat{counts}"
        ))
    sizes = (1,) * extra + have
    spread = tuple(n for size in sizes for n in (1, size))
    grown = tuple(n for c, size in zip(counts, sizes, strict=True) for n in (c, size))
    final = tuple(c * size for c, size in zip(counts, sizes, strict=True))
    expanded: Tensor = apply(ops.expand, _reshaped(self, spread), shape=grown)
    return _reshaped(clone_contiguous(expanded), final)


@variadic("dims")
@recorded_as("RepeatBackward0")
def tile(input: Tensor, *dims: Any) -> Tensor:
    """repeat() with missing leading counts taken as 1."""
    counts = shape_of(dims, "tile")
    return repeat(input, *((1,) * (input.ndim - len(counts)) + counts))


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (of `dim`; of the flattened tensor without one) repeated in place.

    `repeats` is an int, or a 1-d tensor with a count per element.
    """
    if repeats is None:
        input, repeats, dim = _positions(input), input, 0
    if dim is None:
        input, dim = reshape(input, -1), 0
    sizes = shape(input)
    dim = wrap_dim(dim, len(sizes))
    if isinstance(repeats, Tensor) and repeats.ndim == 1 and shape(repeats)[0] == 1:
        repeats = repeats.item()
    if isinstance(repeats, Tensor) and repeats.ndim == 0:
        repeats = repeats.item()
    if isinstance(repeats, Tensor):
        return repeat_by_counts(input, repeats, dim, output_size)
    count = as_size(repeats)
    if isinstance(count, int) and count < 0:
        raise RuntimeError(located(f"Repeats must be non-negative, got {count}"))
    return _each_repeated(input, count, dim)


@replayed
@owns_result
def _each_repeated(input: Tensor, count: Any, dim: int) -> Tensor:
    sizes = shape(input)
    before, after = sizes[: dim + 1], sizes[dim + 1 :]
    wide: Tensor = apply(
        ops.expand, _reshaped(input, (*before, 1, *after)), shape=(*before, count, *after)
    )
    return _reshaped(clone_contiguous(wide), (*sizes[:dim], sizes[dim] * count, *after))


@beside
def _positions(counts: Tensor) -> Tensor:
    result: Tensor = apply(ops.iota, shape=shape(counts), dim=0, dtype=dtypes.i64)
    return result


def repeat_by_counts(
    x: Tensor, counts: Tensor, dim: int, output_size: int | None
) -> Tensor:
    """Each slice of `dim` repeated by its own count."""
    array = concrete(counts, "repeat_interleave() by a tensor", _CURE)
    if counts.ndim != 1:
        raise RuntimeError(located("repeats must be 0-dim or 1-dim tensor"))
    if array.dtype.kind != "i" or (array < 0).any():
        raise RuntimeError(located("repeats can not be negative"))
    if len(array) != shape(x)[dim]:
        raise RuntimeError(located(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{len(array)} and input.size({dim}) = {shape(x)[dim]}"
        ))
    places = np.repeat(np.arange(len(array)), array)
    return take(x, [constant(places)], dim)
