"""Views of views become one view, and views are pushed out of the way of arithmetic."""

from __future__ import annotations

from typing import Any

from ...dim import Size, is_static
from ...graph import Expr
from ...op import REGISTRY, get
from ...rewrite import Match, Pattern, Rules, p, wild
from ...types import Shape

RULES = Rules("movement")

x, y = wild("x"), wild("y")

# --- two of a kind ---------------------------------------------------------------------------


@RULES.add(p.reshape(p.reshape(x)))
def reshape_twice(m: Match) -> Any:
    return get("reshape")(m.x, shape=m.shape)


@RULES.add(p.expand(p.expand(x)))
def expand_twice(m: Match) -> Any:
    return get("expand")(m.x, shape=m.shape)


@RULES.add(p.permute(p.permute(x, name="inner")))
def permute_twice(m: Match) -> Any:
    inner = m.attr("dims", "inner")
    return get("permute")(m.x, dims=tuple(inner[d] for d in m.attr("dims")))


@RULES.add(p.flip(p.flip(x, name="inner")))
def flip_twice(m: Match) -> Any:
    dims = set(m.attr("dims")) ^ set(m.attr("dims", "inner"))
    return get("flip")(m.x, dims=tuple(sorted(dims))) if dims else m.x


@RULES.add(p.slice(p.slice(x, name="inner")))
def slice_twice(m: Match) -> Any:
    starts: list[Size] = []
    stops: list[Size] = []
    steps: list[int] = []
    for d, step in enumerate(m.attr("steps", "inner")):
        begin = m.attr("starts", "inner")[d]
        start, size = m.attr("starts")[d], m.shape[d]
        steps.append(step * m.attr("steps")[d])
        starts.append(begin + start * step)
        # the least stop that holds `size` elements stays within the inner slice
        stops.append(starts[-1] + ((size - 1) * steps[-1] + 1 if size != 0 else 0))
    return get("slice")(m.x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


@RULES.add(p.pad(p.pad(x, name="inner")))
def pad_twice(m: Match) -> Any:
    interior = (*m.attr("interior"), *m.attr("interior", "inner"))
    value, inner = m.attr("value"), m.attr("value", "inner")
    if any(interior) or value != inner or str(float(value)) != str(float(inner)):
        return None
    low = _plus(m.attr("low"), m.attr("low", "inner"))
    high = _plus(m.attr("high"), m.attr("high", "inner"))
    return get("pad")(m.x, low=low, high=high, interior=m.attr("interior"), value=value)


def _plus(a: Shape, b: Shape) -> Shape:
    return tuple(i + j for i, j in zip(a, b, strict=True))


@RULES.add(p.concat())
def concat_of_concats(m: Match) -> Any:
    dim = m.attr("dim")
    parts: list[Expr] = []
    for part in m.inputs():
        same = part.node.op.name == "concat" and part.node.attrs["dim"] == dim
        parts.extend(m.inputs(part.node) if same else [part])
    return None if len(parts) == len(m.root.inputs) else get("concat")(*parts, dim=dim)


# --- one inside another ----------------------------------------------------------------------


@RULES.add(p.slice(p.pad(x, name="inner")))
def slice_of_padding(m: Match) -> Any:
    """A slice that cuts off exactly what was padded."""
    low, steps = m.attr("low", "inner"), (*m.attr("steps"), *(
        gap + 1 for gap in m.attr("interior", "inner")
    ))
    fits = m.attr("starts") == low and m.attr("stops") == _plus(low, m.x.shape)
    return m.x if fits and all(step == 1 for step in steps) else None


@RULES.add(p.slice(p.concat(name="whole")))
def slice_of_concat(m: Match) -> Any:
    """A slice within one part of a concatenation."""
    dim = m.attr("dim", "whole")
    start, stop = m.attr("starts")[dim], m.attr("stops")[dim]
    if not is_static((start, stop)):
        return None
    begin: Size = 0
    for part in m.inputs(m.node("whole")):
        end = begin + part.shape[dim]
        if not isinstance(end, int) or not isinstance(begin, int):
            return None
        if begin <= start and stop <= end and start < stop:
            starts, stops = list(m.attr("starts")), list(m.attr("stops"))
            starts[dim], stops[dim] = start - begin, stop - begin
            return get("slice")(
                part, starts=tuple(starts), stops=tuple(stops), steps=m.attr("steps")
            )
        begin = end
    return None


@RULES.add(p.slice(p.expand(x)))
def slice_of_expand(m: Match) -> Any:
    """Slice what is not repeated, expand the rest."""
    extra = len(m.shape) - len(m.x.shape)
    starts: list[Size] = []
    stops: list[Size] = []
    steps: list[int] = []
    for d, size in enumerate(m.x.shape, extra):
        repeated = size == 1
        starts.append(0 if repeated else m.attr("starts")[d])
        stops.append(1 if repeated else m.attr("stops")[d])
        steps.append(1 if repeated else m.attr("steps")[d])
    part = get("slice")(m.x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    return m.spread(part)


# --- updates of regions: what a write through a view becomes -----------------------------------

_REGION = {
    "slice_update": ("slice", ("starts", "stops", "steps")),
    "as_strided_update": ("as_strided", ("size", "stride", "offset")),
}


def _same_region(m: Match, a: str, b: str, update: str) -> bool:
    return all(m.attr(key, a) == m.attr(key, b) for key in _REGION[update][1])


@RULES.add(p.slice(p.slice_update(x, y, name="update")))
def read_what_was_written(m: Match) -> Any:
    """The region that was written gives the source; a region beside it, what was there."""
    if _same_region(m, "", "update", "slice_update"):
        return m.y
    if _apart(m):
        return get("slice")(
            m.x, starts=m.attr("starts"), stops=m.attr("stops"), steps=m.attr("steps")
        )
    return None


def _apart(m: Match) -> bool:
    """Whether the slice at the root and the updated region are disjoint along some dim."""
    for d in range(len(m.shape)):
        low, high = m.attr("starts")[d], m.attr("stops")[d]
        begin, end = m.attr("starts", "update")[d], m.attr("stops", "update")[d]
        if is_static((low, high, begin, end)) and (high <= begin or end <= low):
            return True
    return False


@RULES.add(
    p.slice_update(p.slice_update(x, y, name="inner"), wild("z")),
    p.as_strided_update(p.as_strided_update(x, y, name="inner"), wild("z")),
)
def overwritten(m: Match) -> Any:
    """The second of two writes to one region."""
    if not _same_region(m, "", "inner", m.root.op.name):
        return None
    return m.root.op(m.x, m.z, **m.root.attrs)


@RULES.add(
    p.slice_update(x, p.slice(x, name="read")), p.as_strided_update(x, p.as_strided(x, name="read"))
)
def written_back(m: Match) -> Any:
    return m.x if _same_region(m, "", "read", m.root.op.name) else None


@RULES.add(p.slice_update(x, y))
def whole_written(m: Match) -> Any:
    whole = not any(m.attr("starts")) and m.attr("stops") == m.shape
    return m.y if whole and all(step == 1 for step in m.attr("steps")) else None


# --- views and arithmetic --------------------------------------------------------------------

_BROADCASTING = tuple(
    op.name for op in REGISTRY.values() if op.family in ("binary", "compare", "ternary")
)
_UNARY = tuple(op.name for op in REGISTRY.values() if op.family in ("unary", "cast"))


@RULES.add(*(Pattern(name) for name in _BROADCASTING))
def expand_after(m: Match) -> Any:
    """All operands expanded (or numbers): compute on what is not repeated, then expand."""
    inputs = m.inputs()
    small: list[Expr] = []
    rank = 0
    for operand in inputs:
        if operand.node.op.name == "expand":
            source = Expr(m.builder, operand.node.inputs[0])
            rank = max(rank, len(source.shape))
            small.append(source)
        elif operand.shape == ():
            small.append(operand)
        else:
            return None
    shapes = {e.shape for e in small if e.shape != ()}
    if len(shapes) > 1:
        return None
    return m.spread(m.root.op(*small))


@RULES.add(*(Pattern(name) for name in _BROADCASTING))
def drop_expand(m: Match) -> Any:
    """Elementwise operators broadcast by themselves: an operand need not be expanded first."""
    inputs = m.inputs()
    shapes = [e.shape for e in inputs]
    changed = False
    for i, operand in enumerate(inputs):
        if operand.node.op.name != "expand":
            continue
        source = Expr(m.builder, operand.node.inputs[0])
        without = [*shapes[:i], source.shape, *shapes[i + 1 :]]
        if m.shape in without and len(source.shape) <= len(m.shape):
            inputs[i], shapes, changed = source, without, True
    return m.root.op(*inputs) if changed else None


@RULES.add(*(Pattern(name, (p.expand(x),)) for name in _UNARY))
def unary_before_expand(m: Match) -> Any:
    return m.spread(m.root.op(m.x, **m.root.attrs))


@RULES.add(
    p.amax(p.expand(x, name="wide")), p.amin(p.expand(x, name="wide")),
    p.any(p.expand(x, name="wide")), p.all(p.expand(x, name="wide")),
)
def extremum_of_repeated(m: Match) -> Any:
    """An extremum over repeated dims only is one of the copies."""
    extra = len(m.node("wide").shape) - len(m.x.shape)
    for d in m.attr("dims"):
        if m.node("wide").shape[d] == 0 or not (d < extra or m.x.shape[d - extra] == 1):
            return None
    kept = [
        d for d in range(len(m.node("wide").shape)) if m.attr("keepdim") or d not in m.attr("dims")
    ]
    sizes = tuple(1 if d < extra else m.x.shape[d - extra] for d in kept)
    return m.spread(get("reshape")(m.x, shape=sizes))


@RULES.add(p.reshape(p.expand(x)))
def reshape_of_repeated_number(m: Match) -> Any:
    """One element repeated is that element repeated in any shape."""
    if any(size != 1 for size in m.x.shape):
        return None
    return m.spread(get("reshape")(m.x, shape=()))


@RULES.add(p.amax(p.amax(x, name="inner")), p.amin(p.amin(x, name="inner")))
def extremum_twice(m: Match) -> Any:
    if m.attr("keepdim") != m.attr("keepdim", "inner"):
        return None
    dims = m.attr("dims", "inner")
    outer = m.attr("dims")
    if not m.attr("keepdim"):
        rest = [d for d in range(len(m.x.shape)) if d not in dims]
        outer = tuple(rest[d] for d in outer)
    merged = tuple(sorted({*dims, *outer}))
    return m.root.op(m.x, dims=merged, keepdim=m.attr("keepdim"))


@RULES.add(p.sum(p.permute(x, name="moved")), p.amax(p.permute(x, name="moved")))
def reduce_of_permute(m: Match) -> Any:
    """Reduce first: where the order of what is left does not change, nothing is left to move."""
    moved = m.attr("dims", "moved")
    if m.attr("keepdim"):
        return None
    left = [d for i, d in enumerate(moved) if i not in m.attr("dims")]
    if left != sorted(left):
        return None
    dims = tuple(sorted(moved[i] for i in m.attr("dims")))
    if m.root.op.name == "sum" and len(dims) > 1 and [moved[i] for i in m.attr("dims")] != [*dims]:
        return None  # another order of summation
    return m.root.op(m.x, dims=dims, keepdim=False)


# --- contractions ----------------------------------------------------------------------------


def _through(dims: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order[d] for d in dims)


def _keeps_order(m: Match, side: str, order: tuple[int, ...]) -> bool:
    taken = (*m.attr(f"batch_{side}"), *m.attr(f"contract_{side}"))
    free = [order[d] for d in range(len(order)) if d not in taken]
    return free == sorted(free)


@RULES.add(
    p.dot_general(p.permute(x, name="moved"), y), p.dot_general(y, p.permute(x, name="moved"))
)
def dot_of_permuted(m: Match) -> Any:
    """A contraction names its dims: it reads a permuted operand where it lies."""
    side = "a" if m.root.inputs[0] is m.node("moved") else "b"
    order = m.attr("dims", "moved")
    if not _keeps_order(m, side, order):
        return None
    attrs = dict(m.root.attrs)
    for key in (f"batch_{side}", f"contract_{side}"):
        attrs[key] = _through(attrs[key], order)
    a, b = m.inputs()
    return m.root.op(*((m.x, b) if side == "a" else (a, m.x)), **attrs)


@RULES.add(p.permute(p.dot_general(x, y, name="dot")))
def permuted_dot(m: Match) -> Any:
    """Swapping the free dims of the two operands is swapping the operands."""
    attrs = m.node("dot").attrs
    batch = len(attrs["batch_a"])
    free_a = len(m.x.shape) - batch - len(attrs["contract_a"])
    rank = len(m.shape)
    first = list(range(batch))
    swapped = (*first, *range(batch + free_a, rank), *range(batch, batch + free_a))
    if m.attr("dims") != swapped:
        return None
    return get("dot_general")(
        m.y, m.x, **{
            **attrs, "batch_a": attrs["batch_b"], "batch_b": attrs["batch_a"],
            "contract_a": attrs["contract_b"], "contract_b": attrs["contract_a"],
        },
    )


