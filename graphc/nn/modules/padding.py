"""Padding, resampling and distance layers."""

from __future__ import annotations

from typing import Any

from ...frontend.tensor import Tensor
from .. import functional as F
from .constructors import own_constructors
from .module import Module


class _Pad(Module):
    spatial = 0
    mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = (
            (padding,) * (2 * self.spatial) if isinstance(padding, int) else tuple(padding)
        )
        self.value = 0.0

    def forward(self, input: Tensor) -> Tensor:
        if self.mode == "circular" and input.dim() not in (self.spatial + 1, self.spatial + 2):
            raise ValueError(
                f"expected {self.spatial + 1}D or {self.spatial + 2}D input (got {input.dim()}D "
                "input)"
            )
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


def _make(name: str, base: type[_Pad], count: int, pad_mode: str) -> type[_Pad]:
    fields = {
        "spatial": count, "mode": pad_mode, "__module__": __name__,
        "__doc__": f"F.pad of the last {count} dims, mode {pad_mode!r}.",
    }
    return type(name, (base,), fields)


ConstantPad1d = _make("ConstantPad1d", _ConstantPad, 1, "constant")
ConstantPad2d = _make("ConstantPad2d", _ConstantPad, 2, "constant")
ConstantPad3d = _make("ConstantPad3d", _ConstantPad, 3, "constant")
ZeroPad1d = _make("ZeroPad1d", _Pad, 1, "constant")
ZeroPad2d = _make("ZeroPad2d", _Pad, 2, "constant")
ZeroPad3d = _make("ZeroPad3d", _Pad, 3, "constant")
ReflectionPad1d = _make("ReflectionPad1d", _Pad, 1, "reflect")
ReflectionPad2d = _make("ReflectionPad2d", _Pad, 2, "reflect")
ReflectionPad3d = _make("ReflectionPad3d", _Pad, 3, "reflect")
ReplicationPad1d = _make("ReplicationPad1d", _Pad, 1, "replicate")
ReplicationPad2d = _make("ReplicationPad2d", _Pad, 2, "replicate")
ReplicationPad3d = _make("ReplicationPad3d", _Pad, 3, "replicate")
CircularPad1d = _make("CircularPad1d", _Pad, 1, "circular")
CircularPad2d = _make("CircularPad2d", _Pad, 2, "circular")
CircularPad3d = _make("CircularPad3d", _Pad, 3, "circular")


class Upsample(Module):
    """F.interpolate by size or scale_factor."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.mode = size, mode
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        what = f"size={self.size}" if self.scale_factor is None else (
            f"scale_factor={self.scale_factor}"
        )
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Nearest-neighbour upsampling."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Bilinear upsampling with aligned corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """[*, C r^2, H, W] -> [*, C, H r, W r] (Shi et al. 2016)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """The inverse of PixelShuffle."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class Unfold(Module):
    """Sliding blocks as columns."""

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class CosineSimilarity(Module):
    """Cosine of the angle between two tensors along dim."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """norm_p(x1 - x2)."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


own_constructors(globals())
