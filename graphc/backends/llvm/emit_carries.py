"""Carried values: how an iteration combines into them, and how lanes become one at the end.

Lanes are combined in a fixed tree, halves first, and then with the initial value: the result
depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.backends.llvm.emit_context import Context
from graphc.backends.llvm.scalar import Operations
from graphc.backends.llvm.values import Value, constant, register_type, shuffle_mask
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Carry
from graphc.ir.kernel.combine import ARGUMENTS, COMBINES, identity


def combine(o: Operations, kind: str, dtype: DType, old: str, new: str) -> str:
    """old combined with new, lane by lane ("set" takes the new)."""
    if kind == "set":
        return new
    if kind in ("or", "and"):
        return o.binary(kind, dtype, old, new)
    # max and min are cheapest where the value that carries on is their second operand
    first, second = (new, old) if kind in ("max", "min") else (old, new)
    return o.apply(COMBINES[kind].operator, dtype, [dtype, dtype], [first, second])


def _takes_over(o: Operations, kind: str, dtype: DType, old: str, new: str) -> str:
    """Where an arg-reduction takes the new value: strictly better, or the first NaN (of
    "argmax_last": each)."""
    if not dtype.is_float:
        signed = "s" if dtype.kind == "int" else "u"
        return o.compare(signed + ("lt" if kind == "argmin" else "gt"), dtype, new, old)
    if dtype.bits == 16:
        old, new = (o.cast(x, dtype, dtypes.f32) for x in (old, new))
        dtype = dtypes.f32
    if kind == "argmax_last":
        greater, nan = o.compare("ogt", dtype, new, old), o.compare("uno", dtype, new, new)
        return o.binary("or", dtypes.bool_, greater, nan)
    # unordered-or-better is true for a NaN on either side; an old NaN must stay
    better = o.compare("ugt" if kind == "argmax" else "ult", dtype, new, old)
    return o.binary("and", dtypes.bool_, better, o.compare("ord", dtype, old, old))


def combine_carries(
    o: Operations,
    carries: Sequence[Carry],
    old: Sequence[str],
    new: Sequence[str],
    mask: str | None,
) -> list[str]:
    """All carried values after an iteration; lanes outside the mask keep the old ones."""
    result: list[str] = []
    taken = ""
    for carry, before, after in zip(carries, old, new, strict=True):
        if carry.combine in ARGUMENTS:
            taken = _takes_over(o, carry.combine, carry.dtype, before, after)
            if mask is not None:
                taken = o.binary("and", dtypes.bool_, taken, mask)
            result.append(o.select(taken, carry.dtype, after, before))
        elif carry.combine == "index":
            result.append(o.select(taken, carry.dtype, after, before))
        else:
            value = combine(o, carry.combine, carry.dtype, before, after)
            if mask is not None:
                value = o.select(mask, carry.dtype, value, before)
            result.append(value)
    return result


def lane_inits(
    context: Context, carries: Sequence[Carry], inits: Sequence[Value], lanes: int
) -> list[str]:
    """What the lanes start from: the identity; for arg-reductions, which can repeat it, the
    initial value itself."""
    result: list[str] = []
    for carry, init in zip(carries, inits, strict=True):
        if carry.combine in (*ARGUMENTS, "index"):
            result.append(context.splat(init, lanes))
        elif carry.combine == "set":
            raise ValueError(f"carry {carry.name}: a vector loop cannot carry by 'set'")
        else:
            result.append(constant(identity(carry.combine, carry.dtype), carry.dtype, lanes))
    return result


def finish_lanes(
    operations: Callable[[int], Operations],
    carries: Sequence[Carry],
    inits: Sequence[Value],
    values: Sequence[str],
    lanes: int,
) -> list[str]:
    """The lanes' values combined into one, and with the initial value."""
    values = list(values)
    if not carries:
        return values
    while lanes > 1:
        half = lanes // 2
        o = operations(half)
        low = [_half(o, c.dtype, v, lanes, 0) for c, v in zip(carries, values, strict=True)]
        high = [_half(o, c.dtype, v, lanes, half) for c, v in zip(carries, values, strict=True)]
        values = _meet(o, carries, low, high)
        lanes = half
    o = operations(1)
    return [
        v
        if c.combine in (*ARGUMENTS, "index")
        else combine(o, c.combine, c.dtype, i.text, v)
        for c, i, v in zip(carries, inits, values, strict=True)
    ]


def _half(o: Operations, dtype: DType, value: str, lanes: int, first: int) -> str:
    kind = register_type(dtype, lanes)
    if lanes == 2:
        return o.fn.let(f"extractelement {kind} {value}, i64 {first}")
    mask = shuffle_mask(first, lanes // 2)
    return o.fn.let(f"shufflevector {kind} {value}, {kind} poison, {mask}")


def _meet(
    o: Operations, carries: Sequence[Carry], low: Sequence[str], high: Sequence[str]
) -> list[str]:
    """Two halves of the lanes combined; of equal arg-reductions the lower index wins."""
    result: list[str] = []
    taken = ""
    for position, carry in enumerate(carries):
        a, b = low[position], high[position]
        if carry.combine in ARGUMENTS:
            taken = _takes_over(o, carry.combine, carry.dtype, a, b)
            back = _takes_over(o, carry.combine, carry.dtype, b, a)
            # neither is better: equal values, or both NaN
            either = o.binary("or", dtypes.bool_, taken, back)
            tie = o.binary("xor", dtypes.bool_, either, o.const(True, dtypes.bool_))
            index = carries[position + 1].dtype
            earlier = o.compare("slt", index, high[position + 1], low[position + 1])
            tie = o.binary("and", dtypes.bool_, tie, earlier)
            taken = o.binary("or", dtypes.bool_, taken, tie)
            result.append(o.select(taken, carry.dtype, b, a))
        elif carry.combine == "index":
            result.append(o.select(taken, carry.dtype, b, a))
        else:
            result.append(combine(o, carry.combine, carry.dtype, a, b))
    return result
