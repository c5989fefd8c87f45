"""What a model relies on of its free sizes. An ONNX file has no ranges and no guards, and other
sizes would give other numbers than the model does: so the file itself refuses them.

A Gather beyond the end of a vector fails where a fact does not hold; its name says the fact. What
it gives otherwise, 0, is where the input begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphc.export.dynamic import Range
from graphc.ir import dtypes
from graphc.ir.dim import Dim, DimEnv, Guard, Size, substitute, unwrap

from .sizes import holds

if TYPE_CHECKING:
    from .writer import Writer

_TRIED = 4096  # sizes, all of which are tried
_ALL = 2**63 - 1  # an end of Slice that is behind every element


def relied_on(w: Writer, env: DimEnv, ranges: Mapping[str, Range]) -> dict[str, str]:
    """Inputs by name, as values that fail unless what `env` relies on holds."""
    facts = [guard for guard in env.guards if not follows(guard, ranges)]
    facts += [
        Guard("le", 2, Dim.var(name), True) for name, bounds in ranges.items()
        if bounds.least == 2 and name in w.places
    ]
    by_place: dict[tuple[str, int], list[str]] = {}
    for fact in facts:
        names = sorted(_variables(fact.left) | _variables(fact.right))
        if names and names[0] in w.places:
            by_place.setdefault(w.places[names[0]], []).append(_refusing(w, fact))
    found: dict[str, str] = {}
    for (name, dim), zeros in by_place.items():
        start = zeros[0]
        for zero in zeros[1:]:
            start = w.emit("Add", start, zero)
        found[name] = w.emit(
            "Slice", found.get(name, name), start, w.ints([_ALL]), w.ints([dim])
        )
    return found


def _refusing(w: Writer, fact: Guard) -> str:
    """[0] where the fact holds; elsewhere there is no result."""
    wrong = w.cast(w.emit("Not", holds(w, fact)), dtypes.i64)
    zero: str = w.emit("Gather", w.ints([0]), wrong)
    w.nodes[-1].name = w.name(f"this model holds only where {w.labelled(fact.text())}")
    return zero


def _variables(size: Size) -> frozenset[str]:
    return size.variables() if isinstance(size, Dim) else frozenset()


def follows(guard: Guard, ranges: Mapping[str, Range]) -> bool:
    """Whether a fact follows from the ranges alone; it may where this says no."""
    names = _variables(guard.left) | _variables(guard.right)
    if len(names) != 1:
        return False
    (name,) = names
    bounds = ranges.get(name)
    if bounds is None:
        return False
    if bounds.most is not None and bounds.most - bounds.least <= _TRIED:
        return all(guard.check({name: n}) for n in range(bounds.least, bounds.most + 1))
    return _grows(guard, name, bounds)


def _grows(guard: Guard, name: str, bounds: Range) -> bool:
    """left <= right holds for all sizes where it holds for the least, and the difference is a
    multiple of the size."""
    if guard.relation != "le" or not guard.holds:
        return False
    rest: Any = unwrap(guard.right - guard.left)
    slope = unwrap(substitute(rest, {name: Dim.var(name) + 1}) - rest)
    return isinstance(slope, int) and slope >= 0 and guard.check({name: bounds.least})
