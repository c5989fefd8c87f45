"""What complex operators are in real ones: on the two parts of each number, or on its row of two.

Each operation on parts rounds, as in NumPy's and torch's loops: a product is (ac - bd, ad + bc), a
quotient goes by the larger part of the divisor (Smith 1962), an absolute value is a hypotenuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import dtypes, ops
from ..graph import Node


class Pair(NamedTuple):
    """The parts of complex values, each of their shape."""

    real: Any
    imag: Any


def _each(name: str) -> Callable[..., Pair]:
    """What is done to both parts alike."""

    def made(*pairs: Pair, **attrs: Any) -> Pair:
        op = getattr(ops, name)
        return Pair(*(op(*parts, **attrs) for parts in zip(*pairs, strict=True)))

    return made


def _mul(x: Pair, y: Pair) -> Pair:
    return Pair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _div(x: Pair, y: Pair) -> Pair:
    size = ops.abs(y.real)
    wide = ops.ge(size, ops.abs(y.imag))
    large, small = ops.where(wide, y.real, y.imag), ops.where(wide, y.imag, y.real)
    ratio = small / large
    below = large + small * ratio
    first, second = ops.where(wide, x.real, x.imag), ops.where(wide, x.imag, x.real)
    back = second * ratio
    real = (first + back) / below
    turned = first * ratio
    imag = ops.where(wide, second - turned, turned - second) / below
    nothing = ops.bitwise_and(ops.eq(y.real, 0.0), ops.eq(y.imag, 0.0))
    return Pair(
        ops.where(nothing, x.real / size, real), ops.where(nothing, x.imag / size, imag)
    )


def _reciprocal(x: Pair) -> Pair:
    return _div(_to_complex(ops.full.like(
        x.real, shape=tuple(x.real.shape), value=1.0, dtype=x.real.type.dtype
    ), dtypes.complex_of(x.real.type.dtype)), x)


def _exp(x: Pair) -> Pair:
    size = ops.exp(x.real)
    # of a real number the exponential is real, however large
    return Pair(size * ops.cos(x.imag), ops.where(
        ops.eq(x.imag, 0.0), x.imag, size * ops.sin(x.imag)
    ))


def _sign(x: Pair) -> Pair:
    size = ops.hypot(x.real, x.imag)
    nothing = ops.eq(size, 0.0)
    return Pair(*(ops.where(nothing, part * 0.0, part / size) for part in x))


def _dot(x: Pair, y: Pair, **attrs: Any) -> Pair:
    def dot(a: Any, b: Any) -> Any:
        return ops.dot_general(a, b, **attrs)

    return Pair(
        dot(x.real, y.real) - dot(x.imag, y.imag), dot(x.real, y.imag) + dot(x.imag, y.real)
    )


def _select(where: Any, x: Pair, y: Pair) -> Pair:
    return Pair(ops.where(where, x.real, y.real), ops.where(where, x.imag, y.imag))


def _to_complex(x: Any, dtype: dtypes.DType) -> Pair:
    real = x if x.type.dtype is dtype.real else ops.cast(x, dtype=dtype.real)
    return Pair(real, ops.full.like(real, shape=tuple(real.shape), value=0.0, dtype=dtype.real))


def _cast(x: Any, dtype: dtypes.DType) -> Any:
    """Between complex dtypes, to one and from one."""
    if not isinstance(x, Pair):
        return _to_complex(x, dtype)
    if dtype.is_complex:
        return Pair(*(ops.cast(part, dtype=dtype.real) for part in x))
    if dtype is dtypes.bool_:
        return ops.bitwise_or(ops.ne(x.real, 0.0), ops.ne(x.imag, 0.0))
    return x.real if x.real.type.dtype is dtype else ops.cast(x.real, dtype=dtype)


# of complex operands Pairs, of others what they are; the result a Pair, or real
IN_PARTS: dict[str, Callable[..., Any]] = {
    "mul": _mul,
    "div": _div,
    "exp": _exp,
    "reciprocal": _reciprocal,
    "square": lambda x: _mul(x, x),
    "conj": lambda x: Pair(x.real, -x.imag),
    "complex_abs": lambda x: ops.hypot(x.real, x.imag),
    "complex_sign": _sign,
    "dot_general": _dot,
    "where": _select,
    "cast": _cast,
    "eq": lambda x, y: ops.bitwise_and(ops.eq(x.real, y.real), ops.eq(x.imag, y.imag)),
    "ne": lambda x, y: ops.bitwise_or(ops.ne(x.real, y.real), ops.ne(x.imag, y.imag)),
}
_ALIKE = ("add", "sub", "neg", "reshape", "permute", "expand", "slice", "slice_update", "flip",
          "concat", "sum")
EACH: dict[str, Callable[..., Pair]] = {name: _each(name) for name in (*_ALIKE, "pad")}


def by_rows(node: Node) -> dict[str, Any] | None:
    """The attributes with which an operator does to [..., 2] what it does to [...]; None where it
    has none."""
    name, attrs = node.op.name, dict(node.attrs)
    rank = len(node.shape)
    if name in ("add", "sub", "neg", "flip", "concat", "sum"):
        return attrs
    if name in ("reshape", "expand"):
        return {**attrs, "shape": (*attrs["shape"], 2)}
    if name == "permute":
        return {**attrs, "dims": (*attrs["dims"], rank)}
    if name in ("slice", "slice_update"):
        ends = {"starts": 0, "stops": 2, "steps": 1}
        return {**attrs, **{key: (*attrs[key], end) for key, end in ends.items()}}
    if name == "pad" and attrs["value"] == 0:
        return {**attrs, **{key: (*attrs[key], 0) for key in ("low", "high", "interior")}}
    return None


def known(node: Node) -> bool:
    """Whether an operator on complex numbers is made of real ones."""
    name = node.op.name
    if name == "pad":
        return by_rows(node) is not None
    if name == "full":
        return isinstance(node.attrs["value"], (bool, int, float, complex))
    return name in IN_PARTS or name in EACH
