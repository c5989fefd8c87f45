"""Normalisation and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ...frontend import functions as T
from ...frontend import plain, promote
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.dispatch import apply
from ...frontend.drawn_in_place import kept
from ...frontend.errors import located
from ...frontend.functions.arguments import named, recorded_as
from ...frontend.grad_mode import no_grad
from ...frontend.halves import is_half
from ...frontend.near import is_near
from ...frontend.ownership import owns_result
from ...frontend.placement import selected
from ...frontend.random_state import draw
from ...frontend.replayed import replayed
from ...frontend.result_layouts import as_suggested, in_rows
from ...frontend.tensor import Tensor
from ...frontend.values import Eager
from ...ir import ops


def _channels(parameter: Tensor, rank: int) -> Tensor:
    return parameter.reshape([1, -1] + [1] * (rank - 2))


def _check_sizes(channels: Any, **given: Tensor | None) -> None:
    if local.trace is None:
        wanted = (channels,)
        for tensor in given.values():
            array = getattr(tensor, "_graphc_array", None)
            if tensor is not None and (array is None or array.shape != wanted):
                break
        else:
            return
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != (channels,):
            raise RuntimeError(
                f"{name} should contain {channels} elements not {tensor.numel()}"
            )


def _update(pairs: Sequence[tuple[Tensor, Any, float | None]], momentum: Any) -> None:
    """Each second one, times the factor, becomes a part of the first, which a module keeps."""
    if type(momentum) is float and plain.follow(pairs, momentum):
        return
    for running, batch, factor in pairs:
        batch = batch.detach()
        if factor is not None:
            batch = batch * factor
        running.mul_(1 - momentum).add_(batch * momentum)


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (dim 1) over all other dims; updates the running statistics."""
    channels = input.shape[1] if input.dim() > 1 else input.numel()
    _check_sizes(
        channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("running_mean and running_var must be given in evaluation mode")
        if input.dim() < 2:
            return _batch_of_nothing(input)
        known = _by_known
        if local.trace is None:  # sizes of a trace are left open
            count = input.numel()
            if count <= _FEW:
                known = _by_known_of_few
            elif count >= _MANY:
                known = _by_known_of_many
        return known(input, running_mean, running_var, weight, bias, eps)
    if input.dim() < 2:
        return _batch_of_nothing(input)
    if eps <= 0.0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if type(channels) is int and channels == 0:
        return _batch_of_nothing(input)
    count = input.numel() // channels
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    result, mean, variance = _by_batch(input, weight, bias, float(eps))
    with no_grad():
        if count == 0:
            return result
        pairs: list[tuple[Tensor, Any, float | None]] = []
        if running_mean is not None:
            pairs.append((running_mean, mean, None))
        if running_var is not None:
            pairs.append((running_var, variance, count / (count - 1)))
        _update(pairs, momentum)
    return result


@replayed
def _by_batch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By the moments of the batch, which it gives, too."""
    parameters: tuple[Tensor, ...] = ()
    if weight is not None or bias is not None:
        like = weight if bias is None else bias
        assert like is not None
        parameters = (
            T.ones_like(like) if weight is None else weight,
            T.zeros_like(like) if bias is None else bias,
        )
    found: tuple[Tensor, Tensor, Tensor] = apply(ops.batch_norm, input, *parameters, eps=eps)
    return found


def _by_known(
    input: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> Tensor:
    """By moments that are kept."""
    scaled = _affine(input, mean, variance, weight, bias, eps)
    return named(as_suggested(scaled, input), "NativeBatchNormBackward0")


_by_known_of_few = replayed(_by_known)
_FEW = 1 << 14  # numbers, on which operators cost less than the Python around them
_MANY = 1 << 16  # from which on all of it is one loop (frontend/replayed_views.py)


def _by_known_of_many(
    input: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> Tensor:
    """The same operators: few numbers of each channel, and one loop over all."""
    half = is_half(input)
    return _scaled_by_channel(
        input, mean.float() if half else mean, _scale(variance, weight, eps, half), bias
    )


@replayed
def _scaled_by_channel(
    input: Tensor, mean: Tensor, scale: Tensor, bias: Tensor | None
) -> Tensor:
    rank = input.dim()
    shift = None if bias is None else _channels(bias, rank)
    scaled = _by_channel(input, _channels(mean, rank), _channels(scale, rank), shift)
    return named(as_suggested(scaled, input), "NativeBatchNormBackward0")


def _batch_of_nothing(input: Tensor) -> Tensor:
    """What an input without a channel dim gives, which torch takes where it is empty."""
    if input.numel():
        raise RuntimeError(
            "batch_norm expects an input of at least 2 dimensions [N, C, *], got "
            f"{list(input.shape)}"
        )
    return input * 1.0


def _affine(
    input: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias by channel, in the input's dtype."""
    rank = input.dim()
    half = is_half(input)  # rounded once, at the end
    mean, scale = mean.float() if half else mean, _scale(variance, weight, eps, half)
    shift = None if bias is None else _channels(bias, rank)
    return _by_channel(input, _channels(mean, rank), _channels(scale, rank), shift)


@replayed
def _scale(variance: Tensor, weight: Tensor | None, eps: float, half: bool) -> Tensor:
    scale = T.rsqrt((variance.float() if half else variance) + eps)
    return scale if weight is None else scale * weight


@replayed
def _by_channel(
    input: Tensor, mean: Tensor, scale: Tensor, shift: Tensor | None
) -> Tensor:
    result = (input - mean) * scale
    if shift is not None:
        result = result + shift
    return promote.cast(result, input.dtype)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample over its spatial dims."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        return _affine(input, running_mean, running_var, weight, bias, eps)
    sizes = tuple(input.shape)
    count = 1
    for size in sizes[2:]:
        count = count * size
    if count == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{input.shape}"
        )
    grouped = input.flatten(2)
    result = _normal_rows(grouped, eps, weight, bias).reshape(list(sizes))
    if running_mean is not None and running_var is not None:
        with no_grad():
            variance, mean = T.var_mean(grouped, 2)
            pairs = [(running_mean, mean.mean(0), None), (running_var, variance.mean(0), None)]
            _update(pairs, momentum)
    return _scaled(result, weight, bias).to(input.dtype)


