"""Copies, and the layout of memory: clone, contiguous, memory formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import ops

from ..context import local
from ..dispatch import apply
from ..eager import apply_cast
from ..ownership import own
from ..tensor import Tensor, current
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
        return contiguous(_copied(input), memory_format)
    return named(_copied(input), "CloneBackward0")


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
    sizes = shape(input)
    flat: Tensor = apply(ops.reshape, input, shape=(input._graphc_type.elements,))
    # eager mode has copied already where the elements did not follow each other
    alone = flat._graphc_trace is None and flat._base is None
    result: Tensor = apply(ops.reshape, flat if alone else _copied(flat), shape=sizes)
    return own(result, ())


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


