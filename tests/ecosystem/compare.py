"""How far apart two sides' told values are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One told value: its largest difference, relative to the greatest magnitude among torch's
    numbers, and how much the script allows. Infinite where something else than a number differs."""

    what: str
    difference: float
    within: float
    have: Any
    want: Any

    @property
    def wrong(self) -> bool:
        """Whether it differs by more than that."""
        return not self.difference <= self.within

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.difference:.2g} apart, {self.within:.2g} allowed; "
            f"graphc {str(self.have)[:300]}, torch {str(self.want)[:300]}"
        )


def compare(have: list[dict[str, Any]], want: list[dict[str, Any]]) -> list[Finding]:
    """A Finding for each told value, by name and in order; one side's alone are infinitely far."""
    found = []
    theirs: dict[str, list[dict[str, Any]]] = {}
    for told in want:
        theirs.setdefault(told["what"], []).append(told)
    for told in have:
        others = theirs.get(told["what"])
        other = others.pop(0) if others else {"value": "(not told)", "within": 0.0}
        apart = difference(told["value"], other["value"])
        within = min(told["within"], other["within"])
        found.append(Finding(told["what"], apart, within, told["value"], other["value"]))
    left = [told for others in theirs.values() for told in others]
    return found + [Finding(t["what"], math.inf, 0.0, "(not told)", t["value"]) for t in left]


def difference(have: Any, want: Any) -> float:
    """The largest difference of two nested values' numbers over the greatest magnitude in `want`;
    infinite where keys, lengths, texts or kinds differ, or one alone is not finite."""
    pairs = list(_leaves(have, want))
    if any(not _is_number(a) or not _is_number(b) for a, b in pairs if not _same(a, b)):
        return math.inf
    numbers = [(float(a), float(b)) for a, b in pairs if _is_number(a) and _is_number(b)]
    apart = [abs(a - b) for a, b in numbers if not _same(a, b)]
    if not apart:
        return 0.0
    if not all(math.isfinite(a) for a in apart):
        return math.inf
    most = max(abs(b) for _, b in numbers if math.isfinite(b))
    return max(apart) / most if most else math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(a: Any, b: Any) -> bool:
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return both_nan or (isinstance(a, bool) is isinstance(b, bool) and a == b)


def _leaves(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """What stands in the same place of both; a pair that is never equal where structures differ."""
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        for key in a:
            yield from _leaves(a[key], b[key])
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            yield from _leaves(x, y)
    elif isinstance(a, (dict, list)) or isinstance(b, (dict, list)):
        yield "one structure", "another"
    else:
        yield a, b
