"""Convolutions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...frontend import functions as T
from ...frontend.tensor import Parameter, Tensor
from ...on_demand import elsewhere
from .. import functional as F
from .. import init
from ..functional.conv import tuple_of
from .constructors import own_constructors
from .module import Module

_PAD_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate",
              "circular": "circular"}


class _ConvNd(Module):
    spatial = 0
    transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in _PAD_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PAD_MODES)}, but got "
                f"padding_mode='{padding_mode}'"
            )
        if isinstance(padding, str):
            if padding not in ("valid", "same"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of ['valid', 'same']"
                )
            if padding == "same" and any(s != 1 for s in tuple_of(stride, self.spatial)):
                raise ValueError("padding='same' is not supported for strided convolutions")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = tuple_of(kernel_size, self.spatial)
        self.stride = tuple_of(stride, self.spatial)
        self.padding = padding if isinstance(padding, str) else tuple_of(padding, self.spatial)
        self.dilation = tuple_of(dilation, self.spatial)
        self.output_padding: tuple[int, ...] = (0,) * self.spatial
        self.groups = groups
        self.padding_mode = padding_mode
        first, second = (
            (in_channels, out_channels // groups) if self.transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(
            T.empty((first, second, *self.kernel_size), dtype=dtype, device=device)
        )
        if bias:
            self.bias = Parameter(T.empty(out_channels, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input padded by padding_mode, and what padding is left to the convolution."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if self.padding == "valid":
            pairs = [(0, 0)] * self.spatial
        elif self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            pairs = [(t // 2, t - t // 2) for t in totals]
        else:
            pairs = [(p, p) for p in tuple_of(self.padding, self.spatial)]
        flat = [amount for pair in reversed(pairs) for amount in pair]
        return F.pad(input, flat, mode=_PAD_MODES[self.padding_mode]), 0

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * self.spatial:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.spatial:
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_ConvNd):
    """Convolution of [N, C, L]."""

    spatial = 1

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv2d(_ConvNd):
    """Convolution of [N, C, H, W]."""

    spatial = 2

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv3d(_ConvNd):
    """Convolution of [N, C, D, H, W]."""

    spatial = 3

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
        dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}'
            )
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, device, dtype,
        )
        self.output_padding = tuple_of(output_padding, self.spatial)

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        if output_size is None:
            return self.output_padding
        sizes = tuple(output_size)[-self.spatial :]
        extra = []
        for i, size in enumerate(sizes):
            least = (
                (input.shape[input.dim() - self.spatial + i] - 1) * self.stride[i]
                - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            )
            if not least <= size < least + self.stride[i]:
                raise ValueError(
                    f"requested an output size of {list(sizes)}, but valid sizes of dim {i} "
                    f"range from {least} to {least + self.stride[i] - 1}"
                )
            extra.append(size - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of [N, C, L]."""

    spatial = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding,
            self._output_padding(input, output_size), self.groups, self.dilation,
        )


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of [N, C, H, W]."""

    spatial = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding,
            self._output_padding(input, output_size), self.groups, self.dilation,
        )


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of [N, C, D, H, W]."""

    spatial = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose3d(
            input, self.weight, self.bias, self.stride, self.padding,
            self._output_padding(input, output_size), self.groups, self.dilation,
        )


own_constructors(globals())

if not TYPE_CHECKING:  # as in torch
    __getattr__ = elsewhere(__package__, """
        LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
        LazyConvTranspose3d
    """)
