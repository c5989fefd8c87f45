"""What a template sums, term by term: its default lowering, for a backend that has no code of its
own for it."""

from __future__ import annotations

from typing import NamedTuple

from ...dim import Size, floordiv, mod, unwrap


class Term(NamedTuple):
    """left * right for one place (b, m, n) and one value of each of `axes`, (variable, extent).

    The indices are over b, m, n and the axes. Where one of `inside`, (position, size), is not
    0 <= position < size, the term is in the padding: the right operand is not read, and is 0.
    """

    axes: tuple[tuple[str, Size], ...]
    left: Size
    right: Size
    inside: tuple[tuple[Size, Size], ...] = ()


def unravelled(flat: Size, sizes: tuple[Size, ...]) -> list[Size]:
    """The coordinates of a flat position, row-major."""
    found: list[Size] = []
    for size in reversed(sizes[1:]):
        found.insert(0, unwrap(mod(flat, size)))
        flat = unwrap(floordiv(flat, size))
    return [flat, *found]


def ravelled(coordinates: list[Size], sizes: tuple[Size, ...]) -> Size:
    """The flat position of coordinates, row-major."""
    flat: Size = 0
    for at, size in zip(coordinates, sizes, strict=True):
        flat = flat * size + at
    return unwrap(flat)

