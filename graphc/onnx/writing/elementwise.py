"""Elementwise operators of one operand, and casts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.graph import Node

from . import elements
from .rules import direct, rule

if TYPE_CHECKING:
    from .writer import Writer

direct({
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid",
})


@rule("square")
def _square(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Mul", x, x)


@rule("sign")
def _sign(w: Writer, node: Node, x: str) -> Any:
    found = w.emit("Sign", x)
    if not node.dtype.is_float:
        return found
    return w.emit("Where", w.emit("IsNaN", x), w.like(0.0, x), found)  # as torch has it


@rule("relu")
def _relu(w: Writer, node: Node, x: str) -> Any:
    return x if node.dtype is dtypes.u8 else w.emit("Relu", x)


@rule("rsqrt")
def _rsqrt(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Reciprocal", w.emit("Sqrt", x))


@rule("exp2")
def _exp2(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Pow", w.like(2.0, x), x)


@rule("log2")
def _log2(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Div", w.emit("Log", x), w.like(math.log(2.0), x))


@rule("log10")
def _log10(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Div", w.emit("Log", x), w.like(math.log(10.0), x))


@rule("expm1")
def _expm1(w: Writer, node: Node, x: str) -> Any:
    """Near 0 (u - 1) * x / log(u) for u = exp(x), where rounding errors of u cancel; u - 1
    elsewhere (Kahan; Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1)."""
    one = w.like(1.0, x)
    u = w.emit("Exp", x)
    plain = w.emit("Sub", u, one)
    exact = w.emit("Div", w.emit("Mul", plain, x), w.emit("Log", u))
    near = w.emit("Where", w.emit("Equal", u, one), x, exact)
    return w.emit("Where", w.emit("Less", w.emit("Abs", x), one), near, plain)


@rule("log1p")
def _log1p(w: Writer, node: Node, x: str) -> Any:
    """log(u) * x / (u - 1) for u = 1 + x, where rounding errors of u cancel (the same source)."""
    one = w.like(1.0, x)
    u = w.emit("Add", x, one)
    rest = w.emit("Sub", u, one)
    log = w.emit("Log", u)
    exact = w.emit("Mul", log, w.emit("Div", x, rest))
    found = w.emit("Where", w.emit("Equal", rest, x), log, exact)  # infinity, too
    return w.emit("Where", w.emit("Equal", u, one), x, found)


# --- rounding and tests ------------------------------------------------------------------------


@rule("floor", "ceil", "round")
def _rounded(w: Writer, node: Node, x: str) -> Any:
    return w.emit(node.op.name.capitalize(), x) if node.dtype.is_float else x


@rule("trunc")
def _trunc(w: Writer, node: Node, x: str) -> Any:
    return truncated(w, x) if node.dtype.is_float else x


def truncated(w: Writer, x: str) -> Any:
    """A float rounded toward 0."""
    below = w.emit("Less", x, w.like(0.0, x))
    return w.emit("Where", below, w.emit("Ceil", x), w.emit("Floor", x))


@rule("isnan")
def _isnan(w: Writer, node: Node, x: str) -> Any:
    if not w.types[x].is_float:
        return _constantly(w, node, False)
    return w.emit("IsNaN", x)


@rule("isinf")
def _isinf(w: Writer, node: Node, x: str) -> Any:
    if not w.types[x].is_float:
        return _constantly(w, node, False)
    return w.emit("Equal", w.emit("Abs", x), w.like(math.inf, x))


@rule("isfinite")
def _isfinite(w: Writer, node: Node, x: str) -> Any:
    if not w.types[x].is_float:
        return _constantly(w, node, True)
    return w.emit("Less", w.emit("Abs", x), w.like(math.inf, x))  # false for NaN


def _constantly(w: Writer, node: Node, value: bool) -> Any:
    return w.emit("Expand", w.constant(value, dtypes.bool_), w.shape(node.shape))


@rule("logical_not")
def _logical_not(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Not", w.cast(x, dtypes.bool_))


@rule("bitwise_not")
def _bitwise_not(w: Writer, node: Node, x: str) -> Any:
    return w.emit("Not" if node.dtype is dtypes.bool_ else "BitwiseNot", x)


# --- casts -------------------------------------------------------------------------------------


@rule("cast")
def _cast(w: Writer, node: Node, x: str) -> Any:
    dtype, source = node.dtype, w.types[x]
    if not elements.known(dtype) or not elements.known(source):
        w.refuse("ONNX's operators take no complex numbers", "compute with their parts")
    if source.is_float and dtype.is_integer:
        x = w.cast(x, dtypes.i64)  # out of range it is cut, which ONNX leaves open
    return w.cast(x, dtype)
