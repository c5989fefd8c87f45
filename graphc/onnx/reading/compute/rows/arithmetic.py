"""Elementwise operators: arithmetic, comparisons, logic, bits, casts."""

from __future__ import annotations

import functools
import math
import operator as python
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from .....frontend import functions as T
from .....frontend.numbers import is_traced_number
from .....frontend.tensor import Tensor
from .....ir.dtypes import DType, from_numpy
from ...tensors import kind_of
from ..carried import Kind, carried, kind_for
from ..numbers import Numbers, each
from ..table import Node, operator

# --- arithmetic --------------------------------------------------------------------------------


def _whole_division(a: Any, b: Any) -> Any:
    """Of integers, towards zero, as C divides."""
    if is_traced_number(b) or b == 0:
        return a // b
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f" or a.dtype == ml_dtypes.bfloat16:
        return a / b
    if not b.all():
        raise ZeroDivisionError("Div of integers by zero")
    return np.trunc(a / b).astype(a.dtype) if a.itemsize < 8 else np.array(
        [_whole_division(x, y) for x, y in zip(*_spread(a, b), strict=True)], a.dtype
    ).reshape(np.broadcast_shapes(a.shape, b.shape))


def _spread(a: np.ndarray, b: np.ndarray) -> tuple[list[Any], list[Any]]:
    a, b = np.broadcast_arrays(a, b)
    return a.reshape(-1).tolist(), b.reshape(-1).tolist()


def _folds(function: Callable[..., Any], exact: Callable[..., Any], kind: Any = None) -> Any:
    kind = None if kind is None else np.dtype(kind)

    def folded(node: Node, *given: Numbers) -> Numbers | None:
        if "axis" in node.attributes or "broadcast" in node.attributes:
            return None  # of operator sets before 7
        return each(function, exact, kind, *given)

    return folded


def _binary(
    name: str, since: int, compute: Callable[..., Any], fold: Any = None
) -> None:
    def row(node: Node, a: Tensor, b: Tensor) -> Any:
        return compute(a, b)

    def along(node: Node, a: Tensor, b: Tensor) -> Any:
        return compute(a, beside(node, a, b))

    operator(name, since, folded=fold)(row)
    if since == 7:
        operator(name, 6, folded=fold)(along)


