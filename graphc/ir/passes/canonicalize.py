"""One spelling for each meaning, so that other rules and CSE need to know one only.

Constants come second in commutative operators and comparisons; operators that change nothing
are gone; a constant fill stays a fill through views and casts. Every rule keeps each bit.
"""

from __future__ import annotations

from typing import Any

from .. import rewrite
from ..dim import Dim
from ..graph import Graph
from ..op import get
from ..rewrite import Match, Rules, constant, numeric, p, variable, wild
from ..types import Shape

RULES = Rules("canonicalize")

x, y = wild("x"), wild("y")
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_COMMUTATIVE = (
    "add", "mul", "maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or",
    "bitwise_xor", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


def canonicalize(graph: Graph) -> Graph:
    """The graph in canonical spelling."""
    return rewrite.apply(graph, RULES)


@RULES.add(*(getattr(p, op)(constant("c"), variable("x")) for op in _COMMUTATIVE))
def constant_second(m: Match) -> Any:
    return m.root.op(m.x, m.c)


@RULES.add(*(getattr(p, op)(constant("c"), variable("x")) for op in _FLIPPED))
def compare_with_constant_second(m: Match) -> Any:
    return get(_FLIPPED[m.root.op.name])(m.x, m.c)


@RULES.add(p.where(p.logical_not(wild("c")), x, y))
def where_not(m: Match) -> Any:
    if m.c.dtype.kind != "bool":
        return None
    return get("where")(m.c, m.y, m.x)


# --- operators that change nothing -----------------------------------------------------------


@RULES.add(p.reshape(x), p.expand(x))
def same_shape(m: Match) -> Any:
    return m.x if m.x.shape == m.shape else None


@RULES.add(p.cast(x))
def same_dtype(m: Match) -> Any:
    return m.x if m.x.dtype is m.root.dtype else None


@RULES.add(p.permute(x))
def same_order(m: Match) -> Any:
    dims = m.attr("dims")
    return m.x if dims == tuple(range(len(dims))) else None


@RULES.add(p.slice(x))
def whole_slice(m: Match) -> Any:
    whole = not any(m.attr("starts")) and m.attr("stops") == m.x.shape
    return m.x if whole and all(step == 1 for step in m.attr("steps")) else None


@RULES.add(p.flip(x))
def flip_of_ones(m: Match) -> Any:
    return m.x if all(m.x.shape[d] == 1 for d in m.attr("dims")) else None


@RULES.add(p.pad(x))
def pad_by_nothing(m: Match) -> Any:
    amounts = (*m.attr("low"), *m.attr("high"), *m.attr("interior"))
    return m.x if all(amount == 0 for amount in amounts) else None


@RULES.add(p.concat(x))
def concat_of_one(m: Match) -> Any:
    return m.x


@RULES.add(p.floor(x), p.ceil(x), p.round(x), p.trunc(x))
def rounded_integer(m: Match) -> Any:
    return None if m.x.dtype.is_float else m.x


@RULES.add(p.sum(x), p.prod(x), p.amax(x), p.amin(x), p.any(x), p.all(x))
def reduce_of_ones(m: Match) -> Any:
    """A reduction over dims of size 1 is a reshape."""
    if not all(m.x.shape[d] == 1 for d in m.attr("dims")):
        return None
    return get("reshape")(m.x, shape=m.shape)


@RULES.add(p.permute(x))
def permute_of_ones(m: Match) -> Any:
    """A permutation that moves dims of size 1 only is a reshape."""
    shape = m.x.shape
    moved = [d for d in m.attr("dims") if shape[d] != 1]
    return get("reshape")(m.x, shape=m.shape) if moved == sorted(moved) else None


@RULES.add(p.expand(x))
def expand_by_ones(m: Match) -> Any:
    """An expand that only adds dims of size 1 is a reshape."""
    added = len(m.shape) - len(m.x.shape)
    if m.shape != (1,) * added + m.x.shape:
        return None
    return get("reshape")(m.x, shape=m.shape)


# --- fills -----------------------------------------------------------------------------------


@RULES.add(
    p.reshape(p.full(name="f")), p.expand(p.full(name="f")), p.permute(p.full(name="f")),
    p.slice(p.full(name="f")), p.flip(p.full(name="f")), p.as_strided(p.full(name="f")),
)  # fmt: skip
def moved_fill(m: Match) -> Any:
    return _fill_like(m, m.attr("value", "f"), m.shape)


@RULES.add(p.expand(p.const(name="c")), p.reshape(p.const(name="c")))
def moved_number(m: Match) -> Any:
    """A constant of one number, spread, is a fill; reshaped to 0-d it is that constant."""
    value = m.number("c")
    if value is None or m.c.dtype.bits < 32:
        return None
    if m.root.op.name == "reshape" and m.shape == ():
        return m.constant(value)
    plain = bool(value) if m.c.dtype.kind == "bool" else value.item()
    return _fill_like(m, plain, m.shape)


@RULES.add(p.cast(numeric("c")))
def cast_number(m: Match) -> Any:
    """A float or an integer number in a wider dtype that holds it exactly."""
    value, dtype = m.number("c"), m.root.dtype
    if not dtype.is_float or dtype.bits < 32 or m.c.dtype.kind == "bool":
        return None
    if float(value) != value or float(dtype.numpy.type(float(value))) != float(value):
        return None
    if m.shape == ():
        return m.constant(float(value))
    return _fill_like(m, float(value), m.shape)


def _fill_like(m: Match, value: float | int | bool | Dim, shape: Shape) -> Any:
    return get("full").like(m.x if "x" in m.names else m.any, shape=shape, value=value,
                            dtype=m.root.dtype)  # fmt: skip
