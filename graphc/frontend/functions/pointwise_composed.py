"""The less common pointwise functions, made of the common ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops

from .. import halves, promote
from ..dispatch import apply, constant
from ..errors import located
from ..history import requires_grad
from ..meta import concrete_or_zeros
from ..placement import beside
from ..replayed import replayed
from ..tensor import Tensor, concrete
from . import pointwise as P
from . import return_types
from .arguments import recorded_as, with_out, wrap_dim
from .dtype_names import finfo
from .norms import vector_norm
from .zero_gradient import flat_in


@with_out
def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent in float64 or complex128."""
    P.require_one_tensor("float_power", input, exponent)
    wide = dtypes.c128 if promote.result_type(input, exponent).is_complex else dtypes.f64
    base, power = promote.operands(input, exponent, dtype=wide)
    result: Tensor = apply(ops.pow, base, power)
    return result


@with_out
@replayed
def frac(input: Tensor) -> Tensor:
    """x - trunc(x)."""
    if not input.dtype.is_float:
        kind = promote._name(input.dtype)
        raise NotImplementedError(located(f"\"frac_cpu\" not implemented for '{kind}'"))
    result: Tensor = P.sub(input, P.trunc(input))
    return result


@with_out
@replayed
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below 0, 1 above, `values` at 0."""
    P.require_tensors("heaviside", input)
    if not isinstance(values, Tensor):
        raise TypeError(located(
            "heaviside(): argument 'values' (position 2) must be Tensor, not "
            f"{type(values).__name__}"
        ))
    if values.dtype is not input.dtype:
        raise RuntimeError(located(
            "heaviside is not yet implemented for tensors with different dtypes. Cure: "
            "values.to(input.dtype)"
        ))
    result: Tensor = P.where(P.eq(input, 0), values, promote.cast(P.gt(input, 0), input.dtype))
    return result


def _require_floats(name: str, *values: Any) -> None:
    """Raise NotImplementedError for integers and bools among themselves; `name`: of torch's
    kernel."""
    dtype = promote.result_type(*values)
    if not dtype.differentiable:
        raise NotImplementedError(located(
            f"\"{name}\" not implemented for '{promote._name(dtype)}'. Cure: input.float()"
        ))


@with_out
@recorded_as("LogaddexpBackward0")
@replayed
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(b)), stable."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise TypeError(located(
            f"logaddexp(): both arguments must be Tensor, not {type(input).__name__} and "
            f"{type(other).__name__}"
        ))
    if input.dtype.is_complex or other.dtype.is_complex:
        return complex_logaddexp(input, other)
    _require_floats("logaddexp_cpu", input, other)
    return _log_of_sum(input, other, P.exp, 1.0)


def _log_of_sum(input: Tensor, other: Tensor, power: Any, scale: float) -> Tensor:
    """The larger, and the logarithm (by `scale`) of 1 + power(minus the distance)."""
    dtype = promote.result_type(input, other)
    wide = dtypes.f32 if dtype.is_float and dtype.bits == 16 else dtype
    a, b = promote.operands(input, other, dtype=wide)
    below = P.lt(a, b)  # equals are on one side whole: |a - b| has no second gradient there
    top = P.where(below, b, a)
    distance = P.where(below, P.sub(a, b), P.sub(b, a))
    rest = P.mul(P.log1p(power(distance)), scale)
    both = P.logical_and(P.isinf(a), P.eq(a, b))  # their distance is NaN
    return promote.cast(P.where(both, top, P.add(top, rest)), dtype)


def complex_logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Scaled by the one with the larger real part."""
    a, b = promote.operands(input, other)
    larger = P.ge(a.detach().real, b.detach().real)
    high, low = P.where(larger, a, b), P.where(larger, b, a)
    return P.add(high, P.log(P.add(P.exp(P.sub(low, high)), 1)))


@with_out
@replayed
def xlogy(input: Any, other: Any) -> Tensor:
    """x * log(y), 0 where x is 0 (unless y is NaN); its slope there is log(y) for positive y."""
    P.require_one_tensor("xlogy", input, other)
    dtype = promote.result_type(input, other)
    if dtype.is_complex:
        raise NotImplementedError(located(
            f"\"xlogy_cpu\" not implemented for '{promote._name(dtype)}'. Cure: x * log(y)"
        ))
    if not dtype.is_float:
        dtype = promote.get_default_dtype()
    x, y = promote.operands(input, other, dtype=dtype)
    return times_log(x, y, P.logical_or(P.le(y, 0), P.eq(y, math.inf)), 1.0, P.log)


