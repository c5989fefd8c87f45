"""Pointwise functions: arithmetic, transcendentals, comparison, logic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.op import Op

from .. import halves, promote
from ..context import local
from ..dispatch import apply, filled_beside
from ..errors import kind_name, located
from ..function import Function
from ..history import requires_grad
from ..promote import binary, is_number
from ..replayed import replayed
from ..tensor import Tensor, alias
from .arguments import condition_of, fitting, forgotten, named, recorded_as, with_out
from .dtype_names import iinfo
from .older_calls import factor_first
from .positions import nonzero


def _unary(name: str, doc: str, to_float: bool = True) -> Callable[..., Tensor]:
    record = getattr(ops, name)

    def function(input: Tensor) -> Tensor:
        result: Tensor = promote.unary(record, input, to_float=to_float)
        return result

    function.__name__ = name
    function.__doc__ = doc
    return _quick(record, with_out(function))


def _quick(record: Op, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that is one operator on a float tensor alone, which autocast.py and
    tensors_only.py then apply without it."""
    function.__dict__["quick"] = functools.partial(promote.float_unary, record)
    return function


exp = _unary("exp", "e ** x.")
exp2 = _unary("exp2", "2 ** x.")
expm1 = _unary("expm1", "e ** x - 1.")
log = _unary("log", "Natural logarithm.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x).")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
reciprocal = _unary("reciprocal", "1 / x.")
sin = _unary("sin", "Sine.")
cos = _unary("cos", "Cosine.")
tan = _unary("tan", "Tangent.")
asin = _unary("asin", "Inverse sine.")
acos = _unary("acos", "Inverse cosine.")
atan = _unary("atan", "Inverse tangent.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
tanh = _unary("tanh", "Hyperbolic tangent.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine.")
atanh = _unary("atanh", "Inverse hyperbolic tangent.")
erf = _unary("erf", "Error function.")
erfc = _unary("erfc", "1 - erf(x).")
erfinv = _unary("erfinv", "Inverse of erf.")
lgamma = _unary("lgamma", "log |gamma(x)|.")
digamma = _unary("digamma", "Derivative of lgamma.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
relu = _unary("relu", "max(x, 0).", to_float=False)
floor = _unary("floor", "Round down.", to_float=False)
ceil = _unary("ceil", "Round up.", to_float=False)
trunc = _unary("trunc", "Round towards 0.", to_float=False)
bitwise_not = _unary("bitwise_not", "~x.", to_float=False)


@with_out
def abs(input: Tensor) -> Tensor:
    """|x|, real for complex numbers."""
    if isinstance(input, Tensor) and input.dtype.is_complex:
        return named(apply(ops.complex_abs, input), "AbsBackward0")
    result: Tensor = promote.unary(ops.abs, input, to_float=False)
    return result


@with_out
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1; a bool is its own sign."""
    if input.dtype is dtypes.bool_:
        return input.clone()  # type: ignore[no-any-return]
    if input.dtype.is_complex:
        raise NotImplementedError(located(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
            "torch.sgn instead."
        ))
    result: Tensor = apply(ops.sign, input)
    return result


_quick(ops.abs, abs)
_quick(ops.sign, sign)


@with_out
def square(input: Tensor) -> Tensor:
    """x * x; int64 for bool."""
    x = promote.cast(input, dtypes.i64) if input.dtype is dtypes.bool_ else input
    result: Tensor = promote.unary(ops.square, x, to_float=False)
    return result


_quick(ops.square, square)


@with_out
def neg(input: Tensor) -> Tensor:
    """-x. Raises RuntimeError for bool."""
    if isinstance(input, Tensor) and input.dtype is dtypes.bool_:
        raise RuntimeError(located(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        ))
    result: Tensor = promote.unary(ops.neg, input, to_float=False)
    return result


_quick(ops.neg, neg)


@with_out
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Round half to even, to `decimals` places."""
    if decimals == 0:
        return promote.unary(ops.round, input, to_float=False)  # type: ignore[no-any-return]
    scale = 10.0 ** math.fabs(decimals)  # a power below 1 is none that floats hold
    there, back = (mul, div) if decimals > 0 else (div, mul)
    return halves.rounded_once(
        lambda x: back(promote.unary(ops.round, there(x, scale), to_float=False), scale), input)


def _predicate(name: str, otherwise: bool) -> Callable[[Tensor], Tensor]:
    record = getattr(ops, name)

    def function(input: Tensor) -> Tensor:
        if not input.dtype.differentiable:
            shape = input._graphc_type.shape
            constant: Tensor = filled_beside(input, shape, otherwise, dtypes.bool_)
            return constant
        result: Tensor = apply(record, input)
        return result

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return function


isnan = _predicate("isnan", False)
isinf = _predicate("isinf", False)
isfinite = _predicate("isfinite", True)


# --- binary ----------------------------------------------------------------------------------


def _scaled(input: Any, other: Any, alpha: Any) -> Any:
    dtype = promote.checked_alpha(input, other, alpha)
    if dtype is dtypes.bool_:
        return other if alpha else False
    if not isinstance(other, Tensor):
        return other * alpha
    return mul(other if dtype.differentiable else promote.cast(other, dtype), alpha)


def _is_bool(value: Any) -> bool:
    return (value.dtype is dtypes.bool_) if isinstance(value, Tensor) else isinstance(value, bool)


def _arithmetic(op: Any, of_bools: Any, a: Any, b: Any) -> Tensor:
    """A binary operator that on two bools is a logical one, as torch has it."""
    if _is_bool(a) and _is_bool(b):
        op = of_bools
    result: Tensor = halves.binary(op, a, b)
    return result


@replayed
def _with_multiple(name: str, input: Any, other: Any, alpha: Any) -> Tensor:
    """add() or sub() of alpha * other."""
    found = promote.scaled_sum(add if name == "add" else sub, input, other, alpha)
    if found is not None:
        return found
    other = _scaled(input, other, alpha)
    if name == "add":
        return _arithmetic(ops.add, ops.bitwise_or, input, other)
    return binary(ops.sub, input, other)  # type: ignore[no-any-return]


@with_out
def add(input: Any, other: Any, *older: Any, alpha: Any = 1) -> Tensor:
    """input + alpha * other; on bools: or."""
    if older:
        alpha, other = factor_first("add", "alpha", (other, *older), 1)
    if type(alpha) is int and alpha == 1:
        return _arithmetic(ops.add, ops.bitwise_or, input, other)
    return _with_multiple("add", input, other, alpha)


@with_out
def sub(input: Any, other: Any, *older: Any, alpha: Any = 1) -> Tensor:
    """input - alpha * other. Raises RuntimeError for bools."""
    if older:
        alpha, other = factor_first("sub", "alpha", (other, *older), 1)
    promote.refuse_bools(input, other)
    if type(alpha) is int and alpha == 1:
        return binary(ops.sub, input, other)  # type: ignore[no-any-return]
    return _with_multiple("sub", input, other, alpha)


@with_out
def mul(input: Any, other: Any) -> Any:
    """input * other; on bools: and."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        dtype = promote.result_type(input, other)
        return promote.operand(input, dtype) * promote.operand(other, dtype)
    return _arithmetic(ops.mul, ops.bitwise_and, input, other)


def _trunc_divide(input: Any, other: Any) -> Tensor:
    dtype = promote.result_type(input, other)
    if not dtype.is_float or dtype.bits != 16:
        return binary(ops.trunc_divide, input, other)  # type: ignore[no-any-return]
    if is_number(other) or (isinstance(input, Tensor) and promote.is_beside_half(input, other)):
        return halves.rounded_once(lambda x: trunc(binary(ops.div, x, other)), input)
    return trunc(binary(ops.div, input, other))  # of two tensors it is rounded first


@with_out
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; rounding_mode None, "trunc" or "floor"."""
    if rounding_mode is None:
        result: Tensor = halves.binary(ops.div, input, other, to_float=True)
    elif rounding_mode == "floor":
        result = binary(ops.floor_divide, input, other)
    elif rounding_mode == "trunc":
        result = _trunc_divide(input, other)
    else:
        raise RuntimeError(located(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"{rounding_mode!r}"
        ))
    return result


def require_tensors(name: str, *values: Any) -> None:
    """Raise TypeError where an argument (input, other) is no Tensor."""
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            argument = ("input", "other")[i]
            raise TypeError(located(
                f"{name}(): argument '{argument}' (position {i + 1}) must be Tensor, not "
                f"{kind_name(value)}"
            ))


def require_one_tensor(name: str, first: Any, second: Any) -> None:
    """Raise TypeError where both arguments are numbers."""
    if not isinstance(first, Tensor) and not isinstance(second, Tensor):
        raise TypeError(located(
            f"{name}() received an invalid combination of arguments - got "
            f"({type(first).__name__}, {type(second).__name__}), but one must be a Tensor"
        ))


# both are tensors; the others let a number stand for the second
_TWO_TENSORS = frozenset({"atan2", "hypot", "maximum", "minimum", "fmax", "fmin"})
# a number may come first
_NUMBER_FIRST = frozenset({
    "floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
    "shift_right",
})


def _binary(name: str, doc: str, to_float: bool = False) -> Callable[..., Tensor]:
    record = getattr(ops, name)
    both, number_first = name in _TWO_TENSORS, name in _NUMBER_FIRST

    def function(input: Any, other: Any) -> Tensor:
        if name == "floor_divide" and is_number(input) and is_number(other):
            input = promote.operand(input, promote.result_type(input, other))
        if not isinstance(input, Tensor) and not (number_first and isinstance(other, Tensor)):
            require_tensors(name, input)
        if both:
            require_tensors(name, input, other)
        result: Tensor = binary(record, input, other, to_float=to_float)
        return result

    function.__name__ = name
    function.__doc__ = doc
    return with_out(function)


class FloorDivide(Function):
    """What floor_divide() gives: torch has no gradient of it, unlike of div(x, y,
    rounding_mode="floor"), whose gradient is 0."""

    @staticmethod
    def forward(ctx: Any, result: Tensor) -> Tensor:
        return alias(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError(located(
            "derivative for aten::floor_divide is not implemented. Cure: "
            "torch.div(x, y, rounding_mode='floor'), whose gradient is 0"
        ))


def floor_divide(input: Any, other: Any) -> Tensor:
    """floor(input / other)."""
    result: Tensor = _floor_divide(input, other)
    if local.grad and requires_grad(result):
        return FloorDivide.apply(result)  # type: ignore[no-any-return]
    return result


def _extreme(name: str, of_bools: Any, doc: str) -> Callable[..., Tensor]:
    record = getattr(ops, name)

    def function(input: Tensor, other: Tensor) -> Tensor:
        require_tensors(name, input, other)
        return _arithmetic(record, of_bools, input, other)

    function.__name__ = name
    function.__doc__ = doc
    return with_out(function)


_floor_divide = _binary("floor_divide", "floor(input / other).")
floor_divide = with_out(floor_divide)
remainder = _binary("remainder", "Remainder with the sign of the divisor.")
fmod = _binary("fmod", "Remainder with the sign of the dividend.")
atan2 = _binary("atan2", "Angle of (other, input).", to_float=True)
hypot = _binary("hypot", "sqrt(a^2 + b^2).")
copysign = _binary("copysign", "|input| with other's sign.", to_float=True)
maximum = _extreme("maximum", ops.bitwise_or, "The larger; NaN if either is.")
minimum = _extreme("minimum", ops.bitwise_and, "The smaller; NaN if either is.")
fmax = _extreme("fmax", ops.bitwise_or, "The larger; ignores one NaN.")
fmin = _extreme("fmin", ops.bitwise_and, "The smaller; ignores one NaN.")
bitwise_and = _binary("bitwise_and", "input & other.")
bitwise_or = _binary("bitwise_or", "input | other.")
bitwise_xor = _binary("bitwise_xor", "input ^ other.")
bitwise_left_shift = _binary("shift_left", "input << other.")
bitwise_right_shift = _binary("shift_right", "input >> other.")
eq = _binary("eq", "input == other.")
ne = _binary("ne", "input != other.")
lt = _binary("lt", "input < other.")
le = _binary("le", "input <= other.")
gt = _binary("gt", "input > other.")
ge = _binary("ge", "input >= other.")


@with_out
def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent. Raises RuntimeError for an integer to a negative integer."""
    require_one_tensor("pow", input, exponent)
    if isinstance(input, Tensor) and input.dtype is dtypes.bool_ and type(exponent) is bool:
        # of two tensors of bools torch has none
        found: Tensor = apply(ops.logical_or, input, promote.operand(not exponent, dtypes.bool_))
        return found
    if isinstance(input, Tensor) and is_number(exponent) and isinstance(exponent, int):
        if not input.dtype.differentiable and exponent < 0:
            raise RuntimeError(located(
                "Integers to negative integer powers are not allowed."
            ))
        if exponent == 2 and input.dtype is not dtypes.bool_:
            return square(input)
    if isinstance(input, Tensor) and isinstance(exponent, float) and input.dtype.is_float:
        if exponent == 0.5:
            return forgotten(named(sqrt(input), "PowBackward0"))
        if exponent == -0.5 and input.dtype is not dtypes.f16:
            return forgotten(named(rsqrt(input), "PowBackward0"))
        if exponent == 2.0:
            return square(input)
    result: Tensor = binary(ops.pow, input, exponent)
    if not isinstance(input, Tensor):
        return named(result, "PowBackward2")
    return named(result, "PowBackward1") if isinstance(exponent, Tensor) else result


def _truth(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return promote.cast(value, dtypes.bool_)
    return promote.operand(bool(value), dtypes.bool_)


@with_out
def logical_not(input: Tensor) -> Tensor:
    """not input."""
    require_tensors("logical_not", input)
    result: Tensor = apply(ops.logical_not, _truth(input))
    return result


def _logical(name: str) -> Callable[..., Tensor]:
    record = getattr(ops, name)

    def function(input: Any, other: Any) -> Tensor:
        require_tensors(name, input, other)
        result: Tensor = apply(record, _truth(input), _truth(other))
        return result

    function.__name__ = name
    function.__doc__ = f"Elementwise {name} of truth values."
    return with_out(function)


logical_and, logical_or = _logical("logical_and"), _logical("logical_or")
logical_xor = _logical("logical_xor")


# --- three and more --------------------------------------------------------------------------


@with_out
@replayed
@with_out
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where condition, else other; with the condition alone, torch.nonzero as a tuple."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    dtype, truth = promote.result_type(input, other), condition_of(condition)
    for value in (input, other):
        if type(value) is int and dtype.is_integer:
            fitting(value, dtype)
    return apply(
        ops.where, truth, promote.operand(input, dtype), promote.operand(other, dtype)
    )


def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition, else other."""
    return where(condition, self, other)  # type: ignore[no-any-return]


@replayed
@with_out
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """input bounded to [min, max]; each a number, a tensor or None."""
    if min is None and max is None:
        raise RuntimeError(located("torch.clamp: At least one of 'min' or 'max' must not be None"))
    given = [value for value in (min, max) if value is not None]
    dtype = promote.result_type(input, *given)
    if dtype.kind == "complex":
        raise NotImplementedError(located("clamp is not supported for complex types"))
    for value in given:
        if type(value) is int or (type(value) is float and dtype.is_float):
            fitting(value, dtype)
    x = promote.cast(input, dtype)
    if dtype is dtypes.bool_:
        low = x if min is None else apply(ops.bitwise_or, x, promote.operand(min, dtype))
        return low if max is None else apply(ops.bitwise_and, low, promote.operand(max, dtype))
    if min is None or max is None:
        if dtype.is_float:
            bound = -math.inf if min is None else math.inf
        else:
            limits = iinfo(dtype)
            bound = limits.min if min is None else limits.max
        min, max = (bound, max) if min is None else (min, bound)
    result: Tensor = apply(
        ops.clamp, x, promote.operand(min, dtype), promote.operand(max, dtype)
    )
    return result


@with_out
@recorded_as("ClampMinBackward0")
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """input bounded below."""
    require_tensors("clamp_min", input)
    return clamp(input, min=min)


@with_out
@recorded_as("ClampMaxBackward0")
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """input bounded above."""
    require_tensors("clamp_max", input)
    return clamp(input, max=max)


absolute, negative, multiply, divide, subtract = abs, neg, mul, div, sub
true_divide, clip, fix, arcsin, arccos, arctan = div, clamp, trunc, asin, acos, atan
arcsinh, arccosh, arctanh, arctan2 = asinh, acosh, atanh, atan2
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
expit = sigmoid
