"""Activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend import functions as T
from ...frontend import promote
from ...frontend.autocast import listed
from ...frontend.dispatch import apply
from ...frontend.errors import located, warn_user
from ...frontend.functions.arguments import recorded_as, with_out
from ...frontend.halves import rounded_once
from ...frontend.ownership import owns_result
from ...frontend.replayed import replayed
from ...frontend.result_layouts import in_rows
from ...frontend.tensor import Tensor
from ...ir import ops


def _dim(dim: int | None, rank: int) -> int:
    """torch's implicit dim for softmax: 0 for 0-, 1- and 3-d, else 1."""
    if dim is None:
        warn_user(
            "Implicit dimension choice for softmax has been deprecated. Change the call to "
            "include dim=X as an argument."
        )
        return 0 if rank in (0, 1, 3) else 1
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, "
            f"{max(rank, 1) - 1}], but got {dim})"
        )
    return dim % max(rank, 1)


def _in_place(function: Callable[[Tensor], Tensor], input: Tensor, inplace: bool) -> Tensor:
    """function(input), written over the input if `inplace`; gradient rules then read a copy."""
    return input.copy_(function(input.clone())) if inplace else function(input)


def _once(function: Callable[[Tensor], Tensor], input: Tensor, inplace: bool) -> Tensor:
    """The same; half precision is rounded at the end alone."""
    return _in_place(lambda x: rounded_once(function, x), input, inplace)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    if inplace:
        return input.relu_()
    found = promote.float_unary(ops.relu, input) if type(input) is Tensor else None
    return T.relu(input) if found is None else found


relu.__dict__["quick"] = T.relu.__dict__["quick"]  # see functions/pointwise.py


def relu_(input: Tensor) -> Tensor:
    """In-place relu."""
    return input.relu_()


@recorded_as("HardtanhBackward0")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return hardtanh(input, 0.0, 6.0, inplace)


@recorded_as("HardtanhBackward0")
@replayed
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clipped to [min_val, max_val]; the gradient is 0 at and beyond the bounds."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not input.dtype.is_floating_point:  # the bounds are cut to integers
        if input.dtype is T.bool:
            raise RuntimeError(located("Bool inputs not supported for hardtanh"))
        min_val, max_val = int(min_val), int(max_val)
        if input.dtype is T.uint8 and min(min_val, max_val) < 0:
            raise RuntimeError(located(
                "cannot do hardtanh on an unsigned type with negative limits"
            ))

    def clip(x: Tensor) -> Tensor:
        if not x.requires_grad:
            return x.clamp(min_val, max_val)
        inside = (x > min_val) & (x < max_val)
        missing = T.full_like(x, float("nan"), requires_grad=False)  # where it is neither
        beyond = T.where(x >= max_val, max_val, T.where(x <= min_val, min_val, missing))
        return T.where(inside, x, beyond)

    return _in_place(clip, input, inplace)


@replayed
@recorded_as("LeakyReluBackward0")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    _require_float("leaky_relu_cpu", input)
    return _in_place(lambda x: _bent(x, negative_slope), input, inplace)