def times_log(x: Tensor, y: Tensor, outside: Tensor, root: float, log: Any) -> Tensor:
    """x * log(y), and 0 where x is 0 and y `outside` of what has a finite logarithm; log(root) is
    0."""
    zero = P.eq(x, 0)
    found = P.mul(x, log(P.where(P.logical_and(zero, outside), root, y)))
    result: Tensor = P.where(zero, P.add(found, 0.0), found)  # 0, never -0
    return result


@with_out
@recorded_as("SincBackward0")
@replayed
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0; around it by a series, as the slope of the quotient is a
    difference of large numbers there."""
    x = input
    if not (x.dtype.is_float or x.dtype.is_complex):
        x = promote.cast(x, promote.get_default_dtype())
    return halves.rounded_once(_sinc, x)


def _sinc(x: Tensor) -> Tensor:
    near = P.lt(P.abs(x), 2e-3 if x.dtype in (dtypes.f64, dtypes.c128) else 0.05)
    angle = P.mul(P.where(near, 1.0, x), math.pi)
    squared = P.square(P.mul(P.where(near, x, 0.0), math.pi))
    series = P.add(1.0, P.mul(squared, P.sub(P.div(squared, 120.0), 1 / 6)))
    result: Tensor = P.where(near, series, P.div(P.sin(angle), angle))
    return result


@with_out
@recorded_as("LogitBackward0")
@replayed
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), x first clamped to [eps, 1 - eps]."""
    x = input
    if not (x.dtype.is_float or x.dtype.is_complex):
        x = promote.cast(x, promote.get_default_dtype())
    if x.dtype.is_complex:
        return P.log(P.div(x, P.sub(1, x)))
    if eps is None or eps < 0:
        return _log_of_odds(x)
    low, high = eps, 1 - eps
    if low > high:  # the lower bound comes first
        return _log_of_odds(P.where(P.lt(x, low), low, P.where(P.gt(x, high), high, x)))
    return _log_of_odds(P.clamp(x, low, high))


def _log_of_odds(x: Tensor) -> Tensor:
    """log(x / (1 - x)): infinitely steep at 0 and 1, where a quotient's two gradients would be inf
    and NaN, and NaN outside, like its gradient."""
    upper, rest = P.gt(x, 0.5), P.sub(1, x)
    outside = P.logical_or(P.lt(x, 0), P.gt(x, 1))
    top = P.where(upper, rest, x)
    bottom = P.where(outside, math.nan, P.where(upper, x, rest))
    found = P.log(P.where(P.eq(top, 0), top, P.div(top, bottom)))
    result: Tensor = P.where(upper, P.neg(found), found)
    return result


@with_out
@recorded_as("NanToNumBackward0")
@replayed
def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and infinities."""
    if not input.dtype.is_float:
        return input.clone()  # type: ignore[no-any-return]
    limits = finfo(input.dtype)
    nan = 0.0 if nan is None else nan
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    result = P.where(P.isnan(input), nan, input)
    result = P.where(P.eq(input, math.inf), high, result)
    replaced: Tensor = P.where(P.eq(input, -math.inf), low, result)
    return replaced


@with_out
@recorded_as("Deg2RadBackward0")
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    return P.mul(input, math.pi / 180)  # type: ignore[no-any-return]


@with_out
@recorded_as("Rad2DegBackward0")
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    return P.mul(input, 180 / math.pi)  # type: ignore[no-any-return]


def positive(input: Tensor) -> Tensor:
    """The tensor itself. Raises RuntimeError for bool."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError(located("The `+` operator, on a bool tensor is not supported."))
    return input


@with_out
def signbit(input: Tensor) -> Tensor:
    """Whether the sign is set, that of -0.0 and NaN too."""
    if not input.dtype.is_float:
        return P.lt(input, 0)
    one = promote.operand(1.0, input.dtype)
    result: Tensor = P.lt(apply(ops.copysign, one, input.detach()), 0)
    return result


@with_out
def isposinf(input: Tensor) -> Tensor:
    """Whether it is +inf."""
    return P.logical_and(P.isinf(input), P.gt(input, 0))


@with_out
def isneginf(input: Tensor) -> Tensor:
    """Whether it is -inf."""
    return P.logical_and(P.isinf(input), P.lt(input, 0))


