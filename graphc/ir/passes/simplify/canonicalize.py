"""One spelling for each meaning, so that other rules and CSE need to know one only.

Constants come second in commutative operators and comparisons; operators that change nothing
are gone; a constant fill stays a fill through views and casts.
"""

from __future__ import annotations

from typing import Any

from ... import rewrite
from ...graph import Expr, Graph
from ...op import get
from ...rewrite import Match, Rules, constant, numeric, p, scalar_value, variable, wild

RULES = Rules("canonicalize")

x, y = wild("x"), wild("y")
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_COMMUTATIVE = (
    "add", "mul", "maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or",
    "bitwise_xor", "logical_and", "logical_or", "logical_xor",
)


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
    """A reduction over dims of size 1 is a reshape (a sum of one -0.0 may stay -0.0)."""
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
)
def moved_fill(m: Match) -> Any:
    return m.filled(m.attr("value", "f"))


@RULES.add(p.expand(p.const(name="c")), p.reshape(p.const(name="c")))
def moved_number(m: Match) -> Any:
    """A constant of one number, spread, is a fill; reshaped to 0-d it is that constant."""
    value = m.number("c")
    if value is None:
        return None
    return m.constant(value) if m.shape == () else m.filled(value)


@RULES.add(p.full())
def fill_of_nothing(m: Match) -> Any:
    """A 0-d fill is a constant: constants of 0 dims have one spelling."""
    value = scalar_value(m.root)
    return m.constant(value) if m.shape == () and value is not None else None


@RULES.add(p.cast(numeric("c")))
def cast_number(m: Match) -> Any:
    """A number cast to a dtype that holds it exactly."""
    value, dtype = m.number("c"), m.root.dtype
    if dtype.kind == "bool" or (m.c.dtype.is_float and not dtype.is_float):
        return None
    try:
        same = bool(dtype.numpy.type(value.item()) == value)
    except OverflowError:
        return None
    if not same:
        return None
    return m.constant(value.item()) if m.shape == () else m.filled(value.item())


@RULES.add(
    *(getattr(p, op)(wild("x"), p.full(name="f")) for op in (*_COMMUTATIVE, *_FLIPPED)),
    *(getattr(p, op)(wild("x"), p.full(name="f")) for op in ("sub", "div", "pow")),
    *(getattr(p, op)(p.full(name="f"), wild("x")) for op in ("sub", "div", "pow")),
    p.where(wild("c"), p.full(name="f"), wild("x")),
    p.where(wild("c"), wild("x"), p.full(name="f")),
)
def fill_operand(m: Match) -> Any:
    """A filled operand that gives the result no dims is a 0-d constant."""
    fill = m.node("f")
    value = scalar_value(fill)
    if value is None or fill.shape == ():
        return None
    others = [node.shape for node in m.root.inputs if node is not fill]
    if m.shape not in others:
        return None
    scalar = m.constant(value, Expr(m.builder, fill))
    return m.root.op(*(scalar if e.node is fill else e for e in m.inputs()))
