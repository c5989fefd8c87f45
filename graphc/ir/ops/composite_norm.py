"""layer_norm and batch_norm (training): subtract the mean, divide by the deviation, scale, shift.

16-bit floats are computed in float32; their weights may be float32 too.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv, product
from ..op import Attrs, Op, register
from ..rounding import DELICATE
from ..types import Shape, TensorType, TupleType, Type
from ._rules import accumulation_dtype, along, cast, count, number, ops, reshape, sum_dims
from ._types import FLOATS, Types, fail, require_dtype, same_shape, sizes_text

Dims = tuple[int, ...]


def _require_parameters(name: str, types: Types, shape: Shape, env: DimEnv) -> None:
    """Raise unless weight and bias have `shape`, and x's dtype or the one it is computed in."""
    x, *parameters = types
    require_dtype(name, x.dtype, FLOATS)
    for parameter, word in zip(parameters, ("weight", "bias"), strict=False):
        if parameter.dtype not in (x.dtype, accumulation_dtype(x.dtype)):
            fail(
                f"mixed dtype (CPU): all inputs must share same datatype. {name} got an input of "
                f"{x.dtype} and a {word} of {parameter.dtype}. Cure: x.to({parameter.dtype}), or "
                "convert the model"
            )
        if not same_shape(env, parameter.shape, shape):
            fail(
                f"{name}: expected {word} of shape {sizes_text(shape)}, got "
                f"{sizes_text(parameter.shape)} for input of size {sizes_text(x.shape)}"
            )


def _moments(x: Any, dims: Dims) -> tuple[Any, Any, Any]:
    """(x - mean, mean, biased variance) over `dims`, kept as size 1.

    A mean is rounded, by much where numbers are large beside their spread: what is left when it is
    subtracted, on average, belongs to it, and its square is too much in that of the squares (the
    corrected two-pass algorithm: T. Chan, G. Golub, R. LeVeque, Algorithms for Computing the Sample
    Variance, 1983). Of equal numbers the variance is 0.
    """
    n = count(x, [x.type.shape[d] for d in dims])
    near = sum_dims(x, dims, keepdim=True) / n
    around = x - near
    left = sum_dims(around, dims, keepdim=True)
    squares = sum_dims(around * around, dims, keepdim=True)
    rest = left / n
    mean = near + rest
    return x - mean, mean, ops.maximum(squares - left * rest, number(squares, 0.0)) / n


# --- layer_norm ------------------------------------------------------------------------------


def _layer_norm_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if not 1 <= len(types) <= 3:
        fail(f"layer_norm takes x, weight and bias, got {len(types)} inputs", TypeError)
    x = types[0]
    dims: Dims = attrs["normalized_dims"]
    if not dims or dims != tuple(range(x.rank - len(dims), x.rank)):
        fail(f"layer_norm: normalized_dims must be the trailing dims of {sizes_text(x.shape)}, "
             f"got {dims}")
    _require_parameters("layer_norm", types, tuple(x.shape[d] for d in dims), env)
    return x


def _layer_norm(x: Any, *parameters: Any, normalized_dims: Dims, eps: float) -> Any:
    dtype = x.type.dtype
    wide = accumulation_dtype(dtype)
    centred, _, variance = _moments(cast(x, wide), normalized_dims)
    y = centred * ops.rsqrt(variance + eps)
    if parameters:
        y = y * cast(parameters[0], wide)
    if len(parameters) > 1:
        y = y + cast(parameters[1], wide)
    return cast(y, dtype)


def _layer_norm_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, normalized_dims: Dims, eps: float
) -> Any:
    x, *parameters = inputs
    dims, shape = normalized_dims, x.type.shape
    wide = accumulation_dtype(x.type.dtype)
    g = cast(grads[0], wide)
    lead = tuple(range(len(shape) - len(dims)))
    results: list[Any] = [None] * len(inputs)
    if needs[0] or (parameters and needs[1]):
        centred, _, variance = _moments(cast(x, wide), dims)
        deviation = ops.rsqrt(variance + eps)
        normal = centred * deviation
        if needs[0]:
            n = count(g, [shape[d] for d in dims])
            scaled = g * cast(parameters[0], wide) if parameters else g
            mean = sum_dims(scaled, dims, keepdim=True) / n
            slope = sum_dims(scaled * normal, dims, keepdim=True) / n
            results[0] = cast((scaled - mean - normal * slope) * deviation, x.type.dtype)
        if parameters and needs[1]:
            results[1] = cast(sum_dims(g * normal, lead), parameters[0].type.dtype)
    if len(parameters) > 1 and needs[2]:
        results[2] = cast(sum_dims(g, lead), parameters[1].type.dtype)
    return results