@with_out
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2 ** other."""
    P.require_tensors("ldexp", input, other)
    if not other.dtype.is_integer or input.dtype.is_complex:
        return P.mul(input, P.pow(2.0, other))  # type: ignore[no-any-return]
    result = input if input.dtype.is_floating_point else input.to(promote.get_default_dtype())
    # in three steps, none beyond what the dtype holds, that lead across all of its range
    most = {"f64": 1023, "f16": 15}.get(result.dtype.name, 127)
    rest = other.to(dtypes.i64).clamp(-3 * most, 3 * most)
    for parts in (3, 2, 1):
        part = P.div(rest, parts, rounding_mode="trunc")
        result = P.mul(result, P.pow(2.0, part.to(result.dtype)))
        rest = P.sub(rest, part)
    return result


@beside
@with_out
def frexp(input: Tensor) -> Any:
    """Mantissa in [0.5, 1) and exponent of two."""
    array = concrete_or_zeros(input, "frexp()", "call it outside the compiled function")
    _, exponent = np.frexp(array)
    powers = constant(exponent.astype(np.int32))
    half = exponent // 2  # in two steps: one power of two may be beyond what the dtype holds
    mantissa = input
    for part in (half, exponent - half):
        mantissa = P.mul(mantissa, constant(np.ldexp(np.ones_like(array), -part)))
    return return_types.frexp(mantissa, powers)


@with_out
@replayed
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** a + 2 ** b), stable."""
    _require_floats("logaddexp2_cpu", input, other)
    return _log_of_sum(input, other, P.exp2, 1.0 / math.log(2.0))


def _euclid(name: str) -> Any:
    """gcd and lcm: on the host, by NumPy."""
    compute = getattr(np, name)

    def function(input: Tensor, other: Any) -> Tensor:
        P.require_tensors(name, input, other)
        a, b = promote.operands(input, other)
        if not a.dtype.is_integer or a.dtype is dtypes.bool_:
            kind = promote._name(a.dtype)
            raise NotImplementedError(located(
                f'"{name}_cpu" not implemented for \'{kind}\'. Cure: it is of integers'
            ))
        cure = "call it outside the compiled function"
        given = [concrete_or_zeros(x, f"{name}()", cure) for x in (a, b)]
        return constant(compute(*given))

    function.__name__ = name
    function.__doc__ = f"Elementwise {name} of integers."
    return with_out(beside(function))


gcd = _euclid("gcd")
lcm = _euclid("lcm")


@beside
@with_out
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next floating-point number towards other; moves with input, not with other."""
    P.require_tensors("nextafter", input, other)
    _require_floats("nextafter_cpu", input, other)
    cure = "call it outside the compiled function"
    a, b = promote.operands(input, other)
    given = [concrete_or_zeros(x, "nextafter()", cure) for x in (a, b)]
    found = constant(np.nextafter(*given))
    if not (a.requires_grad or b.requires_grad):
        return found
    moved = P.where(P.isfinite(a), P.sub(a.detach(), a), 0.0)  # a difference keeps -0.0
    return flat_in(b, P.sub(found, moved))


@with_out
@recorded_as("RenormBackward0")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices of `dim` scaled down to a p-norm of at most maxnorm."""
    if input.ndim < 2:
        raise RuntimeError(located(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        ))
    if maxnorm < 0:
        raise RuntimeError(located(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}"))
    along = wrap_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != along)
    norms = vector_norm(input, p, others, True)
    factor = P.where(P.gt(norms, maxnorm), P.div(maxnorm, P.add(norms, 1e-7)), 1.0)
    return P.mul(input, factor).contiguous()  # type: ignore[no-any-return]


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by callable(element), on the host; a meta tensor has none."""
    if self.device.type == "meta":
        return self
    array = concrete(self, "apply_()", "use tensor functions")
    flat = [callable(value) for value in array.reshape(-1).tolist()]
    found = np.array(flat, array.dtype).reshape(array.shape)
    return self.copy_(constant(found))  # type: ignore[no-any-return]


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element by callable(element, the other tensor's), on the host."""
    if requires_grad(self) or requires_grad(tensor):
        raise RuntimeError(located("Can't call map_() on Variable that requires grad. Use "
                                   "var.detach().map_() instead."))
    if tensor.dtype is not self.dtype:
        raise TypeError(located(
            f"map_: expected {promote._name(self.dtype)} for argument 'tensor', got "
            f"{promote._name(tensor.dtype)}"
        ))
    if self.device.type == "meta":
        return self
    other = concrete(tensor.expand_as(self), "map_()", "use tensor functions")
    rest = iter(other.reshape(-1).tolist())
    return apply_(self, lambda value: callable(value, next(rest)))


@recorded_as("RsubBackward1")
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    P.require_tensors("rsub", input)
    return P.sub(other, input, alpha=alpha)
