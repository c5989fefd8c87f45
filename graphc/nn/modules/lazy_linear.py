"""LazyLinear and lazy convolutions."""

from __future__ import annotations

from typing import Any

from ...frontend.grad_mode import no_grad
from ...frontend.tensor import Tensor
from .constructors import own_constructors
from .conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvNd,
)
from .lazy import LazyLayer
from .linear import Linear


class LazyLinear(LazyLayer, Linear):
    """Linear whose in_features is the last size of its first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._make_lazy(bias, device, dtype)

    def reset_parameters(self) -> None:
        """Initialise, once there is something."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take in_features from the input."""
        if not self.has_uninitialized_params():
            self.in_features = self.in_features or int(self.weight.shape[-1])  # of what was loaded
            return
        with no_grad():
            self.in_features = int(input.shape[-1])
            weight: Any = self.weight
            weight.materialize((self.out_features, self.in_features))
            bias: Any = self.bias
            if bias is not None:
                bias.materialize((self.out_features,))
            self.reset_parameters()


class _LazyConv(LazyLayer, _ConvNd):
    def _start(
        self, out_channels: int, bias: bool, device: Any, dtype: Any
    ) -> None:
        self.out_channels = out_channels
        self._make_lazy(bias, device, dtype)

    def reset_parameters(self) -> None:
        """Initialise, once there is something."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *rest: Any) -> None:
        """Take in_channels from the input."""
        if not self.has_uninitialized_params():
            return
        spatial = self.spatial
        if input.dim() not in (spatial + 1, spatial + 2):
            raise RuntimeError(
                f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {list(input.shape)}"
            )
        self.in_channels = int(input.shape[-spatial - 1])
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        sizes = (
            (self.in_channels, self.out_channels // self.groups) if self.transposed
            else (self.out_channels, self.in_channels // self.groups)
        )
        with no_grad():
            weight: Any = self.weight
            weight.materialize((*sizes, *self.kernel_size))
            bias: Any = self.bias
            if bias is not None:
                bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyForward(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode
        )
        self._start(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode,
        )
        self._start(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """Conv1d whose in_channels its first input gives."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """Conv2d whose in_channels its first input gives."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """Conv3d whose in_channels its first input gives."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """ConvTranspose1d whose in_channels its first input gives."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """ConvTranspose2d whose in_channels its first input gives."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """ConvTranspose3d whose in_channels its first input gives."""

    cls_to_become = ConvTranspose3d


own_constructors(globals())
