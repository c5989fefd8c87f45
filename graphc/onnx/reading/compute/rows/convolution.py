"""Convolutions."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.dispatch import apply
from .....frontend.tensor import Tensor
from .....ir import ops
from .....nn import functional as F
from .....vision_operators.deformable import deform_conv2d
from ..numbers import Numbers
from ..table import Node, operator
from .windows import Windows, positive, windows_of

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def convolved(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """With the node's windows; sums of integers are exact below 2^53."""
    rank = x.dim() - 2
    if rank not in _CONV or weight.dim() != x.dim():
        node.refuse(
            f"it has an input {list(x.shape)} and weights {list(weight.shape)}",
            "graphc convolves 1 to 3 spatial dims",
        )
    windows = windows_of(node, tuple(x.shape)[2:], tuple(weight.shape)[2:])
    groups = node.get("group", 1)
    if windows.kernel != tuple(weight.shape)[2:]:
        node.refuse(
            f"kernel_shape is {list(windows.kernel)}, and its weights are {list(weight.shape)}",
            "the file is damaged",
        )
    if windows.low != windows.high:
        x = _around(x, windows)
        windows = Windows(
            windows.kernel, windows.stride, windows.dilation, (0,) * rank, (0,) * rank
        )
    return _CONV[rank](
        x, weight, bias, windows.stride, windows.low, windows.dilation, groups
    )


def _around(x: Tensor, windows: Windows) -> Tensor:
    """x with zeros around it, which fusion takes into the convolution."""
    flat: list[Any] = []
    for low, high in zip(windows.low[::-1], windows.high[::-1], strict=True):
        flat += [low, high]
    return F.pad(x, flat)


@operator("Conv", 1)
def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    return convolved(node, x, weight, bias)


@operator("ConvTranspose", 1)
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    rank = x.dim() - 2
    if rank not in _TRANSPOSED or weight.dim() != x.dim():
        node.refuse(
            f"it has an input {list(x.shape)} and weights {list(weight.shape)}",
            "graphc convolves 1 to 3 spatial dims",
        )
    stride, dilation = positive(node, "strides", rank), positive(node, "dilations", rank)
    extra = positive(node, "output_padding", rank, 0)
    groups = node.get("group", 1)
    full = [
        (size - 1) * s + d * (k - 1) + 1
        for size, s, d, k in zip(x.shape[2:], stride, dilation, weight.shape[2:], strict=True)
    ]
    low, high = _cropped(node, tuple(x.shape)[2:], stride, extra, full)
    if low == high and all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        return _TRANSPOSED[rank](x, weight, bias, stride, low, extra, groups, dilation)
    found = _TRANSPOSED[rank](x, weight, None, stride, 0, 0, groups, dilation)
    for i in range(rank):
        size = full[i] + extra[i] - low[i] - high[i]
        have = full[i] - low[i]
        found = found.narrow(2 + i, low[i], min(size, have))
        if size > have:
            pads = [0] * (2 * (rank - 1 - i)) + [0, size - have]
            found = F.pad(found, pads)
    return found if bias is None else found + bias.reshape([1, -1] + [1] * rank)


def _cropped(
    node: Node, sizes: Any, stride: Any, extra: Any, full: list[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What is cut off at both ends of each dim."""
    rank = len(full)
    auto = node.one_of("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    wanted = node.get("output_shape")
    if wanted is None and not auto.startswith("SAME"):
        pads = positive(node, "pads", 2 * rank, 0) if auto == "NOTSET" else (0,) * (2 * rank)
        return pads[:rank], pads[rank:]
    if wanted is None:
        wanted = [size * s for size, s in zip(sizes, stride, strict=True)]
    low, high = [], []
    for size, e, want in zip(full, extra, list(wanted)[-rank:], strict=True):
        total = size + e - want
        less = total // 2
        low.append(less if auto == "SAME_UPPER" else total - less)
        high.append(total - low[-1])
    return tuple(low), tuple(high)


@operator("DeformConv", 19)
def deform_conv(
    node: Node, x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Any:
    if x.dim() != 4:
        node.refuse(f"its input is {list(x.shape)}", "graphc computes it for [N, C, H, W]")
    windows = windows_of(node, tuple(x.shape)[2:], tuple(weight.shape)[2:])
    pads = windows.low
    if windows.low != windows.high:
        # zeros around x are what lies beyond it
        x, pads = _around(x, windows), (0, 0)
    out = [
        (int(size) + 2 * p - span) // s + 1 for size, p, span, s in zip(
            x.shape[2:], pads, windows.spans, windows.stride, strict=True
        )
    ]
    if mask is None:
        groups = node.get("offset_group", 1)
        count = groups * windows.kernel[0] * windows.kernel[1]
        mask = T.ones(x.shape[0], count, *out, dtype=x.dtype)
    if bias is None:
        bias = T.zeros(weight.shape[0], dtype=x.dtype)
    rest: Any = (
        *windows.stride, *pads, *windows.dilation, node.get("group", 1),
        node.get("offset_group", 1), True,
    )
    return deform_conv2d(x, weight, offset, mask, bias, *rest)


@operator("Col2Im", 18, numbers=(1, 2))
def col2im(node: Node, x: Tensor, image: Numbers, block: Numbers) -> Any:
    """Columns [N, C * block, L] added up at their places in an image of any rank."""
    sizes, kernel = image.integers(), [int(n) for n in block.integers()]
    rank = len(sizes)
    stride, dilation = positive(node, "strides", rank), positive(node, "dilations", rank)
    pads = positive(node, "pads", 2 * rank, 0)
    span = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    counts = [
        (size + pads[i] + pads[rank + i] - span[i]) // stride[i] + 1
        for i, size in enumerate(sizes)
    ]
    batch, columns, _ = x.shape
    channels = columns
    for k in kernel:
        channels = channels // k
    blocks = x.reshape(batch, channels, *kernel, *counts)
    total: Any = None
    for place in _places(kernel):
        part = blocks[(slice(None), slice(None), *place)]
        low = [at * d for at, d in zip(place, dilation, strict=True)]
        high = [
            sizes[i] + pads[i] + pads[rank + i] - low[i] - (counts[i] - 1) * stride[i] - 1
            for i in range(rank)
        ]
        spread = apply(
            ops.pad, part, low=(0, 0, *low), high=(0, 0, *high),
            interior=(0, 0, *[s - 1 for s in stride]), value=0.0,
        )
        total = spread if total is None else total + spread
    for i in range(rank):
        total = total.narrow(2 + i, pads[i], sizes[i])
    return total


def _places(kernel: list[int]) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for k in kernel:
        places = [(*place, i) for place in places for i in range(k)]
    return places


@operator("CausalConvWithState", 27)
def causal_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    state: Tensor | None = None,
) -> Any:
    """Each channel by itself, over what came before; the last inputs are the next call's."""
    batch, channels, _ = x.shape
    behind = weight.shape[2] - 1
    if state is None:
        state = T.zeros(batch, channels, behind, dtype=x.dtype)
    padded = T.cat([state.to(x.dtype), x], 2)
    found = F.conv1d(padded, weight, bias, groups=int(channels))
    if node.one_of("activation", "none", ("none", "silu", "swish")) != "none":
        found = F.silu(found)
    return found, padded.narrow(2, padded.shape[2] - behind, behind)