def _normal_rows(grouped: Tensor, eps: float, *affine: Tensor | None) -> Tensor:
    """Rows [N, C, *] normalised; half precision as float32 where more is to be done with it."""
    half = grouped.dtype in (T.float16, T.bfloat16)
    for parameter in affine:
        if parameter is not None and parameter.dtype is not grouped.dtype and not (
            half and parameter.dtype is T.float32
        ):
            raise RuntimeError(located(
                "mixed dtype (CPU): all inputs must share same datatype. Got an input of "
                f"{grouped.dtype} and parameters of {parameter.dtype}. Cure: "
                f"x.to({parameter.dtype}), or convert the model"
            ))
    if half and any(p is not None for p in affine):
        grouped = grouped.float()
    result: Tensor = apply(ops.layer_norm, grouped, normalized_dims=(2,), eps=float(eps))
    return result


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias by channel."""
    if weight is None and bias is None:
        return x
    given = [p if p is None else _channels(p, x.dim()) for p in (weight, bias)]
    return _moved(x, *given)


@replayed
def _moved(x: Tensor, factor: Tensor | None, shift: Tensor | None) -> Tensor:
    if factor is not None:
        x = x * factor
    return x if shift is None else x + shift


def _normalized(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None = None
) -> tuple[Any, ...]:
    """The trailing sizes to normalise over. Raises RuntimeError where they do not fit."""
    one = not isinstance(normalized_shape, (tuple, list))
    shape = (normalized_shape,) if one else tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            f"element, but got normalized_shape = {list(shape)}"
        )
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(tensor.shape)} and normalized_shape = {list(shape)}"
            )
    trailing = tuple(input.shape)[max(input.dim() - len(shape), 0) :]
    if len(trailing) < len(shape) or trailing != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(str(s) for s in shape)}], but got input of size{list(input.shape)}"
        )
    return shape


@listed
@replayed
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:
    """Normalise over the trailing dims `normalized_shape`."""
    shape = _normalized(input, normalized_shape, weight, bias)
    dims = tuple(range(input.dim() - len(shape), input.dim()))
    parameters: list[Tensor] = []
    if weight is not None:
        parameters.append(weight)
        if bias is not None:
            parameters.append(bias)
    result: Tensor = apply(
        ops.layer_norm, input, *parameters, normalized_dims=dims, eps=float(eps)
    )
    return result if bias is None or weight is not None else result + bias


@listed
def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the trailing dims, times weight."""
    return in_rows(_rms_norm(input, normalized_shape, weight, eps))


@replayed
def _rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: float | None
) -> Tensor:
    shape = _normalized(input, normalized_shape, weight)
    # half precision is computed in float32, whose eps it takes too
    x = input.float() if input.dtype in (T.float16, T.bfloat16) else input
    if eps is None:
        eps = T.finfo(x.dtype).eps
    dims = tuple(range(-len(shape), 0))
    result = x * T.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    return (result if weight is None else result * weight).to(input.dtype)


