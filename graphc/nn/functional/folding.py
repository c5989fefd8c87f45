"""Sliding blocks as columns, and back; shuffles of channels."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.dispatch import apply
from ...frontend.functions.arguments import recorded_as
from ...frontend.ownership import owns_result
from ...frontend.replayed import replayed
from ...frontend.tensor import Tensor
from ...ir import ops
from .conv import tuple_of
from .padding import pad


def _blocks(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@replayed
@owns_result
@recorded_as("Im2ColBackward0")
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sliding blocks of [N, C, H, W] as columns [N, C*KH*KW, L]."""
    if input.dim() not in (3, 4):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    if input.dim() == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    kernel, step = tuple_of(kernel_size, 2), tuple_of(stride, 2)
    spread, border = tuple_of(dilation, 2), tuple_of(padding, 2)
    batch, channels, height, width = input.shape
    rows = _blocks(height, kernel[0], spread[0], border[0], step[0])
    columns = _blocks(width, kernel[1], spread[1], border[1], step[1])
    if rows < 1 or columns < 1:
        raise RuntimeError(
            f"Given input with spatial size ({height}, {width}), kernel_size={kernel}, "
            f"dilation={spread}, padding={border}, stride={step}, calculated shape of the array "
            f"of sliding blocks as ({rows}, {columns}), but its components must be at least one."
        )
    padded = pad(input, (border[1], border[1], border[0], border[0]))
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * spread[0], j * spread[1]
            parts.append(
                padded[:, :, top : top + step[0] * (rows - 1) + 1 : step[0],
                       left : left + step[1] * (columns - 1) + 1 : step[1]]
            )
    stacked = T.stack(parts, 2)
    return stacked.reshape([batch, channels * kernel[0] * kernel[1], rows * columns])


@replayed
@owns_result
@recorded_as("Col2ImBackward0")
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns [N, C*KH*KW, L] added up at their places in [N, C, H, W]."""
    if input.dim() not in (2, 3):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    if input.dim() == 2:
        folded = fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride)
        return folded.squeeze(0)
    size, kernel = tuple_of(output_size, 2), tuple_of(kernel_size, 2)
    spread, border, step = tuple_of(dilation, 2), tuple_of(padding, 2), tuple_of(stride, 2)
    batch, columns, length = input.shape
    if columns % (kernel[0] * kernel[1]):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of "
            f"kernel_size, but got input.size(1)={columns} and kernel_size={kernel}."
        )
    counts = [_blocks(*each) for each in zip(size, kernel, spread, border, step, strict=True)]
    if counts[0] * counts[1] != length:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={spread}, "
            f"padding={border}, stride={step}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {counts[0]} * {counts[1]} = "
            f"{counts[0] * counts[1]}, but got input.size(2)={length}."
        )
    channels = columns // (kernel[0] * kernel[1])
    blocks = input.reshape([batch, channels, kernel[0], kernel[1], *counts])
    total: Any = None
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            place = _spread_out(blocks[:, :, i, j], (i, j), counts, size, spread, border, step)
            total = place if total is None else total + place
    top, left = border
    result: Tensor = total[:, :, top : top + size[0], left : left + size[1]]
    return result.contiguous()


def _spread_out(
    part: Tensor, start: tuple[int, int], counts: list[int], size: Any, spread: Any, border: Any,
    step: Any,
) -> Tensor:
    """One element of every block at its place in the padded plane, 0 elsewhere."""
    low, high = [0, 0], [0, 0]
    for d in range(2):
        low.append(start[d] * spread[d])
        end = low[-1] + (counts[d] - 1) * step[d] + 1
        high.append(size[d] + 2 * border[d] - end)
    result: Tensor = apply(
        ops.pad, part, low=tuple(low), high=tuple(high),
        interior=(0, 0, step[0] - 1, step[1] - 1), value=0.0,
    )
    return result


@replayed
@owns_result
@recorded_as("ChannelShuffleBackward0")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels [g * n] in the order [n * g]."""
    if input.dim() <= 2:
        raise RuntimeError(
            "channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    channels = input.shape[1]
    if channels % groups:
        raise RuntimeError(
            "Number of channels must be divisible by groups. Got "
            f"{channels} channels and {groups} groups."
        )
    split = input.reshape([input.shape[0], groups, channels // groups, *input.shape[2:]])
    return split.transpose(1, 2).reshape(list(input.shape))


native_channel_shuffle = channel_shuffle
