"""Where an element comes from: coordinates through reshapes, permutes, slices and broadcasts.

The coordinate along one dimension is a row-major list of digits; a digit is `(root // div) %
size` of a root expression (usually a loop variable). A reshape only regroups digits, so no
division is written unless a loop variable itself has to be taken apart, and digits of one root
that come together again merge back into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ...dim import Dim, Size, floordiv, mod, product, rejoined, substitute, unwrap
from ...record import record
from ...types import Shape


@record
class Digit:
    """`(root // div) % size`, where 0 <= root < total."""

    root: Size
    total: Size
    div: Size
    size: Size

    def value(self) -> Size:
        """The digit as an index expression."""
        value = self.root if self.div == 1 else floordiv(self.root, self.div)
        return value if self.div * self.size == self.total else mod(value, self.size)


Coordinate: TypeAlias = tuple[Digit, ...]  # empty: always 0
Coordinates: TypeAlias = tuple[Coordinate, ...]  # one per dimension


def coordinate_value(coordinate: Coordinate) -> Size:
    """One coordinate as an index expression."""
    return _sum_digits(_with_strides(coordinate, 1))


def linear_index(coordinates: Coordinates, shape: Shape) -> Size:
    """The element offset in a contiguous tensor of `shape`."""
    terms: list[tuple[Digit, Size]] = []
    stride: Size = 1
    for coordinate, size in zip(reversed(coordinates), reversed(shape), strict=True):
        terms[:0] = _with_strides(coordinate, stride)
        stride = stride * size
    return _sum_digits(terms)


def _with_strides(coordinate: Coordinate, stride: Size) -> list[tuple[Digit, Size]]:
    terms: list[tuple[Digit, Size]] = []
    for digit in reversed(coordinate):
        terms.append((digit, stride))
        stride = stride * digit.size
    terms.reverse()
    return terms


def _sum_digits(terms: Iterable[tuple[Digit, Size]]) -> Size:
    """The sum of digit * stride; neighbours that are parts of one root are joined first."""
    joined: list[tuple[Digit, Size]] = []
    for digit, stride in terms:
        while joined:
            outer, outer_stride = joined[-1]
            if outer_stride != stride * digit.size or not _continues(outer, digit):
                break
            digit = _join(outer, digit)
            joined.pop()
        joined.append((digit, stride))
    total: Size = 0
    for digit, stride in joined:
        total = total + digit.value() * stride
    return rejoined(unwrap(total))


def _continues(outer: Digit, inner: Digit) -> bool:
    """True where the two are neighbouring parts of one root."""
    return (
        outer.div == inner.div * inner.size
        and outer.root == inner.root
        and outer.total == inner.total
    )


def _join(outer: Digit, inner: Digit) -> Digit:
    return Digit(inner.root, inner.total, inner.div, outer.size * inner.size)


def quotient(a: Size, b: Size) -> Size | None:
    """a / b where b divides a for every value of the named dims, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if b == 1:
        return a
    if mod(a, b) != 0:
        return None
    result = floordiv(a, b)
    return None if has_division(result) else result


def has_division(value: Size) -> bool:
    """True if an expression holds a floor-division or a modulo."""
    if isinstance(value, int):
        return False
    return any(atom.kind in ("floordiv", "mod") for m, _ in value.terms for atom, _ in m)


# --- movement operators on coordinates ----------------------------------------------------------


def reshape(coordinates: Coordinates, shape: Shape) -> Coordinates:
    """Coordinates in a tensor of `shape` for coordinates in one with the same elements.

    The digits' sizes must multiply to those of the shape: every dim larger than 1 has digits.
    """
    if 0 in shape:  # no element: never evaluated
        return tuple((Digit(0, size, 1, size),) if size != 1 else () for size in shape)
    digits = [d for coordinate in coordinates for d in coordinate]
    result: list[Coordinate] = []
    for size in reversed(shape):
        taken: list[Digit] = []
        while size != 1:
            if not digits:
                return _through_flat(coordinates, shape)
            digit = digits.pop()
            rest = quotient(size, digit.size)
            if rest is not None:
                taken.append(digit)
                size = rest
                continue
            outer = quotient(digit.size, size)
            if outer is not None:
                digits.append(Digit(digit.root, digit.total, digit.div * size, outer))
                taken.append(Digit(digit.root, digit.total, digit.div, size))
                break
            if not digits:
                return _through_flat(coordinates, shape)
            digits.append(_merged(digits.pop(), digit))
        result.append(tuple(reversed(taken)))
    return tuple(reversed(result))


def part(coordinates: Coordinates, dim: int, start: Size, size: Size) -> Coordinates | None:
    """Coordinates in a part of a tensor, which begins at `start` of a dim, as digits of one root,
    where that dim is the outermost digit of one that has inner digits, too; else None."""
    if len(coordinates[dim]) != 1:
        return None
    (outer,) = coordinates[dim]
    if outer.div == 1 or outer.div * outer.size != outer.total:
        return None
    root, total = unwrap(outer.root - start * outer.div), unwrap(size * outer.div)
    found = list(coordinates)
    found[dim] = (Digit(root, total, outer.div, size),)
    for d in range(dim + 1, len(found)):
        found[d] = tuple([
            Digit(root, total, x.div, x.size)
            if (x.root, x.total) == (outer.root, outer.total)
            and quotient(outer.div, x.div * x.size) is not None else x
            for x in found[d]
        ])
    return tuple(found)


