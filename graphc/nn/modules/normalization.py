"""Normalisation layers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ...frontend import functions as T
from ...frontend.tensor import Parameter, Tensor
from ...on_demand import elsewhere
from .. import functional as F
from .. import init
from .constructors import own_constructors
from .module import Module


def _add_parameters(
    module: Module, shape: tuple[int, ...], weight: bool, bias: bool, device: Any, dtype: Any
) -> None:
    """Register weight (ones) and bias (zeros), or None for what is not wanted."""
    for name, wanted, make in (("weight", weight, T.ones), ("bias", bias, T.zeros)):
        value = Parameter(make(shape, dtype=dtype, device=device)) if wanted else None
        module.register_parameter(name, value)


def _reset(module: Any) -> None:
    """Weight 1, bias 0, where there are any."""
    for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
        parameter = module._parameters.get(name)
        if parameter is not None:
            fill(parameter)


class _Norm(Module):
    """Normalisation over batch statistics, with running statistics."""

    ranks: tuple[int, ...] = ()
    _version = 2

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        _add_parameters(self, (num_features,), affine, affine and bias, device, dtype)
        if track_running_stats:
            kind = {"dtype": dtype, "device": device}
            self.register_buffer("running_mean", T.zeros(num_features, **kind))
            self.register_buffer("running_var", T.ones(num_features, **kind))
            self.register_buffer(
                "num_batches_tracked", T.tensor(0, dtype=T.int64, device=device)
            )
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and fresh running statistics."""
        self.reset_running_stats()
        _reset(self)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        # state dicts before version 2 have no count of batches
        key = prefix + "num_batches_tracked"
        count = self.num_batches_tracked
        old = local_metadata.get("version") is None or local_metadata["version"] < 2
        if old and count is not None and key not in state_dict:
            state_dict[key] = count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Norm):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        use_batch = self.training or self.running_mean is None
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        track = self.training and self.track_running_stats
        if track and (tracked := self.num_batches_tracked) is not None:
            tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / tracked.to(self.running_mean.dtype)
        mean = self.running_mean if track or not use_batch else None
        variance = self.running_var if track or not use_batch else None
        return F.batch_norm(
            input, mean, variance, self.weight, self.bias, use_batch, momentum, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of [N, C] or [N, C, L] (Ioffe and Szegedy 2015)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of [N, C, H, W]."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of [N, C, D, H, W]."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over one process."""

    ranks = tuple(range(2, 65))

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )


class _InstanceNorm(_Norm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = False, track_running_stats: bool = False, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        unbatched = input.dim() == min(self.ranks)
        dim = 0 if unbatched else 1
        if input.shape[dim] != self.num_features:
            text = f"({self.num_features}), but got: {input.shape[dim]}."
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features {text}"
                )
            warnings.warn(
                f"input's size at dim={dim} does not match num_features {text} You can silence "
                "this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=3,
            )
        x = input.unsqueeze(0) if unbatched else input
        result = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )
        return result.squeeze(0) if unbatched else result


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of [C, L] or [N, C, L]."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of [C, H, W] or [N, C, H, W]."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of [C, D, H, W] or [N, C, D, H, W]."""

    ranks = (4, 5)


def _shape(given: Any) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


class LayerNorm(Module):
    """Normalise over trailing dims (Ba et al. 2016)."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        _add_parameters(
            self, self.normalized_shape, elementwise_affine, elementwise_affine and bias,
            device, dtype,
        )

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square over trailing dims (Zhang and Sennrich 2019)."""

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            ones = T.ones(self.normalized_shape, dtype=dtype, device=device)
            self.weight = Parameter(ones)
        else:
            self.register_parameter("weight", None)

    def reset_parameters(self) -> None:
        """Weight 1."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalise groups of channels of each sample (Wu and He 2018)."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        _add_parameters(self, (num_channels,), affine, affine and bias, device, dtype)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Normalise by neighbouring channels (Krizhevsky et al. 2012)."""

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


own_constructors(globals())

if not TYPE_CHECKING:  # as in torch
    __getattr__ = elsewhere(__package__, "CrossMapLRN2d")
