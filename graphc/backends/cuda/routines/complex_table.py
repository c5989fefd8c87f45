"""Operators on complex numbers that have no rule in real ones (ir/passes/pair_rules.py): they stay
on the GPU. As the NumPy backend has them, in what CuPy's arrays do themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.backends.cuda.routines.library import CuPy

Array = Any  # cupy.ndarray
Function = Callable[..., Any]


def _applied(name: str) -> Function:
    """One of CuPy's functions of arrays alone."""
    return lambda library, *arrays: getattr(library.cupy, name)(*arrays)


def _pad(
    library: CuPy, x: Array, *, low: Sequence[int], high: Sequence[int], interior: Sequence[int],
    value: Any,
) -> Array:
    shape, where = [], []
    for n, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        body = n + (n - 1) * gap
        shape.append(before + body + after)
        where.append(slice(before, before + body, gap + 1))
    result = library.cupy.full(tuple(shape), value, x.dtype)
    result[tuple(where)] = x
    return result


COMPLEX: Mapping[str, Function] = {
    **{name: _applied(name) for name in ("log", "sqrt", "sin", "cos")}, "pad": _pad,
}
