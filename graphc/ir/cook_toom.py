"""Winograd's short convolutions: the matrices of F(m, r), and how far their results may be off.

`tile` neighbouring results of a correlation with `window` taps are y = A^T (G g * B^T d): each of
tile + window - 1 products has a point of its own, at which Cook's and Toom's algorithm evaluates
polynomials; one point is infinity. In two dims a tile and its filter are transformed along both.
Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), arxiv.org/abs/1509.09308;
points and errors: Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and Improving the
Accuracy of Winograd Convolution (2018), arxiv.org/abs/1803.10986.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from .late import late
from .named import NamedTuple

if TYPE_CHECKING:
    import fractions
else:
    fractions = late("fractions")

Matrix: TypeAlias = "tuple[tuple[fractions.Fraction, ...], ...]"

# By how many finite points there are: zero, and pairs p, -p whose halves of a sum are the same.
# With 1/p for each p, and powers of two alone, B and A are exact, and errors grow least.
_POINTS: dict[int, tuple[float, ...]] = {
    3: (0, 1, -1), 5: (0, 2, -2, 0.5, -0.5), 7: (0, 1, -1, 2, -2, 0.5, -0.5),
}


class Transforms(NamedTuple):
    """A^T [tile, size], G [size, window] and B^T [size, size], of size = tile + window - 1."""

    output: Matrix
    filter: Matrix
    input: Matrix


def has_transforms(tile: int, window: int) -> bool:
    """Whether there are points for F(tile, window)."""
    return tile > 1 and window > 1 and tile + window - 2 in _POINTS


@cache
def transforms(tile: int, window: int) -> Transforms:
    """The matrices of F(tile, window), exact."""
    points = [fractions.Fraction(point) for point in _POINTS[tile + window - 2]]
    one, none = fractions.Fraction(1), fractions.Fraction(0)
    values: list[tuple[fractions.Fraction, ...]] = []
    taps: list[tuple[fractions.Fraction, ...]] = []
    for point in points:
        others = [p for p in points if p != point]
        scale = math.prod((point - p for p in others), start=one)
        values.append((*_polynomial(others), none))
        taps.append(tuple([point**k / scale for k in range(window)]))
    values.append(_polynomial(points))
    taps.append(tuple([one if k == window - 1 else none for k in range(window)]))
    results = tuple([
        (*(point**k for point in points), one if k == tile - 1 else none) for k in range(tile)
    ])
    return Transforms(results, tuple(taps), tuple(values))


def _polynomial(roots: Sequence[fractions.Fraction]) -> tuple[fractions.Fraction, ...]:
    """The coefficients of the product of (x - root), from that of 1 on."""
    found, none = [fractions.Fraction(1)], fractions.Fraction(0)
    for root in roots:
        pairs = zip([none, *found], [*found, none], strict=True)
        found = [a - root * b for a, b in pairs]
    return tuple(found)


@cache
def growth(tile: int, window: int) -> fractions.Fraction:
    """How much larger the sum of the terms' magnitudes can be than that of the direct sum's, in
    two dims: the largest, over results and taps, of |A^T| (|G| * |B^T| 1)."""
    a, g, b = transforms(tile, window)
    none = fractions.Fraction(0)
    each = max(
        sum((abs(row[i] * g[i][tap]) * sum(map(abs, b[i])) for i in range(len(b))), none)
        for row in a for tap in range(window)
    )
    return each**2


def _most_terms(matrix: Matrix) -> int:
    return max(sum(number != 0 for number in row) for row in matrix)


def error_bound(tile: int, window: int, channels: int, unit: float) -> float:
    """How far a result can be off, relative to (the largest |x| that its tile reads) * (the sum of
    its filter's |w|), for sums over so many channels in arithmetic that rounds by `unit`.

    Each term goes through as many roundings as there are terms in a row of each matrix, twice, one
    for a number of G that is no float, one for the product, and those of the sum over channels, in
    whatever order (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1). Numbers that
    underflow are not counted.
    """
    a, g, b = transforms(tile, window)
    steps = 2 * (_most_terms(a) + _most_terms(g) + 1 + _most_terms(b)) + channels
    each = steps * unit
    return math.inf if each >= 1 else float(growth(tile, window)) * each / (1 - each)
