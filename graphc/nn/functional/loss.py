"""Losses."""

from __future__ import annotations

import math
import numbers
from typing import Any

from ...frontend import functions as T
from ...frontend import promote
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.dispatch import apply
from ...frontend.ensured import ensured
from ...frontend.errors import located, warn_user
from ...frontend.functions.arguments import named, recorded_as
from ...frontend.ownership import owns_result
from ...frontend.replayed import replayed
from ...frontend.required import require
from ...frontend.tensor import Tensor
from ...ir import ops
from .._reduction import DEPRECATED, legacy_get_string
from .activation import log_softmax, logsigmoid


def _legacy(size_average: Any, reduce: Any, reduction: str) -> str:
    if size_average is None and reduce is None:
        if reduction not in ("none", "mean", "sum"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    # asked for their truth: a tensor of predictions given to a loss's constructor raises here
    found = legacy_get_string(size_average, reduce, emit_warning=False)
    warn_user(DEPRECATED.format(found))
    return found


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _broadcast(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both, of one shape where their dtypes differ: as in torch, one without dims then counts as
    much as the other for the result's."""
    if tuple(target.shape) != tuple(input.shape):
        warn_user(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size."
        )
        if input.dtype is not target.dtype:
            input, target = T.broadcast_tensors(input, target)
    return input, target


def _floats(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both, of which one is floats; what is beside it may be bool. Raises NotImplementedError."""
    if not (input.dtype.differentiable or target.dtype.differentiable):
        raise NotImplementedError(located(
            f"\"{name}\" not implemented for '{promote._name(input.dtype)}'. "
            "Cure: input.float()"
        ))
    if target.dtype is T.bool:
        target = target.to(input.dtype)
    elif input.dtype is T.bool:
        input = input.to(target.dtype)
    return input, target


def _same_weights(input: Tensor, weight: Tensor) -> None:
    if tuple(weight.shape) != tuple(input.shape):
        raise ValueError("Weights and input must have the same size.")


def _weighted(loss: Tensor, input: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """The reduction of loss * weight, whose mean is divided by the sum of the weights."""
    if weight is None:
        return _reduce(loss, reduction)
    _same_weights(input, weight)
    total = loss * weight
    return total.sum() / weight.sum() if reduction == "mean" else _reduce(total, reduction)


@listed
@replayed
@owns_result
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """input [N, C, *] (or [C]); target class indices [N, *] or probabilities [N, C, *]."""
    reduction = _legacy(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(
            f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
        )
    if tuple(target.shape) == tuple(input.shape) and input.dim() > 1 and (
        not target.dtype.is_floating_point
    ):
        raise RuntimeError(located(
            "Expected floating point type for target with class probabilities, got "
            f"{promote._name(target.dtype)}. Cure: class indices, of the shape of the input "
            "without its class dimension, or target.float()"
        ))
    if target.dim() < input.dim() or not target.dtype.is_floating_point:
        _check_class_dtype(target)
    if target.dtype.is_floating_point:
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    unbatched = input.dim() == 1
    if unbatched:
        input, target = _as_batch(input, target)
    _check_classes(input, target)
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(located(
            f"expected scalar type {promote._name(input.dtype)} but found "
            f"{promote._name(weight.dtype)}: the class weights' dtype. Cure: weight.to(input.dtype)"
        ))
    inputs = (input, target.long()) if weight is None else (input, target.long(), weight)
    loss: Tensor = apply(
        ops.cross_entropy, *inputs, ignore_index=ignore_index,
        label_smoothing=float(label_smoothing), reduction=reduction,
    )
    if label_smoothing:
        named(loss, "AddBackward0")
    elif input.dim() > 2:
        named(loss, "NllLoss2DBackward0")
    return loss.squeeze(0) if unbatched and reduction == "none" else loss


def _as_batch(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """One sample's scores and its class as a batch of one."""
    if target.dim() == 1 and target.shape[0] != 1:
        raise ValueError(located(
            f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}. "
            "Cure: one class, or a row of scores for each"
        ))
    return input.unsqueeze(0), target if target.dim() == 1 else target.unsqueeze(0)


def _check_class_dtype(target: Tensor) -> None:
    if target.dtype not in (T.int64, T.uint8):
        raise RuntimeError(located(
            f"expected target dtype to be Long or Byte, but got {promote._name(target.dtype)}. "
            "Cure: target.long()"
        ))


def _check_classes(input: Tensor, target: Tensor) -> None:
    expected = (input.shape[0], *tuple(input.shape)[2:])
    if len(expected) != target.dim() or any(
        a != b for a, b in zip(expected, target.shape, strict=True)
    ):
        if input.dim() == 2 and target.dim() == 1:
            raise ValueError(
                f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
                f"({target.shape[0]})."
            )
        if input.dim() == 2 and target.dim() > 1:
            raise RuntimeError(located(
                "0D or 1D target tensor expected, multi-target not supported: got "
                f"{list(target.shape)}. Cure: target.squeeze(1)"
            ))
        raise RuntimeError(located(
            f"Expected target size {list(expected)}, got {list(target.shape)}"
        ))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / classes
    terms = log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * weight.reshape([-1 if d == dim else 1 for d in range(input.dim())])
    loss = -terms.sum(dim)
    if reduction == "mean":
        batch = 1 if input.dim() == 1 else loss.numel()
        return loss.sum() / batch
    return _reduce(loss, reduction)


@listed
@replayed
@owns_result
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of each target class; input [N, C, *]."""
    reduction = _legacy(size_average, reduce, reduction)
    _check_class_dtype(target)
    unbatched = input.dim() == 1
    if unbatched:
        input, target = _as_batch(input, target)
    _check_classes(input, target)
    inputs = (input, target.long()) if weight is None else (input, target.long(), weight)
    loss: Tensor = apply(
        ops.nll_loss, *inputs, ignore_index=ignore_index, reduction=reduction
    )
    return loss.squeeze(0) if unbatched and reduction == "none" else loss


@listed
@replayed
@recorded_as("MseLossBackward0")
def mse_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2; a weighted mean is divided by the sum of the weights."""
    input, target = _broadcast(input, target)
    input, target = _floats("mse_cpu", input, target)
    loss = (input - target).square()
    return _weighted(loss, input, weight, _legacy(size_average, reduce, reduction))


@listed
@replayed
def l1_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:
    """|input - target|; a weighted mean is divided by the sum of the weights."""
    input, target = _broadcast(input, target)
    loss = T.abs(input - target)
    return _weighted(loss, input, weight, _legacy(size_average, reduce, reduction))


@listed
@replayed
@recorded_as("SmoothL1LossBackward0")
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:
    """Squared below beta, absolute above."""
    if beta < 0:
        raise RuntimeError(located(
            f"smooth_l1_loss does not support negative values for beta: {beta}"
        ))
    if beta == 0:
        return l1_loss(input, target, size_average, reduce, reduction)
    input, target = _broadcast(input, target)
    input, target = _floats("smooth_l1_cpu", input, target)
    return _reduce(_rounded(input, target, beta), _legacy(size_average, reduce, reduction))


@replayed
def _rounded(input: Tensor, target: Tensor, beta: float) -> Tensor:
    distance, near, far = _parted(input, target, beta)
    return T.where(far, distance - 0.5 * beta, near.square() * (0.5 / beta))


@replayed
def _bent(input: Tensor, target: Tensor, delta: Any) -> Tensor:
    distance, near, far = _parted(input, target, delta)
    return T.where(far, (distance - 0.5 * delta) * delta, near.square() * 0.5)


def _parted(input: Tensor, target: Tensor, bound: float) -> tuple[Tensor, Tensor, Tensor]:
    """The distance; the same within the bound, else that, whose square has a finite gradient where
    it is not taken; and whether it is beyond."""
    distance = T.abs(input - target)
    far = distance >= bound
    return distance, T.where(far, bound, distance), far


@listed
@replayed
@recorded_as("HuberLossBackward0")
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared below delta, delta times absolute above; times `weight`, before any mean."""
    input, target = _broadcast(input, target)
    if not isinstance(delta, numbers.Real):
        raise TypeError(f"delta must be a float or int, got: {type(delta)}")
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    reduction = _legacy(None, None, reduction)
    result = input.dtype
    if not result.differentiable and target.dtype.differentiable:
        raise RuntimeError(located(
            f"result type {promote._name(target.dtype)} can't be cast to the desired output type "
            f"{promote._name(result)}. Cure: input.float()"
        ))
    input, target = _floats("huber_cpu", input, target)
    loss = _bent(input, target, delta)
    if loss.dtype is not result:
        loss = loss.to(result)
    if weight is not None:
        _same_weights(input, weight)
        loss = loss * weight
    return _reduce(loss, reduction)


@listed
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """-(t log p + (1-t) log(1-p)), logs bounded below by -100."""
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise RuntimeError(located(
            f"Found dtype {promote._name(target.dtype)} but expected {promote._name(input.dtype)}. "
            "Cure: target.to(input.dtype)"
        ))
    _floats("binary_cross_entropy", input, target)
    for what, values in (("input", input), ("target", target)) if input.numel() else ():
        learns = values._graphc_node is not None or values._graphc_requires_grad
        known = _are_probabilities(
            values.detach() if learns and local.trace is None else values
        )
        if local.trace is not None:
            require(known)  # where it cannot be checked in the graph, it is not checked
        elif not known:
            raise RuntimeError(located(f"all elements of {what} should be between 0 and 1"))
    return _of_probabilities(input, target, weight, _legacy(size_average, reduce, reduction))


@replayed
def _are_probabilities(input: Tensor) -> Tensor:
    return ((input >= 0) & (input <= 1)).all()


@replayed
@recorded_as("BinaryCrossEntropyBackward0")
def _of_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    # Next to 0 and 1 the logs' slopes overflow; there the gradient is (p - t) / 1e-12, as in torch.
    fixed = input.detach()
    inside = fixed * (1 - fixed) >= 1e-12
    smooth = T.where(inside, input, fixed)
    first = T.log(smooth).clamp_min(-100)
    second = T.log1p(-smooth).clamp_min(-100)
    slope = T.where(inside, 0.0, (fixed - target.detach()) / 1e-12)
    loss = (target - 1) * second - target * first + slope * (input - fixed)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, reduction)


@listed
@replayed
@recorded_as("BinaryCrossEntropyWithLogitsBackward0")
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), stable."""
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if not input.is_floating_point():
        raise NotImplementedError(located(
            f"\"log_sigmoid_cpu\" not implemented for '{promote._name(input.dtype)}'. "
            "Cure: input.float()"
        ))
    if not target.is_floating_point():
        raise RuntimeError(located(
            f"result type {promote._name(input.dtype)} can't be cast to the desired output type "
            f"{promote._name(target.dtype)}. Cure: target.to(input.dtype)"
        ))
    if pos_weight is None:
        loss = (1 - target) * input - logsigmoid(input)
    else:
        factor = (pos_weight - 1) * target + 1
        loss = (1 - target) * input - factor * logsigmoid(input)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
def kl_div(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:
    """target * (log target - input); input holds log-probabilities."""
    if not (input.dtype.differentiable and target.dtype.differentiable):
        raise RuntimeError(located(
            "kl_div: Integral inputs not supported. Cure: input.float(), target.float()"
        ))
    if log_target:
        loss = T.exp(target) * (target - input)
    else:
        zero = target == 0
        safe = T.where(zero, T.ones_like(target), target)
        loss = T.where(zero, T.zeros_like(target), target * T.log(safe)) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.dim() else 1)
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: Any = None, eps: float = 1e-8, reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of a Poisson distribution."""
    if log_input:
        loss = T.exp(input) - target * input
    else:
        loss = input - target * T.log(input + eps)
    if full:
        stirling = target * T.log(target) - target + 0.5 * T.log(2 * math.pi * target)
        loss = loss + T.where(target > 1, stirling, T.zeros_like(stirling))
    return _reduce(loss, _legacy(size_average, reduce, reduction))


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of a Gaussian with given variance."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    variance = var if isinstance(var, Tensor) else T.full_like(input, var)
    sizes, given = tuple(input.shape), tuple(variance.shape)
    if given == sizes[:-1] and given != sizes:
        variance = variance.unsqueeze(-1)
    elif given != sizes and (
        len(given) != len(sizes)
        or [g for g, s in zip(given, sizes, strict=True) if g != s] != [1]
    ):
        raise ValueError("var is of incorrect size")
    known = variance.detach()
    if local.trace is not None:
        known = ensured(known, ~(known < 0), "ValueError: var has negative entry/entries")
    elif bool((known < 0).any()):
        raise ValueError("var has negative entry/entries")
    bounded = variance + (known.clamp_min(eps) - known)
    loss = 0.5 * (T.log(bounded) + (input - target).square() / bounded)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)