@listed
@replayed
@owns_result
@recorded_as("NativeGroupNormBackward0")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each sample."""
    if input.dim() < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.dim()}"
        )
    # channels do not vary from call to call, and a symbolic number of them does not cancel below
    batch, channels = input.shape[0], int(input.shape[1])
    if num_groups <= 0:
        raise RuntimeError(
            f"Expected num groups to be greater than 0, got {num_groups}"
        )
    if channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input "
            f"of shape {list(input.shape)} and num_groups={num_groups}"
        )
    count = channels // num_groups
    for size in input.shape[2:]:
        count = count * size
    if type(count) is int and count == 1 and batch == 1:
        sizes = [batch * channels // num_groups, num_groups, *input.shape[2:]]
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {sizes}"
        )
    grouped = input.reshape([batch, num_groups, count])
    result = _normal_rows(grouped, eps, weight, bias).reshape(list(input.shape))
    return as_suggested(_scaled(result, weight, bias).to(input.dtype), input)


@replayed
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got "
            f"{input.dim()} dimensions)"
        )
    if input.numel() == 0:
        return input
    squared = input.square().transpose(1, -1)
    window = apply(
        ops.window_sum, squared, window=(size,), stride=(1,), pad_low=(size // 2,),
        pad_high=((size - 1) // 2,), dilation=(1,),
    )
    return input / (window.transpose(1, -1) / size * alpha + k).pow(beta)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _kept(input: Tensor, p: float) -> Tensor:
    """1 with probability 1 - p, else 0, drawn in the order of the input's memory as torch does."""
    if local.trace is None and is_near(input) and input.is_contiguous():
        with nullcontext() if Eager.elsewhere is None else selected(None):
            drawn: Tensor = draw(
                "bernoulli", shape=tuple(input.shape), p=float(1 - p), dtype=input.dtype
            )
        return drawn
    shape, order = tuple(input.shape), list(range(input.dim()))
    if not input.is_contiguous():
        strides = input.stride()
        if all(stride > 0 for stride in strides):
            order.sort(key=lambda dim: -strides[dim])
    drawn = input.new_empty([shape[dim] for dim in order]).bernoulli_(1 - p)
    kept: Tensor = drawn.permute([order.index(dim) for dim in range(len(order))])
    return kept


def _masked(input: Tensor, p: float, noise: Tensor | None, inplace: bool) -> Tensor:
    if noise is None:
        result = input * 0.0
    elif input.dtype in (T.float16, T.bfloat16):  # the divisor is not rounded to half precision
        result = input * (noise.float() / (1 - p)).to(input.dtype)
    else:
        if not input.dtype.differentiable:
            raise RuntimeError(located(
                "result type Float can't be cast to the desired output type "
                f"{promote._name(input.dtype)}. Cure: dropout(x.float())"
            ))
        result = input * (noise / (1 - p))
    return input.copy_(result) if inplace else result


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero elements with probability p and scale the rest by 1/(1-p)."""
    _check_probability(p)
    if not training or p == 0.0 or input.numel() == 0:
        return input
    if not inplace and (scaled := kept(input, p)) is not None:
        return input * scaled
    return _masked(input, p, None if p == 1.0 else _kept(input, p), inplace)


def _feature_dropout(
    input: Tensor, p: float, training: bool, inplace: bool, batched: bool = True
) -> Tensor:
    """`batched`: channels are dim 1, else dim 0."""
    _check_probability(p)
    if not training or p == 0.0 or input.numel() == 0:
        return input
    leading = 2 if batched else 1
    if input.dim() < leading:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = (*tuple(input.shape)[:leading], *(1 for _ in range(input.dim() - leading)))
    noise = None if p == 1.0 else input.new_empty(shape).bernoulli_(1 - p)
    return _masked(input, p, noise, inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of [N, C, L]. Raises RuntimeError unless 2-d or 3-d."""
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _feature_dropout(input, p, training, inplace, input.dim() == 3)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of [N, C, H, W]."""
    return _feature_dropout(input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of [N, C, D, H, W]."""
    return _feature_dropout(input, p, training, inplace, input.dim() == 5)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps the mean and variance of selu's output (Klambauer et al. 2017)."""
    _check_probability(p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    alpha = 1.7580993408473766
    a = ((alpha**2 * p + 1) * (1 - p)) ** -0.5
    noise = _kept(input, p)
    shift = (noise - 1) * (alpha * a) + alpha * a * p
    result = input * (noise * a) + shift
    return input.copy_(result) if inplace else result
