"""cross_entropy and nll_loss with class-index targets.

Classes are dim 1 of [N, C, *], dim 0 of [C]. A target equal to `ignore_index` counts for nothing;
one that is no class raises when it is looked up. 16-bit floats go through float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, TypeRule, register
from ..rounding import DELICATE, SUMMED, Rounding
from ..types import Shape, TensorType, Type
from ._rules import (
    accumulation_dtype,
    along,
    cast,
    count,
    ops,
    reshape,
    select,
    sum_dims,
    unsqueeze,
)
from ._types import FLOATS, Types, fail, require_dtype, require_i64, same_shape, sizes_text
from .composite_softmax import shifted

# --- types -----------------------------------------------------------------------------------


def _class_dim(x: TensorType) -> int:
    return 0 if x.rank == 1 else 1


def _loss_type(name: str) -> TypeRule:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        if len(types) not in (2, 3):
            fail(f"{name} takes input, target and weight, got {len(types)} inputs", TypeError)
        x, target = types[:2]
        require_dtype(name, x.dtype, FLOATS)
        require_i64(name, target)
        if attrs["reduction"] not in ("mean", "sum", "none"):
            fail(f"{attrs['reduction']} is not a valid value for reduction", ValueError)
        if not 0.0 <= attrs.get("label_smoothing", 0.0) <= 1.0:
            fail("label_smoothing must be between 0.0 and 1.0. Got: "
                 f"{attrs['label_smoothing']}")
        if x.rank < 1:
            fail(f"{name}: expected input [N, C, *] or [C], got a 0-d input", ValueError)
        dim = _class_dim(x)
        if env.equal(x.shape[dim], 0):
            fail(f"{name}: there are no classes in an input of size {sizes_text(x.shape)}, so "
                 "every target is out of bounds", IndexError)
        _require_target(x.shape[:dim] + x.shape[dim + 1 :], x, target, env)
        if len(types) == 3 and not same_shape(env, types[2].shape, (x.shape[dim],)):
            fail(
                f"weight tensor should be defined either for all {x.shape[dim]} classes or no "
                f"classes but got weight tensor of shape: {sizes_text(types[2].shape)}"
            )
        return TensorType(x.dtype, target.shape if attrs["reduction"] == "none" else ())

    return infer


def _require_target(want: Shape, x: TensorType, target: TensorType, env: DimEnv) -> None:
    if same_shape(env, target.shape, want):
        return
    if want and target.shape and not env.equal(want[0], target.shape[0]):
        fail(f"Expected input batch_size ({want[0]}) to match target batch_size "
             f"({target.shape[0]}).", ValueError)
    fail(f"Expected target size {sizes_text(want)}, got {sizes_text(target.shape)} "
         f"for input of size {sizes_text(x.shape)}")


# --- shared parts ----------------------------------------------------------------------------


class _Targets:
    """What both losses need of the targets: validity, a safe class, its weight, the divisor."""

    def __init__(self, target: Any, weights: Any, ignore_index: int, wide: dtypes.DType) -> None:
        self.valid = ops.ne(target, ignore_index)
        self.safe = select(self.valid, target, 0)
        if weights:
            chosen = ops.index(cast(weights[0], wide), self.safe, dim=0, subject="Target")
            self.weight = select(self.valid, chosen, 0.0)
        else:
            self.weight = cast(self.valid, wide)

    def total_weight(self) -> Any:
        """What the mean divides by: the sum of the valid targets' weights."""
        return sum_dims(self.weight, range(len(self.weight.type.shape)))


def _pick(x: Any, safe: Any, dim: int) -> Any:
    """x at each target's class."""
    found = ops.gather(x, unsqueeze(safe, dim), dim=dim, subject="Target")
    return reshape(found, safe.type.shape)


def _reduce(loss: Any, reduction: str) -> Any:
    """Losses per target as they are, or their sum."""
    return loss if reduction == "none" else sum_dims(loss, range(len(loss.type.shape)))


def _one_hot(like: Any, target: Any, dim: int) -> Any:
    """True at each target's class, elementwise (so that it fuses; no scatter)."""
    classes = ops.iota.like(like, shape=like.type.shape, dim=dim, dtype=dtypes.i64)
    return ops.eq(classes, unsqueeze(target, dim))


def _refuse_weight_gradient(needs: Any) -> None:
    if any(needs[2:]):
        fail("The function 'nll_loss_forward' is not differentiable with respect to argument "
             "'weight'. This input cannot have requires_grad True.")


# --- nll_loss --------------------------------------------------------------------------------