def _through_flat(coordinates: Coordinates, shape: Shape) -> Coordinates:
    """The same by way of the flat index, where symbolic sizes hide which dims fit together."""
    digits = tuple(d for coordinate in coordinates for d in coordinate)
    if len(digits) == 1 and digits[0].div == 1 and digits[0].size == digits[0].total:
        return unravel(digits[0].root, shape)
    return unravel(coordinate_value(digits), shape)


def _merged(outer: Digit, inner: Digit) -> Digit:
    """Two digits as one."""
    if _continues(outer, inner):
        return _join(outer, inner)
    size = outer.size * inner.size
    return Digit(outer.value() * inner.size + inner.value(), size, 1, size)


def unravel(flat: Size, shape: Shape) -> Coordinates:
    """Coordinates of a flat element offset."""
    total = unwrap(product(shape))
    result: list[Coordinate] = []
    for i, size in enumerate(shape):
        div = unwrap(product(shape[i + 1 :]))
        result.append(() if size == 1 else (Digit(flat, total, div, size),))
    return tuple(result)


def broadcast(coordinates: Coordinates, shape: Shape) -> Coordinates:
    """Coordinates in an operand of `shape` that is broadcast (aligned at the last dim)."""
    extra = len(coordinates) - len(shape)
    return tuple(
        () if isinstance(size, int) and size == 1 else coordinate
        for coordinate, size in zip(coordinates[extra:], shape, strict=True)
    )


def permute(coordinates: Coordinates, dims: Sequence[int]) -> Coordinates:
    """Coordinates in x for coordinates in permute(x, dims)."""
    result: list[Coordinate] = [()] * len(dims)
    for i, d in enumerate(dims):
        result[d] = coordinates[i]
    return tuple(result)


def slice_(
    coordinates: Coordinates, shape: Shape, starts: Shape, stops: Shape, steps: Sequence[int]
) -> Coordinates:
    """Coordinates in x for coordinates in x[starts:stops:steps]."""
    result: list[Coordinate] = []
    for coordinate, size, start, stop, step in zip(
        coordinates, shape, starts, stops, steps, strict=True
    ):
        if start == 0 and step == 1 and stop == size:
            result.append(coordinate)
        else:
            result.append(exact(unwrap(start + coordinate_value(coordinate) * step), size))
    return tuple(result)


def exact(value: Size, size: Size) -> Coordinate:
    """An arbitrary expression in [0, size) as the coordinate of a dim."""
    return () if size == 1 else (Digit(value, size, 1, size),)


def flip(coordinates: Coordinates, shape: Shape, dims: Sequence[int]) -> Coordinates:
    """Coordinates in x for coordinates in flip(x, dims)."""
    return tuple(
        exact(unwrap(size - 1 - coordinate_value(c)), size) if i in dims else c
        for i, (c, size) in enumerate(zip(coordinates, shape, strict=True))
    )


# --- affine index expressions ------------------------------------------------------------------


def coefficient(index: Size, var: str) -> Size | None:
    """c where index = c*var + rest, rest free of var; 0 where var is absent; None otherwise.

    c may be symbolic (a product of named dims), never a function of another loop variable
    unless the caller's index is such a product.
    """
    if isinstance(index, int):
        return 0
    total: Size = 0
    for monomial, c in index.terms:
        power_of_var = 0
        rest: Size = c
        for atom, power in monomial:
            if atom.kind == "var":
                if atom.name == var:
                    power_of_var = power
                else:
                    for _ in range(power):
                        rest = rest * Dim.var(atom.name)
            elif any(var in arg.variables() for arg in atom.args):
                return None
            else:
                rest = rest * Dim((((((atom, power),)), 1),))
        if power_of_var > 1:
            return None
        if power_of_var:
            total = total + rest
    return unwrap(total)


def common_cuts(shapes: Iterable[Shape]) -> list[Size]:
    """Sizes of axes, outermost first, fine enough that every shape's dims are runs of axes.

    All shapes have the same number of elements. Cuts that do not fit with those found before
    (6x4 against 4x6) are left out: such dims cost a division.
    """
    axes: list[Size] | None = None
    for shape in shapes:
        sizes = [s for s in shape if s != 1]
        axes = sizes if axes is None else _refine(axes, sizes)
    return axes or []


def _refine(axes: list[Size], sizes: list[Size]) -> list[Size]:
    result: list[Size] = []
    i = len(axes) - 1
    j = len(sizes) - 1
    a: Size = axes[i] if axes else 1
    b: Size = sizes[j] if sizes else 1
    while i >= 0 and j >= 0:
        if a == b:
            result.append(a)
            i, j = i - 1, j - 1
            a, b = axes[i] if i >= 0 else 1, sizes[j] if j >= 0 else 1
            continue
        rest = quotient(a, b)
        if rest is not None:
            result.append(b)
            a, j = rest, j - 1
            b = sizes[j] if j >= 0 else 1
            continue
        rest = quotient(b, a)
        if rest is None:
            return axes
        result.append(a)
        b, i = rest, i - 1
        a = axes[i] if i >= 0 else 1
    result.reverse()
    return result if product(result) == product(axes) else axes


def substitute_hints(size: Size, hints: dict[str, int]) -> int:
    """A size with every variable replaced by a guess (64 where there is none)."""
    if isinstance(size, int):
        return size
    result = substitute(size, {name: hints.get(name, 64) for name in size.variables()})
    return result if isinstance(result, int) else 64
