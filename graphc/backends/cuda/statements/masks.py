"""Conditions of loads that come out alike for a whole pack of lanes: bounds that are multiples of
the pack's width, as those of paddings and of parts of a concat mostly are."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.backends.cuda.statements.steps import divides, pack_start, step
from graphc.ir.dim import Dim, Size, substitute, unwrap
from graphc.ir.kernel import Apply, IndexValue, Literal, Load, Scalar, Var, walk

_MOST = 64  # scalars of a condition
_LOGIC = ("logical_and", "logical_or", "logical_not", "where")
# a op b as (a - b) op' c, or its contrary, op' being "no less than"
_FROM = {"ge": 0, "lt": 0, "gt": 1, "le": 1}


def spelled_out(
    mask: Scalar, bound: Mapping[str, Scalar], lets: Mapping[str, Size], varying: frozenset[str]
) -> Scalar | None:
    """A condition without names that are bound in a vector loop: `bound` are their scalars, `lets`
    their integers. None where it takes what is loaded, or is one of the `varying` names."""
    size = 0

    def replaced(scalar: Scalar) -> Scalar | None:
        nonlocal size
        size += 1
        if size > _MOST or isinstance(scalar, Load):
            return None
        if isinstance(scalar, IndexValue):
            index = substitute(scalar.index, lets)
            if isinstance(index, Dim) and index.variables() & varying:
                return None
            return IndexValue(index, scalar.dtype)
        if isinstance(scalar, Var):
            if scalar.name in bound:
                return replaced(bound[scalar.name])
            return None if scalar.name in varying else scalar
        if isinstance(scalar, Apply):
            args = [replaced(arg) for arg in scalar.args]
            known = [arg for arg in args if arg is not None]
            return Apply(scalar.op, tuple(known), scalar.dtype) if len(known) == len(args) else None
        return scalar

    return replaced(mask)


def is_uniform(mask: Scalar, var: str, width: int) -> bool:
    """Whether a condition, spelled out, is the same for `width` lanes from a multiple of it on."""
    if not isinstance(mask, Apply):
        return all(
            step(part.index, var, width) == 0
            for part in walk.parts((mask,)) if isinstance(part, IndexValue)
        )
    if all(is_uniform(arg, var, width) for arg in mask.args):
        return True
    if mask.op in _LOGIC or mask.op not in _FROM:
        return False
    sides = [_index(arg) for arg in mask.args]
    if sides[0] is None or sides[1] is None:
        return False
    gap, start = unwrap(sides[0] - sides[1]), _FROM[mask.op]
    by = step(gap, var, width)
    if by == -1:  # b - a, the other way round
        gap, start, by = unwrap(-1 * gap), 1 - start, 1
    return by == 1 and divides(width, unwrap(pack_start(gap, var, width) - start))


def _index(scalar: Scalar) -> Size | None:
    if isinstance(scalar, IndexValue):
        return scalar.index
    if isinstance(scalar, Literal) and isinstance(scalar.value, int):
        return int(scalar.value)
    return None