def beside(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """b of an operator set before 7: its dims are those of a from `axis` on."""
    axis = node.get("axis")
    if not node.get("broadcast", 0) or axis is None or not b.dim():
        return b
    axis += a.dim() if axis < 0 else 0
    return b.reshape(*b.shape, *[1] * (a.dim() - axis - b.dim()))


def _divided(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_floating_point:
        return a / b
    return T.div(a, b, rounding_mode="trunc")


_binary("Add", 7, python.add, _folds(python.add, np.add))
_binary("Sub", 7, python.sub, _folds(python.sub, np.subtract))
_binary("Mul", 7, python.mul, _folds(python.mul, np.multiply))
_binary("Div", 7, _divided, _folds(_whole_division, _quotient))


@operator("Pow", 6)
def power_along(node: Node, base: Tensor, exponent: Tensor) -> Any:
    return power(node, base, beside(node, base, exponent))


@operator("Pow", 7)
def power(node: Node, base: Tensor, exponent: Tensor) -> Any:
    """In the base's type, whatever the exponent's."""
    if base.dtype.is_floating_point or not exponent.dtype.is_floating_point:
        if exponent.dtype is base.dtype or not base.dtype.is_floating_point:
            return T.pow(base, exponent).to(base.dtype)
        return T.pow(base, exponent.to(base.dtype))
    return T.pow(base.double(), exponent.double()).to(base.dtype)


def _fold_mod(node: Node, a: Numbers, b: Numbers) -> Numbers | None:
    if node.get("fmod", 0) or 0 in b.items:
        return None
    return each(python.mod, np.mod, None, a, b)


@operator("Mod", 10, folded=_fold_mod)
def modulo(node: Node, a: Tensor, b: Tensor) -> Any:
    """The divisor's sign, or with fmod the dividend's."""
    return T.fmod(a, b) if node.get("fmod", 0) else T.remainder(a, b)


def unary(name: str, since: int, compute: Callable[..., Any], fold: Any = None) -> None:
    """An operator of one input and no attributes."""
    def row(node: Node, x: Tensor) -> Any:
        return compute(x)

    operator(name, since, folded=fold)(row)


def _same(x: Any) -> Any:
    return x


def _rounding(name: str, exact: Callable[..., Any]) -> None:
    unary(name, 6 if name != "Round" else 11, getattr(T, name.lower()), _folds(_same, exact))


for _name, _exact in (("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.rint)):
    _rounding(_name, _exact)
unary("Neg", 6, T.neg, _folds(python.neg, np.negative))
unary("Abs", 6, T.abs, _folds(abs, np.abs))
unary("Sqrt", 6, T.sqrt, _folds(math.sqrt, np.sqrt))
unary("Reciprocal", 6, T.reciprocal, _folds(_same, np.reciprocal))
unary("Exp", 6, T.exp)
unary("Log", 6, T.log)
unary("Sign", 9, T.sign)
unary("Erf", 9, T.erf)
unary("IsNaN", 9, T.isnan)
for _name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"):
    unary(_name, 7, getattr(T, _name.lower()))
for _name in ("Sinh", "Cosh", "Asinh", "Acosh", "Atanh"):
    unary(_name, 9, getattr(T, _name.lower()))


@operator("IsInf", 10)
def infinite(node: Node, x: Tensor) -> Any:
    """Of either sign, or of the one asked for."""
    found = T.isinf(x)
    if not node.get("detect_negative", 1):
        found = found & (x > 0)
    return found if node.get("detect_positive", 1) else found & (x < 0)


def _many(name: str, since: int, function: Any, fold: Any) -> None:
    def folded(node: Node, *given: Numbers) -> Numbers | None:
        found: Numbers | None = given[0] if given else None
        for one in given[1:]:
            found = None if found is None else each(fold[0], fold[1], None, found, one)
        return found

    def row(node: Node, *given: Tensor) -> Any:
        if not given:
            node.refuse("it has no inputs", "give it one")
        return functools.reduce(function, given)

    operator(name, since, folded=folded)(row)


def _larger(a: Any, b: Any) -> Any:
    return a if a >= b else b


def _smaller(a: Any, b: Any) -> Any:
    return a if a <= b else b


_many("Max", 6, T.maximum, (_larger, np.maximum))
_many("Min", 6, T.minimum, (_smaller, np.minimum))
_many("Sum", 6, python.add, (python.add, np.add))


@operator("Mean", 6)
def mean_of(node: Node, *given: Tensor) -> Any:
    """Of its inputs, element by element."""
    return functools.reduce(python.add, given) / len(given)


# --- comparisons and logic ---------------------------------------------------------------------

for _name, _since, _function, _numpy in (
    ("Equal", 7, python.eq, np.equal), ("Less", 7, python.lt, np.less),
    ("Greater", 7, python.gt, np.greater), ("LessOrEqual", 12, python.le, np.less_equal),
    ("GreaterOrEqual", 12, python.ge, np.greater_equal),
):
    _binary(_name, _since, _function, _folds(_function, _numpy, np.bool_))
_binary("And", 7, T.logical_and, _folds(lambda a, b: bool(a) and bool(b), np.logical_and, np.bool_))
_binary("Or", 7, T.logical_or, _folds(lambda a, b: bool(a) or bool(b), np.logical_or, np.bool_))
_binary("Xor", 7, T.logical_xor)
unary("Not", 1, T.logical_not, _folds(python.not_, np.logical_not, np.bool_))


def _fold_where(node: Node, chosen: Numbers, a: Numbers, b: Numbers) -> Numbers | None:
    found = each(lambda c, x, y: x if c else y, np.where, a.kind, chosen, a, b)
    return found


@operator("Where", 9, folded=_fold_where)
def where(node: Node, chosen: Tensor, a: Tensor, b: Tensor) -> Any:
    return T.where(chosen, a, b)


for _name, _function in (
    ("BitwiseAnd", python.and_), ("BitwiseOr", python.or_), ("BitwiseXor", python.xor)
):
    _binary(_name, 18, _function)
unary("BitwiseNot", 18, T.bitwise_not)


@operator("BitShift", 11)
def bit_shift(node: Node, a: Tensor, b: Tensor) -> Any:
    way = node.one_of("direction", "", ("LEFT", "RIGHT"))
    return (T.bitwise_left_shift if way == "LEFT" else T.bitwise_right_shift)(a, b)


# --- limits ------------------------------------------------------------------------------------


def _clamped(x: Tensor, low: Any, high: Any) -> Tensor:
    """A bound above the other one wins, as the operator's text says."""
    if low is not None:
        x = T.maximum(x, low) if isinstance(low, Tensor) else T.clamp(x, min=low)
    if high is not None:
        x = T.minimum(x, high) if isinstance(high, Tensor) else T.clamp(x, max=high)
    return x


@operator("Clip", 6)
def clip_by_attributes(node: Node, x: Tensor) -> Any:
    return _clamped(x, node.get("min"), node.get("max"))


@operator("Clip", 11, settings=(1, 2))
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Any:
    return _clamped(x, low, high)


# --- types -------------------------------------------------------------------------------------


def cast_to(x: Tensor, dtype: DType) -> Tensor:
    """x in another dtype."""
    return x if x.dtype is dtype else x.to(dtype)


def dtype_of(node: Node, data_type: int) -> DType:
    """The dtype of a TensorProto.DataType that an attribute asks for."""
    kind = kind_of(data_type, node.where)
    try:
        return from_numpy(kind)
    except TypeError:
        return node.refuse(
            f"it makes elements of {kind}, which graphc's tensors do not have",
            "export the model with int64 there",
        )


def element_of(node: Node, data_type: int) -> DType | Kind:
    """The dtype, or the kind that another dtype carries."""
    found = kind_for(kind_of(data_type, node.where))
    return dtype_of(node, data_type) if found is None else found


def _fold_cast(node: Node, x: Numbers) -> Numbers | None:
    kind = kind_of(node.get("to", 1), node.where)
    if kind.kind != "u" and kind_for(kind) is not None:
        return None
    if x.traced and kind.kind in "iu" and x.kind.kind in "iu":
        return Numbers(x.items, x.shape, kind)
    if x.kind.kind == "f" and kind.kind in "iu":
        return each(_same, lambda a: np.trunc(a).astype(np.int64), kind, x)
    return Numbers.of(x.array().astype(kind))


@operator("Cast", 6, folded=_fold_cast)
def cast(node: Node, x: Tensor) -> Any:
    wanted = element_of(node, node.get("to", 1))
    if isinstance(wanted, Kind):
        return carried(
            x, wanted, bool(node.get("saturate", 1)), node.get("round_mode", "up")
        )
    return cast_to(x, wanted)


@operator("CastLike", 15)
def cast_like(node: Node, x: Tensor, like: Tensor) -> Any:
    return cast_to(x, like.dtype)


@operator("BitCast", 26)
def bit_cast(node: Node, x: Tensor) -> Any:
    dtype = element_of(node, node.get("to", 1))
    if dtype.bits != x.dtype.bits:
        node.refuse(f"{x.dtype} and {dtype} differ in size", "cast to a type of the same size")
    if not isinstance(dtype, Kind):
        return x.view(dtype)
    if not dtype.is_unsigned:
        node.refuse(f"it takes bits as {dtype}", "cast to a type of 16 bits or more")
    return carried(x.view({16: T.int16, 32: T.int32, 64: T.int64}[dtype.bits]), dtype)
