"""Copies, and the layout of memory: clone, contiguous, memory formats."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import ops

from ..context import local
from ..dispatch import apply
from ..eager import apply_cast
from ..errors import located
from ..few_places import FEW
from ..history import requires_grad
from ..ownership import own
from ..result_layouts import suggests_last, with_layout
from ..tensor import Tensor, current, from_array
from ..values import Eager
from .arguments import named, shape


class memory_format:
    """torch.contiguous_format, torch.channels_last, torch.preserve_format."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> Any:
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


# --- copies ------------------------------------------------------------------------------------


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own memory, through which gradients flow."""
    if memory_format is not None and memory_format is not preserve_format:
        found = contiguous(input, memory_format)
        return with_layout(
            _copied(input) if found is input else found,
            memory_format in (channels_last, channels_last_3d),
        )
    return named(_copied(input), "CloneBackward0")


def in_format(x: Tensor, memory_format: Any) -> Tensor:
    """The tensor itself where it counts as one of this format, gaps or not; else a copy that is."""
    last = memory_format in (channels_last, channels_last_3d)
    return x if suggests_last(x) is last else clone(x, memory_format=memory_format)


def _copied(x: Tensor) -> Tensor:
    result: Tensor = apply_cast(ops.cast, x, x.dtype)
    return result


def clone_contiguous(x: Tensor) -> Tensor:
    """A row-major copy."""
    copied = _copied(x)
    return contiguous(copied)


def laid_out_as(
    input: Tensor, make: Callable[[Any], Tensor], memory_format: Any = None
) -> Tensor:
    """make(sizes) of the sizes of `input`, with the dimensions in the order of its memory."""
    if memory_format is None and local.trace is None and input._graphc_trace is None and (
        input._graphc_array.flags.c_contiguous
    ):
        return make(input._graphc_array.shape)
    sizes = shape(input)
    if memory_format is not None and memory_format is not preserve_format:
        return contiguous(make(sizes), memory_format)
    strides = input.stride()
    if is_contiguous(input) or 0 in strides:
        return make(sizes)
    order = sorted(range(input.ndim), key=lambda dim: -strides[dim])
    made = make(tuple([sizes[dim] for dim in order]))
    back = tuple([order.index(dim) for dim in range(input.ndim)])
    return clone(apply(ops.permute, made, dims=back))  # with memory of its own, no view


def contiguous(input: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if its memory is row-major without gaps, else a copy that is."""
    if (
        memory_format is contiguous_format
        and input._graphc_trace is None
        and local.trace is None
        and (input._graphc_array.flags.c_contiguous)
    ):
        return input
    if memory_format in (channels_last, channels_last_3d):
        return _channels_last(input)
    if is_contiguous(input):
        return input
    if _is_plain(input) and input._graphc_array.size < FEW:
        return from_array(np.array(input._graphc_array, order="C"))
    sizes = shape(input)
    flat: Tensor = apply(ops.reshape, input, shape=(input._graphc_type.elements,))
    # eager mode has copied already where the elements did not follow each other
    alone = flat._graphc_trace is None and flat._base is None
    result: Tensor = apply(ops.reshape, flat if alone else _copied(flat), shape=sizes)
    return own(result, ())


def _is_plain(x: Tensor) -> bool:
    """Whether a copy of it is its numbers alone: nobody records, counts or watches, and it has no
    history."""
    return (
        local.trace is None and local.counted is None and x._graphc_trace is None
        and Eager.prepare is not None and Eager.elsewhere is None
        and not (local.grad and requires_grad(x))
    )


def _channels_last(x: Tensor) -> Tensor:
    if is_contiguous(x, channels_last if x.ndim == 4 else channels_last_3d):
        return x
    order = (0, *range(2, x.ndim), 1)
    inverse = (0, x.ndim - 1, *range(1, x.ndim - 1))
    moved = contiguous(apply(ops.permute, x, dims=order))
    result: Tensor = apply(ops.permute, moved, dims=inverse)
    return own(result, ())


def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether the memory is row-major without gaps (channels_last: with dim 1 last)."""
    state = current(self)
    if memory_format in (channels_last, channels_last_3d):
        if state.ndim != (4 if memory_format is channels_last else 5):
            return False
        order = (0, *range(2, state.ndim), 1)
        return is_contiguous(apply(ops.permute, self.detach(), dims=order))
    if state._graphc_trace is None:
        return bool(state._graphc_array.flags.c_contiguous)
    return state._graphc_traced.is_contiguous()




def dim_order(self: Tensor, *, ambiguity_check: bool | list[memory_format] = False) -> Any:
    """The dims from the widest apart in memory to those next to each other.

    `ambiguity_check`: True raises RuntimeError where other orders would say the same; a list of
    memory formats raises it where not exactly one of them fits, either.
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or any(
        not isinstance(each, memory_format) for each in formats
    ):
        raise TypeError(located(
            "The ambiguity_check argument must be a bool or a list of memory formats."
        ))
    sizes, strides = shape(self), self.stride()
    several = 1 in sizes or any(a == b for a, b in itertools.pairwise(strides))
    fitting = sum(is_contiguous(self, each) for each in formats)
    if ambiguity_check is not False and several and fitting != 1:
        raise RuntimeError(located(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats."
        ))
    order = list(range(len(sizes)))
    for i in range(1, len(order)):  # dims of one element, or repeated, stay where they are
        j = i
        for k in range(i - 1, -1, -1):
            a, b = order[k], order[j]
            if 0 in (strides[a], strides[b]) or 1 in (sizes[a], sizes[b]):
                continue
            if strides[a] >= strides[b]:
                break
            order[k], order[j] = b, a
            j = k
    return tuple(order)
