"""Elementwise operators of two and three operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.graph import Node

from .elements import UNSIGNED
from .elementwise import truncated
from .rules import direct, rule

if TYPE_CHECKING:
    from .writer import Writer

direct({
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
})

# --- division ----------------------------------------------------------------------------------


@rule("remainder")
def _remainder(w: Writer, node: Node, a: str, b: str) -> Any:
    return _floor_rest(w, node.dtype, a, b)


@rule("fmod")
def _fmod(w: Writer, node: Node, a: str, b: str) -> Any:
    return w.emit("Mod", a, b, fmod=1)


def _floor_rest(w: Writer, dtype: DType, a: str, b: str) -> Any:
    """a - b * floor(a / b), with the sign of b."""
    if not dtype.is_float:
        return w.emit("Mod", a, b)
    rest = w.emit("Mod", a, b, fmod=1)  # with the sign of a
    return w.emit("Where", _wrong_side(w, rest, b), w.emit("Add", rest, b), rest)


def _wrong_side(w: Writer, rest: str, b: str) -> Any:
    """Whether a rest that is not 0 has another sign than the divisor."""
    zero = w.like(0.0, rest)
    apart = w.emit("Xor", w.emit("Less", rest, zero), w.emit("Less", b, zero))
    return w.emit("And", apart, w.emit("Not", w.emit("Equal", rest, zero)))


@rule("floor_divide")
def _floor_divide(w: Writer, node: Node, a: str, b: str) -> Any:
    if not node.dtype.is_float:
        return w.emit("Div", w.emit("Sub", a, w.emit("Mod", a, b)), b)
    a, b = _in_32_bits(w, a), _in_32_bits(w, b)
    rest = w.emit("Mod", a, b, fmod=1)
    cut = w.emit("Round", w.emit("Div", w.emit("Sub", a, rest), b))
    below = w.emit("Sub", cut, w.cast(_wrong_side(w, rest, b), w.types[cut]))
    by_zero = w.emit("Equal", b, w.like(0.0, b))
    return w.cast(w.emit("Where", by_zero, w.emit("Div", a, b), below), node.dtype)


@rule("trunc_divide")
def _trunc_divide(w: Writer, node: Node, a: str, b: str) -> Any:
    if not node.dtype.is_float:
        return w.emit("Div", a, b)
    quotient = w.emit("Div", _in_32_bits(w, a), _in_32_bits(w, b))
    return w.cast(truncated(w, quotient), node.dtype)


def _in_32_bits(w: Writer, x: str) -> str:
    """A quotient of 16-bit floats may be rounded up to the next whole number."""
    return w.cast(x, dtypes.f32) if w.types[x].bits < 32 else x


@rule("pow")
def _pow(w: Writer, node: Node, a: str, b: str) -> Any:
    found = w.emit("Pow", a, b)
    if node.dtype.is_float:
        return found
    # of integers, 0 to a negative power is 0
    zero = w.like(0, a)
    endless = w.emit("And", w.emit("Equal", a, zero), w.emit("Less", b, zero))
    return w.emit("Where", endless, zero, found)


# --- extrema -----------------------------------------------------------------------------------


@rule("maximum")
def _maximum(w: Writer, node: Node, a: str, b: str) -> Any:
    return _extremum(w, "Max", a, b)


@rule("minimum")
def _minimum(w: Writer, node: Node, a: str, b: str) -> Any:
    return _extremum(w, "Min", a, b)


def _extremum(w: Writer, op: str, a: str, b: str) -> Any:
    """Max or Min; a NaN passes in ONNX, too (it follows numpy.maximum)."""
    if w.types[a] is dtypes.bool_:
        return w.emit("Or" if op == "Max" else "And", a, b)
    return w.emit(op, a, b)


@rule("fmax", "fmin")
def _fmax(w: Writer, node: Node, a: str, b: str) -> Any:
    found = w.emit("Max" if node.op.name == "fmax" else "Min", a, b)
    if not node.dtype.is_float:
        return found
    found = w.emit("Where", w.emit("IsNaN", b), a, found)
    return w.emit("Where", w.emit("IsNaN", a), b, found)


@rule("clamp")
def _clamp(w: Writer, node: Node, x: str, low: str, high: str) -> Any:
    _, *bounds = node.inputs
    if all(not bound.shape for bound in bounds):
        return w.emit("Clip", x, low, high)
    return w.emit("Min", w.emit("Max", x, low), high)


# --- angles and signs --------------------------------------------------------------------------


@rule("atan2")
def _atan2(w: Writer, node: Node, a: str, b: str) -> Any:
    """The angle of the point (b, a): that of its slope, turned by half where b is negative."""
    zero, endless = w.like(0.0, a), w.like(math.inf, a)
    far = w.emit(
        "And", *(w.emit("Equal", w.emit("Abs", each), endless) for each in (a, b))
    )
    a, b = (w.emit("Where", far, w.emit("Sign", each), each) for each in (a, b))
    behind = _negative(w, b)
    b = w.emit("Where", w.emit("Equal", b, zero), zero, b)  # -0.0 would turn the slope round
    nowhere = w.emit("And", w.emit("Equal", a, zero), w.emit("Equal", b, zero))
    slope = w.emit("Atan", w.emit("Div", a, b))
    half = w.emit("Where", _negative(w, a), w.like(-math.pi, a), w.like(math.pi, a))
    turned = w.emit("Where", w.emit("Less", b, zero), w.emit("Add", slope, half), slope)
    return w.emit("Where", nowhere, w.emit("Where", behind, half, a), turned)


def _negative(w: Writer, x: str) -> Any:
    """Whether a float has the sign of -0.0."""
    zero = w.like(0.0, x)
    behind = w.emit("Less", w.emit("Reciprocal", x), zero)
    return w.emit(
        "Or", w.emit("Less", x, zero), w.emit("And", w.emit("Equal", x, zero), behind)
    )


@rule("copysign")
def _copysign(w: Writer, node: Node, a: str, b: str) -> Any:
    size = w.emit("Abs", a)
    return w.emit("Where", _negative(w, b), w.emit("Neg", size), size)


@rule("hypot")
def _hypot(w: Writer, node: Node, a: str, b: str) -> Any:
    a, b = w.emit("Abs", a), w.emit("Abs", b)
    large, small = w.emit("Max", a, b), w.emit("Min", a, b)
    share = w.emit("Div", small, large)
    root = w.emit("Sqrt", w.emit("Add", w.emit("Mul", share, share), w.like(1.0, a)))
    endless = w.like(math.inf, a)
    far = w.emit("Or", w.emit("Equal", a, endless), w.emit("Equal", b, endless))
    found = w.emit("Where", w.emit("Equal", large, w.like(0.0, a)), large,
                   w.emit("Mul", large, root))
    return w.emit("Where", far, endless, found)  # beside NaN, too


# --- bits --------------------------------------------------------------------------------------


@rule("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(w: Writer, node: Node, a: str, b: str) -> Any:
    word = node.op.name.removeprefix("bitwise_").capitalize()
    return w.emit(word if node.dtype is dtypes.bool_ else f"Bitwise{word}", a, b)


@rule("shift_left")
def _shift_left(w: Writer, node: Node, a: str, b: str) -> Any:
    """Through unsigned numbers, the only ones that BitShift takes."""
    a, b = w.cast(a, dtypes.i64), w.cast(b, dtypes.i64)
    inside = _within(w, b, node.dtype.bits)
    by = w.emit("Where", inside, b, w.like(0, b))
    shifted = w.unsigned(
        "BitShift", *(w.unsigned("Cast", each, to=UNSIGNED) for each in (a, by)), direction="LEFT"
    )
    (found,) = w.raw("Cast", [shifted], [dtypes.i64], to=7)
    return w.cast(w.emit("Where", inside, found, w.like(0, found)), node.dtype)


@rule("shift_right")
def _shift_right(w: Writer, node: Node, a: str, b: str) -> Any:
    """floor(a / 2**b), which fills with the sign."""
    a, b = w.cast(a, dtypes.i64), w.cast(b, dtypes.i64)
    inside = _within(w, b, min(node.dtype.bits, 63))
    power = w.emit("Pow", w.like(2, b), w.emit("Where", inside, b, w.like(0, b)))
    found = w.emit("Div", w.emit("Sub", a, w.emit("Mod", a, power)), power)
    below = w.emit("Less", a, w.like(0, a))
    fill = w.emit("Where", below, w.like(-1, a), w.like(0, a))
    return w.cast(w.emit("Where", inside, found, fill), node.dtype)


def _within(w: Writer, b: str, bits: int) -> Any:
    """Whether 0 <= b < bits."""
    return w.emit(
        "And", w.emit("GreaterOrEqual", b, w.like(0, b)), w.emit("Less", b, w.like(bits, b))
    )


# --- comparisons -------------------------------------------------------------------------------

_COMPARE = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"
}


@rule("eq", "lt", "le", "gt", "ge")
def _compare(w: Writer, node: Node, a: str, b: str) -> Any:
    return w.emit(_COMPARE[node.op.name], a, b)


@rule("ne")
def _ne(w: Writer, node: Node, a: str, b: str) -> Any:
    return w.emit("Not", w.emit("Equal", a, b))


@rule("where")
def _where(w: Writer, node: Node, condition: str, a: str, b: str) -> Any:
    if node.dtype is not dtypes.bool_:
        return w.emit("Where", condition, a, b)
    # runtimes have no Where for bool
    chosen = w.emit("And", condition, a)
    return w.emit("Or", chosen, w.emit("And", w.emit("Not", condition), b))
