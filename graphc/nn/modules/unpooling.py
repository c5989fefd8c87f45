"""Unpooling, fractional and power-average pooling layers."""

from __future__ import annotations

from typing import Any

from ...frontend.tensor import Tensor
from .. import functional as F
from ..functional.conv import tuple_of
from .constructors import own_constructors
from .module import Module


class _LPPool(Module):
    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def _arguments(self) -> tuple[Any, ...]:
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of [N, C, L]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, *self._arguments())


class LPPool2d(_LPPool):
    """The p-norm of each window of [N, C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, *self._arguments())


class LPPool3d(_LPPool):
    """The p-norm of each window of [N, C, D, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, *self._arguments())


class _MaxUnpool(Module):
    spatial = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self.spatial)
        self.stride = tuple_of(kernel_size if stride is None else stride, self.spatial)
        self.padding = tuple_of(padding, self.spatial)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of MaxPool1d."""

    spatial = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of MaxPool2d."""

    spatial = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of MaxPool3d."""

    spatial = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class _Fractional(Module):
    spatial = 0

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
        return_indices: bool = False, _random_samples: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = tuple_of(kernel_size, self.spatial)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = (
            None if output_size is None else tuple_of(output_size, self.spatial)
        )
        if output_ratio is not None and not isinstance(output_ratio, tuple):
            output_ratio = (output_ratio,) * self.spatial
        self.output_ratio = output_ratio
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling "
                             "ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in output_ratio):
            raise ValueError(
                f"output_ratio must be between 0 and 1 (got {self.output_ratio})"
            )

    def _arguments(self) -> tuple[Any, ...]:
        return (self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                self._random_samples)


class FractionalMaxPool2d(_Fractional):
    """Max pooling of windows spaced at random (Graham 2014)."""

    spatial = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(input, *self._arguments())


class FractionalMaxPool3d(_Fractional):
    """Max pooling of windows spaced at random, in space."""

    spatial = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(input, *self._arguments())


own_constructors(globals())
