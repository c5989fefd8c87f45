"""The gradient of a max_pool as a sum over the windows that hold a place: each is asked whether its
maximum was there. Nothing is scattered, so no order has to be made, and neighbours read neighbours.
Where more windows hold a place than a kernel reads one value for, it stays a scatter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import dtypes, ops
from ..dtypes import DType
from ..graph import Builder, Expr, Node

_MOST_WINDOWS = 9  # that hold one place


def gathered(
    builder: Builder, g: Node, indices: Node, plane: tuple[int, ...], pool: Mapping[str, Any]
) -> Node | None:
    """max_pool_grad(g, indices) for the pool with these attributes, over planes of these sizes; how
    many planes there are may be symbolic. None where it is no such sum."""
    if not all(isinstance(size, int) for size in (*plane, *g.shape[-len(plane) :])):
        return None
    held = [-(-k // s) for k, s in zip(pool["window"], pool["stride"], strict=True)]
    if {*pool["dilation"]} != {1} or math.prod(held) > _MOST_WINDOWS:
        return None
    lead = len(g.shape) - len(plane)
    x, where = Expr(builder, g), Expr(builder, indices)
    flat = ops.iota.like(x, shape=(math.prod(plane),), dim=0, dtype=dtypes.i64)
    place = ops.reshape(flat, shape=(*(1,) * lead, *plane))
    wide = dtypes.f32 if g.dtype.is_float and g.dtype.bits == 16 else g.dtype
    zero = Expr(builder, builder.const(0, wide))
    total = None
    for back in itertools.product(*(range(count) for count in held)):
        here = ops.eq(_spread(where, plane, pool, back, -1), place)
        slope = _cast(_spread(x, plane, pool, back, 0), wide)
        part = ops.where(here, slope, zero)
        total = part if total is None else total + part
    found: Expr = _cast(total, g.dtype)
    return found.node


def _cast(x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else ops.cast(x, dtype=dtype)


def _spread(
    x: Expr, plane: tuple[int, ...], pool: Mapping[str, Any], back: tuple[int, ...], outside: int
) -> Any:
    """What a window has, at every place that it may hold: of the windows that begin at a place or
    before, in each dim the one `back` before the last; `outside` where there is none."""
    lead = len(x.shape) - len(plane)
    none, given = (0,) * lead, x.shape[lead:]
    sizes = list(zip(plane, given, pool["stride"], pool["pad_low"], back, strict=True))
    # the number of the last window that begins at the first place or before, and at the last place
    first = [low // s for _, _, s, low, _ in sizes]
    last = [(size - 1 + low) // s for size, _, s, low, _ in sizes]
    high = tuple(max(0, b - j + 1 - n) for b, (_, n, _, _, j) in zip(last, sizes, strict=True))
    value: Any = outside if x.dtype.is_integer else float(outside)
    padded = ops.pad(
        x, low=(*none, *back), high=(*none, *high), interior=(0,) * len(x.shape), value=value
    )
    windows = _cut(padded, lead, first, [b + 1 for b in last])
    counts = windows.shape[lead:]
    strides = pool["stride"]
    split = (*x.shape[:lead], *(n for count in counts for n in (count, 1)))
    wide = (*x.shape[:lead], *(n for pair in zip(counts, strides, strict=True) for n in pair))
    whole = (*x.shape[:lead], *(n * s for n, s in zip(counts, strides, strict=True)))
    spread = ops.reshape(ops.expand(ops.reshape(windows, shape=split), shape=wide), shape=whole)
    starts = [low % s for _, _, s, low, _ in sizes]
    return _cut(spread, lead, starts, [a + n for a, n in zip(starts, plane, strict=True)])


def _cut(x: Any, lead: int, starts: Sequence[int], stops: Sequence[int]) -> Any:
    """Slices of the trailing dims."""
    if not any(starts) and tuple(stops) == x.shape[lead:]:
        return x
    return ops.slice(
        x, starts=(*(0,) * lead, *starts), stops=(*x.shape[:lead], *stops),
        steps=(1,) * len(x.shape),
    )