# --- batch_norm ------------------------------------------------------------------------------


def _batch_norm_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if len(types) not in (1, 3):
        fail(f"batch_norm takes x, or x, weight and bias, got {len(types)} inputs", TypeError)
    x = types[0]
    if x.rank < 2:
        fail(f"batch_norm: expected at least 2 dims [N, C, *], got {sizes_text(x.shape)}",
             ValueError)
    if product((x.shape[0], *x.shape[2:])) == 1:
        fail("Expected more than 1 value per channel when training, got input size "
             f"torch.Size({sizes_text(x.shape)})", ValueError)
    channels = (x.shape[1],)
    _require_parameters("batch_norm", types, channels, env)
    moment = TensorType(accumulation_dtype(x.dtype), channels)
    return TupleType((x, moment, moment))


def _batch_dims(x: Any) -> Dims:
    return tuple(d for d in range(len(x.type.shape)) if d != 1)


def _batch_norm(x: Any, *parameters: Any, eps: float) -> Any:
    dtype, shape = x.type.dtype, x.type.shape
    wide = accumulation_dtype(dtype)
    centred, mean, variance = _moments(cast(x, wide), _batch_dims(x))
    y = centred * ops.rsqrt(variance + eps)
    if parameters:
        weight, bias = (along(cast(p, wide), len(shape), 1) for p in parameters)
        y = y * weight + bias
    return cast(y, dtype), reshape(mean, shape[1:2]), reshape(variance, shape[1:2])


def _batch_norm_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, eps: float) -> Any:
    x, *parameters = inputs
    g, g_mean, g_variance = grads
    shape = x.type.shape
    rank, dims = len(shape), _batch_dims(x)
    wide = accumulation_dtype(x.type.dtype)
    mean, variance = (along(out, rank, 1) for out in outs[1:])
    n = count(mean, [shape[d] for d in dims])
    deviation = ops.rsqrt(variance + eps)
    centred = cast(x, wide) - mean
    gx = g_weight = g_bias = None
    if g is not None:
        g = cast(g, wide)
        normal = centred * deviation
        total = sum_dims(g, dims, keepdim=True)
        slope = sum_dims(g * normal, dims, keepdim=True)
        if needs[0]:
            weight = along(cast(parameters[0], wide), rank, 1) if parameters else 1.0
            gx = (g - total / n - normal * (slope / n)) * (deviation * weight)
        if parameters:
            g_weight = cast(reshape(slope, shape[1:2]), parameters[0].type.dtype)
            g_bias = cast(reshape(total, shape[1:2]), parameters[1].type.dtype)
    if needs[0]:
        if g_mean is not None:
            part = along(g_mean, rank, 1) / n
            gx = ops.expand(part, shape=shape) if gx is None else gx + part
        if g_variance is not None:
            part = centred * (along(g_variance, rank, 1) * 2.0 / n)
            gx = part if gx is None else gx + part
        gx = None if gx is None else cast(gx, x.type.dtype)
    if not parameters:
        return (gx,)
    return (gx, g_weight if needs[1] else None, g_bias if needs[2] else None)


register(
    Op(
        "layer_norm", "composite", _layer_norm_type, _layer_norm_vjp, _layer_norm,
        attrs=("normalized_dims", "eps"),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="(x - mean) / sqrt(var + eps) * weight + bias over the trailing `normalized_dims`; "
        "weight and bias may be left out.",
    )
)
register(
    Op(
        "batch_norm", "composite", _batch_norm_type, _batch_norm_vjp, _batch_norm, results=3,
        attrs=("eps",), keeps_channels="first",
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="Training: (y, mean, biased variance) over all dims but 1, the moments at least "
        "float32; weight and bias may be left out together.",
    )
)
