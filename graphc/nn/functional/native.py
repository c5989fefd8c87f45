"""torch.native_layer_norm and its kin: what the functions of torch.nn.functional call in PyTorch,
with the statistics as further results."""

from __future__ import annotations

import builtins
from typing import Any

from ...frontend import functions as T
from ...frontend.dispatch import apply
from ...frontend.functions.arguments import shape as sizes_of
from ...frontend.functions.arguments import with_out
from ...frontend.functions.copied_views import slice_of
from ...frontend.functions.zero_gradient import flat_in
from ...frontend.ownership import owns_result
from ...frontend.tensor import Tensor
from ...ir import ops
from . import norm
from .grid import MODES, PADDING, grid_sample


def _statistics(input: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The mean and 1 / standard deviation over `dims`, which are kept."""
    variance, mean = T.var_mean(input, dims, correction=0, keepdim=True)
    return mean, T.rsqrt(variance + eps)


@owns_result
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm(), the mean and 1 / standard deviation."""
    result = norm.layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(tuple(normalized_shape))
    return result, *_statistics(input, tuple(range(-rank, 0)), eps)


@owns_result
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any, HxW: Any,
    group: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm(), the mean and 1 / standard deviation of each sample's groups [N, group]."""
    result = norm.group_norm(input, group, weight, bias, eps)
    mean, scale = _statistics(input.reshape(N, group, int(C) // group * HxW), (2,), eps)
    return result, mean.squeeze(2), scale.squeeze(2)


@with_out
@owns_result
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm(), and in training the batch's mean and 1 / standard deviation."""
    result = norm.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )
    if not training:
        return result, T.empty(0, dtype=input.dtype), T.empty(0, dtype=input.dtype)
    dims = tuple(dim for dim in range(input.dim()) if dim != 1)
    mean, scale = _statistics(input, dims, eps)
    return result, mean.reshape(-1), scale.reshape(-1)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """dropout(), and which elements it kept."""
    if not train and train is not None:
        return input.clone(), T.ones_like(input, dtype=T.bool)
    kept = T.empty_like(input).bernoulli_(1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return input * kept * scale, kept.to(T.bool)


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient through native_dropout."""
    return grad_output * mask * scale


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """grid_sample() with numbers for the modes."""
    return grid_sample(
        input, grid, MODES[interpolation_mode], PADDING[padding_mode], align_corners
    )


grid_sampler_2d = grid_sampler_3d = grid_sampler


def max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, indices: Tensor,
) -> Tensor:
    """The gradient through max_pool2d, given the positions that it returned."""
    result: Tensor = apply(
        ops.max_pool_grad, grad_output, indices, plane_shape=sizes_of(self)[-2:]
    )
    return flat_in(self, result)


def slice(
    input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """The view input[..., start:end:step, ...] along `dim`."""
    return slice_of(input, dim, start, end, step)


def alias(input: Tensor) -> Tensor:
    """Another view of the same memory."""
    result: Tensor = input.view_as(input)
    return result


def _to_copy(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, non_blocking: bool = False, memory_format: Any = None,
) -> Tensor:
    """to(), into memory of its own."""
    found: Tensor = input.to(
        dtype=dtype or input.dtype, device=device or input.device, non_blocking=non_blocking,
        copy=True, memory_format=memory_format,
    )
    return found.pin_memory() if pin_memory else found


def _pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """pin_memory()."""
    result: Tensor = input.pin_memory(device)
    return result


def index(input: Tensor, indices: Any) -> Tensor:
    """input[indices], where None stands for all of a dimension."""
    every = builtins.slice(None)
    result: Tensor = input[tuple(every if one is None else one for one in indices)]
    return result


def _sparse_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """addmm() of a sparse mat1."""
    result: Tensor = T.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return result
