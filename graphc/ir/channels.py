"""Channels last: images [N, C, *space] of 2 or 3 dims of space whose channels are neighbours in
memory.

torch's convolutions, pools and paddings look at an operand's strides alone, and lay out what they
give as its strides suggest (`is_channels_last_strides_2d` and `suggest_memory_format` of
c10/core/MemoryFormat.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .dim import Size
from .dtypes import DType, from_numpy
from .memory import Buffer, as_strided, contiguous, inverse
from .op import Op
from .types import Shape


def suggests_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor counts as one with its channels last, gaps or not; strides in elements or
    in bytes. Where sizes of 1 leave it open, it does not."""
    rank = len(shape)
    if rank not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(rank - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def operands_suggest(
    op: Op, dtype: DType, rank: int, known: Sequence[tuple[Any, Any]]
) -> bool:
    """Whether operands of these shapes and strides ask for a result of so many dims that has its
    channels last: Op.keeps_channels says which of them have to."""
    if rank not in (4, 5) or (rank == 5 and _is_row_major(op, dtype)):
        return False
    which = op.keeps_channels
    if which == "first":
        return suggests_channels_last(*known[0])
    asked = all if which == "all" else any
    return asked(suggests_channels_last(*each) for each in known)


def asks_for_last(op: Op, buffers: Sequence[Buffer], rank: int) -> bool:
    """Whether results of so many dims, of an operator that has Op.keeps_channels, are to have their
    channels last."""
    for x in buffers:
        if not x.flags.c_contiguous or (x.ndim > 3 and x.shape[1] == 1):
            break
    else:
        return False
    kind = from_numpy(buffers[0].dtype)
    return operands_suggest(op, kind, rank, [(x.shape, x.strides) for x in buffers])


def _is_row_major(op: Op, dtype: DType) -> bool:
    """What torch has no loop with channels last for, in three dims of space."""
    return op.name == "window_sum" or (op.family == "contract" and dtype.bits == 64)


def last_order(rank: int) -> tuple[int, ...]:
    """The dims from the widest apart in memory to those next to each other."""
    return (0, *range(2, rank), 1)


def with_channels_last(buffer: Buffer) -> Buffer:
    """The same elements with their channels last, without gaps; itself where they are."""
    strides: Any = last_strides(buffer.shape)
    wanted = tuple([step * buffer.itemsize for step in strides])
    if buffer.strides == wanted:
        return buffer
    order = last_order(buffer.ndim)
    turned = contiguous(buffer.transpose(order)).transpose(inverse(order))
    return turned if turned.strides == wanted else as_strided(turned, turned.shape, wanted)


def last_strides(shape: Shape) -> Shape:
    """The strides of such a tensor without gaps, in elements; sizes may be symbolic."""
    strides: list[Size] = [0] * len(shape)
    step: Size = 1
    for d in reversed(last_order(len(shape))):
        strides[d] = step
        step = step * shape[d]
    return tuple(strides)