def _require_float(name: str, x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        raise NotImplementedError(located(
            f"\"{name}\" not implemented for '{promote._name(x.dtype)}'. Cure: input.float()"
        ))


@listed
@recorded_as("PreluKernelBackward0")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight * x, weight per channel (dim 1)."""
    if weight.dim() > 1:
        raise RuntimeError(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
            f"{weight.dim()}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(located(
            f"prelu: Type promoting not supported. Got {promote._name(input.dtype)} and "
            f"{promote._name(weight.dtype)}. Cure: x.to({weight.dtype}), or convert the model"
        ))
    if weight.numel() > 1:
        if input.dim() < 2 or input.shape[1] != weight.numel():
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers "
                f"= {weight.numel()} and channel size = "
                f"{input.shape[1] if input.dim() > 1 else 1}."
            )
        weight = weight.reshape([1, -1] + [1] * (input.dim() - 2))
    elif input.dim() == 0:
        weight = weight.reshape([])
    return _bent(input, weight)


@replayed
def _bent(x: Tensor, slope: Any) -> Tensor:
    return T.where(x > 0, x, x * slope)


@listed
@recorded_as("EluBackward0")
@replayed
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    _require_float("elu_cpu", input)
    return _once(lambda x: T.where(x > 0, x, _below_1(_negative(x)) * alpha), input, inplace)


def _negative(x: Tensor) -> Tensor:
    """x where x <= 0, else 0: keeps exp of the branch not taken, and its gradient, finite."""
    return T.where(x > 0, 0.0, x)


def _below_1(x: Tensor) -> Tensor:
    """exp(x) - 1, whose gradient is exp(x): far below 0 nothing of it is left in the result."""
    if not x.requires_grad:
        return T.expm1(x)
    return T.where(x < -1, T.exp(x) - 1, T.expm1(x))


@listed
@recorded_as("EluBackward0")
@replayed
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising elu (Klambauer et al. 2017)."""
    _require_float("elu_cpu", input)
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return _once(
        lambda x: T.where(x > 0, x * scale, _below_1(_negative(x)) * (alpha * scale)),
        input, inplace,
    )


@listed
@recorded_as("CeluBackward0")
@replayed
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    _require_float("elu_cpu", input)
    return _once(
        lambda x: T.where(x > 0, x, _below_1(_negative(x) / alpha) * alpha), input, inplace
    )


@replayed
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x * Phi(x); approximate="tanh" for the tanh form."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return apply(ops.gelu, input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    if input.dtype.is_complex:
        return _in_place(lambda x: x * T.sigmoid(x), input, inplace)
    return _in_place(lambda x: apply(ops.silu, x), input, inplace)


@listed
@recorded_as("MishBackward0")
@replayed
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    _require_float("mish_cpu", input)
    return _once(lambda x: x * T.tanh(softplus(x)), input, inplace)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return T.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return T.tanh(input)


@listed
@recorded_as("LogSigmoidBackward0")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), stable."""
    return in_rows(_logsigmoid(input))


@replayed
def _logsigmoid(input: Tensor) -> Tensor:
    _require_float("log_sigmoid_cpu", input)

    def result(x: Tensor) -> Tensor:
        below = x < 0  # 0 is on the upper side whole: of |x| it would have no second gradient
        return T.where(below, x, 0.0) - T.log1p(T.exp(T.where(below, x, -x)))

    return rounded_once(result, input)


@recorded_as("HardsigmoidBackward0")
@replayed
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    _require_float("hardsigmoid_cpu", input)
    return _once(lambda x: relu6(x + 3) / 6, input, inplace)


@recorded_as("HardswishBackward0")
@replayed
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6; the gradient is 0 at -3 and 1 at 3, as torch's."""
    _require_float("hardswish_cpu", input)

    def swish(x: Tensor) -> Tensor:
        low, high = x <= -3, x >= 3
        inside = T.where(high, 3.0, T.where(low, -3.0, x))  # gradients not taken are finite
        curve = T.where(high, x, inside * (inside + 3) / 6)
        return T.where(low, x * 0.0, curve)  # NaN of -inf

    return _once(swish, input, inplace)


@listed
@replayed
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    return apply(ops.softplus, input, beta=float(beta), threshold=float(threshold))


@replayed
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (T.abs(input) + 1)


@replayed
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - T.tanh(input)


@recorded_as("SoftshrinkBackward0")
@replayed
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x shrunk towards 0 by lambd."""
    _require_float("softshrink_check", input)
    if lambd < 0:
        raise RuntimeError(
            f"lambda must be in range [0, {T.finfo(input.dtype).max:g}] for input dtype "
            f"{input.dtype}, but found {lambd}"
        )

    def shrunk(x: Tensor) -> Tensor:
        shifted = T.where(x > lambd, x - lambd, x + lambd)
        return T.where(T.abs(x) > lambd, shifted, T.zeros_like(x) * x)

    return rounded_once(shrunk, input)


@recorded_as("HardshrinkBackward0")
@replayed
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    _require_float("hardshrink_cpu", input)
    return T.where(T.abs(input) <= lambd, T.zeros_like(input), input)


@recorded_as("ThresholdBackward0")
@replayed
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return _once(lambda x: T.where(x <= threshold, T.full_like(x, value), x), input, inplace)


@replayed
@recorded_as("GluBackward0")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) of the two halves along dim."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    _require_float("glu_cpu", input)
    first, second = input.chunk(2, dim)
    return first * T.sigmoid(second)


def _has_nothing(x: Tensor) -> bool:
    """Whether there is nothing to look at, which torch gives back whatever its dtype is."""
    return not x.dtype.is_floating_point and x.numel() == 0


@listed
@replayed
@owns_result
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along dim."""
    if dtype is not None:
        input = input.to(dtype)
    if input.dim() == 0:
        _dim(dim, 0)
        return softmax(input.reshape(1), 0).reshape(())
    if _has_nothing(input):
        return input.clone()
    return apply(ops.softmax, input, dim=_dim(dim, input.dim()))


@replayed
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax(-x)."""
    return softmax(-input, dim, dtype=dtype)


@listed
@replayed
@owns_result
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """log(softmax(x)), stable."""
    if dtype is not None:
        input = input.to(dtype)
    if input.dim() == 0:
        _dim(dim, 0)
        return log_softmax(input.reshape(1), 0).reshape(())
    if _has_nothing(input):
        return input.clone()
    return apply(ops.log_softmax, input, dim=_dim(dim, input.dim()))


@replayed
@with_out
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm_p(x), eps) along dim."""
    norm = input.norm(p, dim, keepdim=True)
    return input / norm.clamp_min(eps).expand_as(input)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2016)."""
    noise = -T.empty_like(logits, memory_format=T.contiguous_format).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = T.zeros_like(logits).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


