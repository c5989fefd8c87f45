"""Normalizations."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..table import Node, operator

_NARROW = (T.float16, T.bfloat16)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _NARROW else x


@operator("BatchNormalization", 6, settings=(3, 4), trains=True)
def batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Any:
    """By the moments that the file has; with training_mode, by those of the batch. While the Module
    is trained, by the batch's, which its running moments then follow."""
    epsilon = node.get("epsilon", 1e-5)
    if not node.get("spatial", 1):
        node.refuse("spatial is 0", "export the model with another operator set")
    same = x.dtype is scale.dtype is mean.dtype is bias.dtype
    if node.training and same:
        share = 1 - node.get("momentum", 0.9)
        return F.batch_norm(x, mean, var, scale, bias, True, share, epsilon), mean, var
    if node.version < 7 and node.training is None and not node.get("is_test", 0):
        node.refuse("is_test is 0", "export the model for inference")
    if not (node.get("training_mode", 0) if node.training is None else node.training):
        if same:
            return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
        return _affine(x, scale, bias, mean, var, epsilon)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    wide = _wide(x)
    now = wide.mean(dims)
    spread = wide.var(dims, unbiased=False)
    keep = node.get("momentum", 0.9)
    return (
        _affine(x, scale, bias, now, spread, epsilon),
        (mean * keep + now * (1 - keep)).to(mean.dtype),
        (var * keep + spread * (1 - keep)).to(var.dtype),
    )


def _affine(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float
) -> Tensor:
    shape = [1, -1] + [1] * (x.dim() - 2)
    mean, var, scale, bias = (_wide(each).reshape(shape) for each in (mean, var, scale, bias))
    return ((_wide(x) - mean) * T.rsqrt(var + epsilon) * scale + bias).to(x.dtype)


@operator("InstanceNormalization", 6)
def instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Any:
    return F.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


def _groups(node: Node, x: Tensor) -> int:
    found = node.get("num_groups", 0)
    if found < 1 or x.shape[1] % found:
        node.refuse(f"num_groups is {found} for {x.shape[1]} channels", "give a divisor")
    return found


@operator("GroupNormalization", 18)
def group_norm_by_groups(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Any:
    """A scale and a bias for each group."""
    groups = _groups(node, x)
    normal = F.group_norm(x, groups, eps=node.get("epsilon", 1e-5))
    each = int(x.shape[1]) // groups
    shape = [1, -1] + [1] * (x.dim() - 2)
    scale, bias = (p.repeat_interleave(each).reshape(shape) for p in (scale, bias))
    return normal * scale + bias


@operator("GroupNormalization", 21)
def group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Any:
    return F.group_norm(x, _groups(node, x), scale, bias, node.get("epsilon", 1e-5))


@operator("LayerNormalization", 17)
def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    axis = node.get("axis", -1) % x.dim()
    shape, epsilon = tuple(x.shape)[axis:], node.get("epsilon", 1e-5)
    alone = not (node.wants(1) or node.wants(2))
    if alone and tuple(scale.shape) == shape and (bias is None or tuple(bias.shape) == shape):
        return F.layer_norm(x, shape, scale, bias, epsilon)
    dims = list(range(axis, x.dim()))
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    inverse = T.rsqrt(wide.var(dims, unbiased=False, keepdim=True) + epsilon)
    found = ((wide - mean) * inverse).to(x.dtype) * scale
    return (found if bias is None else found + bias), mean, inverse


@operator("RMSNormalization", 23)
def rms_norm(node: Node, x: Tensor, scale: Tensor) -> Any:
    axis = node.get("axis", -1) % x.dim()
    shape, epsilon = tuple(x.shape)[axis:], node.get("epsilon", 1e-5)
    if tuple(scale.shape) == shape and scale.dtype is x.dtype:
        return F.rms_norm(x, shape, scale, epsilon)
    wide = _wide(x)
    mean = (wide * wide).mean(list(range(axis, x.dim())), keepdim=True)
    return (wide * T.rsqrt(mean + epsilon)).to(x.dtype) * scale


@operator("LpNormalization", 1)
def power_norm(node: Node, x: Tensor) -> Any:
    """x over its norm along an axis; 0 where that is 0."""
    dim, p = node.get("axis", -1), node.get("p", 2)
    size = x.abs().sum(dim, keepdim=True) if p == 1 else T.sqrt((x * x).sum(dim, keepdim=True))
    return T.where(size == 0, T.zeros_like(x), x / T.where(size == 0, T.ones_like(size), size))


@operator("MeanVarianceNormalization", 9)
def mean_variance(node: Node, x: Tensor) -> Any:
    dims = list(node.get("axes", [0, 2, 3]))
    mean = x.mean(dims, keepdim=True)
    spread = T.sqrt((x * x).mean(dims, keepdim=True) - mean * mean)
    return (x - mean) / (spread + 1e-9)


@operator("LRN", 1)
def local_response(node: Node, x: Tensor) -> Any:
    size = node.get("size", 1)
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    squares = (x * x).movedim(1, -1)
    low, channels = (size - 1) // 2, x.shape[1]
    padded = F.pad(squares, (low, size - 1 - low))
    total: Any = sum(padded.narrow(-1, i, channels) for i in range(size))
    return x / (bias + alpha / size * total.movedim(-1, 1)) ** beta


@operator("Dropout", 6, trains=True)
def dropout_by_attribute(node: Node, x: Tensor) -> Any:
    if node.training:
        return _dropped(node, x, node.get("ratio", 0.5))
    if node.version < 7 and node.training is None and not node.get("is_test", 0):
        node.refuse("is_test is 0", "export the model for inference")
    return x, T.ones_like(x, dtype=T.bool)


@operator("Dropout", 12, settings=(1, 2), trains=True)
def dropout(
    node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> Any:
    """Nothing unless the Module is trained, or, before anybody says, its training_mode is true."""
    trains = training is not None and bool(training) if node.training is None else node.training
    if trains:
        return _dropped(node, x, 0.5 if ratio is None else float(ratio))
    return x, T.ones_like(x, dtype=T.bool)


def _dropped(node: Node, x: Tensor, share: float) -> tuple[Tensor, Any]:
    """With torch's random numbers, in their order."""
    if not node.wants(1):
        return F.dropout(x, share), None
    if share == 0:
        return x, T.ones_like(x, dtype=T.bool)
    kept = T.empty_like(x).bernoulli_(1 - share)
    return x * (kept / (1 - share)), kept.bool()