def _nll_loss(
    x: Any, target: Any, *weights: Any, ignore_index: int, reduction: str
) -> Any:
    dtype = x.type.dtype
    wide = accumulation_dtype(dtype)
    targets = _Targets(target, weights, ignore_index, wide)
    picked = cast(_pick(x, targets.safe, _class_dim(x.type)), wide)
    # where, not a product: an ignored -inf must not make NaN
    loss = _reduce(select(targets.valid, -(picked * targets.weight), 0.0), reduction)
    if reduction == "mean":
        loss = loss / targets.total_weight()
    return cast(loss, dtype)


def _nll_loss_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, ignore_index: int, reduction: str
) -> Any:
    _refuse_weight_gradient(needs)
    x, target, *weights = inputs
    dtype = x.type.dtype
    wide = accumulation_dtype(dtype)
    dim = _class_dim(x.type)
    targets = _Targets(target, weights, ignore_index, wide)
    scale = cast(grads[0], wide)
    if reduction == "mean":
        scale = scale / targets.total_weight()
    each = unsqueeze(select(targets.valid, targets.weight * -scale, 0.0), dim)
    gx = cast(select(_one_hot(x, target, dim), each, 0.0), dtype)
    return (gx, None, *(None for _ in weights))


# --- cross_entropy ---------------------------------------------------------------------------


def _cross_entropy(
    x: Any, target: Any, *weights: Any,
    ignore_index: int, label_smoothing: float, reduction: str,
) -> Any:
    dtype = x.type.dtype
    wide = accumulation_dtype(dtype)
    dim, rank = _class_dim(x.type), len(x.type.shape)
    targets = _Targets(target, weights, ignore_index, wide)
    raw, x = x, cast(x, wide)
    peak = ops.amax(x, dims=(dim,), keepdim=True)
    away = x - peak
    log_total = ops.log(sum_dims(ops.exp(away), (dim,), keepdim=True))
    flat = target.type.shape
    # the pick reads the logits themselves, so log_softmax is never stored
    picked = cast(_pick(raw, targets.safe, dim), wide)
    nll = (reshape(log_total, flat) - (picked - reshape(peak, flat))) * targets.weight
    loss = select(targets.valid, nll, 0.0)
    if label_smoothing:
        smooth = log_total - away  # -log_softmax
        if weights:
            smooth = smooth * along(cast(weights[0], wide), rank, dim)
        smooth = select(targets.valid, sum_dims(smooth, (dim,)), 0.0)
        share = label_smoothing / count(smooth, (x.type.shape[dim],))
        loss = loss * (1.0 - label_smoothing) + smooth * share
    loss = _reduce(loss, reduction)
    if reduction == "mean":
        loss = loss / targets.total_weight()
    return cast(loss, dtype)


def _cross_entropy_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any,
    *, ignore_index: int, label_smoothing: float, reduction: str,
) -> Any:
    """Per target: hit * (softmax - one_hot) + spread * (sum(weight) * softmax - weight)."""
    _refuse_weight_gradient(needs)
    x, target, *weights = inputs
    dtype = x.type.dtype
    wide = accumulation_dtype(dtype)
    dim, rank = _class_dim(x.type), len(x.type.shape)
    targets = _Targets(target, weights, ignore_index, wide)
    scale = cast(grads[0], wide)
    if reduction == "mean":
        scale = scale / targets.total_weight()
    _, e, total = shifted(cast(x, wide), dim)
    softmax = e / total
    # where, not a product with 0: the scale is infinite where every target is ignored
    hit = targets.weight * (scale * (1.0 - label_smoothing))
    hit = unsqueeze(select(targets.valid, hit, 0.0), dim)
    gx = softmax * hit - select(_one_hot(x, target, dim), hit, 0.0)
    if label_smoothing:
        classes = count(scale, (x.type.shape[dim],))
        each = scale * (label_smoothing / classes)
        spread = unsqueeze(select(targets.valid, each, 0.0), dim)
        if weights:
            weight = along(cast(weights[0], wide), rank, dim)
            all_weights = sum_dims(cast(weights[0], wide), (0,))
            gx = gx + (softmax * all_weights - weight) * spread
        else:
            gx = gx + (softmax * classes - 1.0) * spread
    return (cast(gx, dtype), None, *(None for _ in weights))


def _register(
    name: str, rounding: Rounding, vjp: Callable[..., Any], decompose: Callable[..., Any],
    attrs: tuple[str, ...], doc: str,
) -> None:
    register(Op(
        name, "composite", _loss_type(name), vjp, decompose, attrs=attrs, doc=doc,
        cost=None, rounding=rounding, takes_complex=False,
    ))


_register(
    "nll_loss", SUMMED, _nll_loss_vjp, _nll_loss, ("ignore_index", "reduction"),
    "-weight[target] * x[target] of log-probabilities; class weights may be left out.",
)
_register(
    "cross_entropy", DELICATE, _cross_entropy_vjp, _cross_entropy,
    ("ignore_index", "label_smoothing", "reduction"),
    "nll_loss of log_softmax(x), targets smoothed; class weights may be left out.",
)
