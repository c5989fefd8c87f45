"""What is known of symbolic sizes whatever their named dims are, of 2 and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.ir.dim import Atom, Size


def decided(relation: str, left: Size, right: Size) -> bool | None:
    """Whether a relation ("eq" or "le") holds or not whatever the named dims are, of 2 and more;
    None where that hangs on them."""
    if relation == "divides":
        return None
    more, less = least(right - left), least(left - right)
    if relation == "le":
        return True if more >= 0 else False if less > 0 else None
    return False if more > 0 or less > 0 else True if left == right else None


def least(value: Size, named: int = 2) -> int:
    """A lower bound of a size in which every named dim is at least `named`; -1 where none is
    seen."""
    if isinstance(value, int):
        return value
    # every factor as its least value and a rest that is 0 or more: m*n - m is 2 + m' + 2*n' + m'*n'
    total: dict[tuple[str, ...], int] = {}
    for monomial, coefficient in value.terms:
        parts: dict[tuple[str, ...], int] = {(): coefficient}
        for atom in (atom for atom, power in monomial for _ in range(power)):
            low = _least_atom(atom, named)
            if low < 0 or len(parts) > _MOST_PARTS:
                return -1
            grown: dict[tuple[str, ...], int] = {}
            for rests, count in parts.items():
                more = tuple(sorted((*rests, atom.text())))
                grown[more] = grown.get(more, 0) + count
                grown[rests] = grown.get(rests, 0) + count * low
            parts = grown
        for rests, count in parts.items():
            total[rests] = total.get(rests, 0) + count
    if any(count < 0 for rests, count in total.items() if rests):
        return -1
    return max(total.get((), 0), -1)


_MOST_PARTS = 64  # of one product


def _least_atom(atom: Atom, named: int) -> int:
    if atom.kind == "var":
        return named
    left, right = (least(argument, named) for argument in atom.args)
    if atom.kind in ("min", "max"):
        return min(left, right) if atom.kind == "min" else max(left, right)
    # of a positive divisor
    return 0 if right > 0 and (atom.kind == "mod" or left >= 0) else -1
