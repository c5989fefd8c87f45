"""Deformable convolution (arXiv:1703.06211, with a mask: arXiv:1811.11168)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..frontend import functions as T
from ..frontend.context import local
from ..frontend.errors import located
from ..frontend.placement import beside
from ..frontend.tensor import Tensor
from ..nn.functional.grid import between_pixels


class _Axis(NamedTuple):
    """How the window goes along one axis."""

    stride: int
    pad: int
    dilation: int
    taps: int
    pixels: int

    @property
    def size(self) -> int:
        """Of the result."""
        return (self.pixels + 2 * self.pad - self.dilation * (self.taps - 1) - 1) // self.stride + 1

    def places(self, like: Tensor) -> Tensor:
        """Where each tap of each output position lies, [taps, size], unless it is moved."""
        spread = T.arange(self.taps, dtype=like.dtype) * self.dilation
        steps = T.arange(self.size, dtype=like.dtype) * self.stride - self.pad
        return spread.unsqueeze(1) + steps


def _axes(input: Tensor, weight: Tensor, offset: Tensor, steps: tuple[int, ...]) -> list[_Axis]:
    """From (stride, stride, padding, padding, dilation, dilation)."""
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise RuntimeError(located(
            "deform_conv2d: input [N, C, H, W], weight [O, C / groups, h, w] and offset have 4 "
            f"dims, got {list(input.shape)}, {list(weight.shape)} and {list(offset.shape)}"
        ))
    if min(steps) < 0 or 0 in (*steps[:2], *steps[4:]):
        raise RuntimeError(located(
            "deform_conv2d: stride and dilation are positive, padding is not negative, got "
            f"{steps[:2]}, {steps[4:]} and {steps[2:4]}"
        ))
    windows = tuple(int(n) for n in weight.shape[2:])
    axes = [
        _Axis(steps[i], steps[2 + i], steps[4 + i], windows[i], int(input.shape[2 + i]))
        for i in range(2)
    ]
    if min(axis.size for axis in axes) < 1:
        raise RuntimeError(located(
            "deform_conv2d: calculated output size too small - "
            f"out_h: {axes[0].size} out_w: {axes[1].size}"
        ))
    return axes


def _check(
    input: Tensor, weight: Tensor, offset: Tensor, groups: int, offset_groups: int,
    axes: list[_Axis],
) -> None:
    channels, out, inner = int(input.shape[1]), int(weight.shape[0]), int(weight.shape[1])
    if groups < 1 or inner * groups != channels or out % groups:
        raise RuntimeError(located(
            f"deform_conv2d: weight {list(weight.shape)} does not fit {channels} channels in "
            f"{groups} groups"
        ))
    if offset_groups < 1 or channels % offset_groups:
        raise RuntimeError(located(
            f"deform_conv2d: {channels} channels do not divide into {offset_groups} groups of "
            "offsets"
        ))
    want = [2 * offset_groups * axes[0].taps * axes[1].taps, axes[0].size, axes[1].size]
    have = [int(n) for n in tuple(offset.shape)[1:]]
    if offset.shape[0] != input.shape[0] or have != want:
        raise RuntimeError(located(
            f"deform_conv2d: offset should be {[input.shape[0], *want]}, got {list(offset.shape)}"
        ))


@beside
def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int,
    stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int,
    offset_groups: int, use_mask: bool,
) -> Tensor:
    """A convolution whose tap k, at each output position, reads the input `offset` away from where
    a convolution would, bilinearly; 0 outside.

    offset [N, 2 * offset_groups * taps, *out], (down, right) for each tap; mask likewise without
    the 2, a factor for each tap; bias [O].
    """
    steps = (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)
    axes = _axes(input, weight, offset, tuple(int(n) for n in steps))
    _check(input, weight, offset, groups, offset_groups, axes)
    kind = input.dtype
    if local.autocast is not None or kind in (T.float16, T.bfloat16):
        input, weight, offset, mask, bias = (
            x if x.dtype is T.float64 else x.float() for x in (input, weight, offset, mask, bias)
        )
    down, across = axes
    count: Any = input.shape[0]
    channels, out, taps = int(input.shape[1]), int(weight.shape[0]), down.taps * across.taps
    # what has offsets of its own is an image of its own
    images = count * offset_groups
    moves = offset.reshape(images, down.taps, across.taps, 2, down.size, across.size)
    rows = moves[:, :, :, 0] + down.places(input).reshape(1, down.taps, 1, down.size, 1)
    columns = moves[:, :, :, 1] + across.places(input).reshape(1, 1, across.taps, 1, across.size)
    plane = [down.pixels, across.pixels]
    taken = between_pixels(
        input.reshape(images, channels // offset_groups, *plane), [rows, columns], plane
    )
    if use_mask:
        taken = taken * mask.reshape(images, 1, down.taps, across.taps, down.size, across.size)
    depth = channels // groups * taps
    taken = taken.reshape(count, groups, depth, down.size * across.size)
    result = T.matmul(weight.reshape(1, groups, out // groups, depth), taken)
    result = result.reshape(count, out, down.size, across.size) + bias.reshape(1, -1, 1, 1)
    return result.to(kind)
