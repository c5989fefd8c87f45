"""Routines of BLAS and LAPACK that NumPy does not hand on, of the OpenBLAS that its wheels bring
along: triangular systems and LU; and Cholesky's, of rows as they lie. Where that is another
library, there are none.

Source: https://netlib.org/lapack/explore-html (trsm, getrf, potrf); integers have 64 bits.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from .blas import _libraries
from .common import Array

_LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}
_ROWS, _LEFT, _UPPER, _LOWER, _AS_IT_IS, _ANY, _UNIT = 101, 141, 121, 122, 111, 131, 132


def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> bool:
    """Solve a x = b of equally many row-major of matrices of one dtype, in b. False: nothing has
    happened, because there is no such routine, or a pivot is so small that it has no inverse, or
    the matrices are many and small: whoever goes along the rows of all at once is quicker."""
    function = _trsm(a.dtype.str[1:])
    if function is None or b.size == 0:
        return function is not None
    if a.size > 2 * a.shape[-1] ** 3:  # more of them than twice their rows
        return False
    if not unit and np.abs(a.diagonal(0, -2, -1)).min() < np.finfo(a.dtype).tiny:
        return False
    n, columns = b.shape[-2:]
    how = _ROWS, _LEFT, _UPPER if upper else _LOWER, _AS_IT_IS, _UNIT if unit else _ANY, n, columns
    one: Any = np.ones((), a.dtype)
    alpha = one.ctypes.data if a.dtype.kind == "c" else 1.0
    matrix, right, width = a.ctypes.data, b.ctypes.data, a.itemsize
    for _ in range(b.size // (n * columns)):
        function(*how, alpha, matrix, n, right, columns)
        matrix, right = matrix + n * n * width, right + n * columns * width
    return True


def lu(a: Array) -> tuple[Array, Array, int] | None:
    """Both factors in one matrix, the pivots (from 1), and the first that is 0 (0: none)."""
    function = _getrf(a.dtype.str[1:])
    if function is None or 0 in a.shape:
        return None
    found = np.array(a, order="F")
    pivots = np.empty(min(a.shape), np.int64)
    rows, columns, info = (ctypes.c_int64(n) for n in (*a.shape, 0))
    sizes = ctypes.byref(rows), ctypes.byref(columns)
    function(*sizes, found.ctypes.data, ctypes.byref(rows), pivots.ctypes.data, ctypes.byref(info))
    return np.ascontiguousarray(found), pivots.astype(np.int32), int(info.value)


def cholesky(a: Array) -> Array | None:
    """L of each matrix of a batch; None where there is no such routine, or one of them has no L.
    The lower triangle of rows is the upper one of columns, and L^T lies there as L does here."""
    function = _potrf(a.dtype.str[1:])
    if function is None or a.size == 0:
        return None
    found = np.array(a, order="C")
    n, info = ctypes.c_int64(a.shape[-1]), ctypes.c_int64(0)
    size, place, step = ctypes.byref(n), found.ctypes.data, n.value * n.value * a.itemsize
    for at in range(found.size // (n.value * n.value)):
        function(b"U", size, place + at * step, size, ctypes.byref(info))
        if info.value:
            return None
    known = np.isfinite(found.diagonal(0, -2, -1)).all()
    return np.tril(found) if known else None


@functools.cache
def _trsm(kind: str) -> Any:
    found = _function(f"scipy_cblas_{_LETTERS.get(kind)}trsm64_")
    if found is not None:
        enum, size, place = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
        alpha: Any = {"f4": ctypes.c_float, "f8": ctypes.c_double}.get(kind, place)
        found.argtypes = [*[enum] * 5, size, size, alpha, place, size, place, size]
        found.restype = None
    return found


@functools.cache
def _getrf(kind: str) -> Any:
    found = _function(f"scipy_{_LETTERS.get(kind)}getrf_64_")
    if found is not None:
        found.argtypes, found.restype = [ctypes.c_void_p] * 6, None
    return found


@functools.cache
def _potrf(kind: str) -> Any:
    found = _function(f"scipy_{_LETTERS.get(kind)}potrf_64_")
    if found is not None:
        found.argtypes, found.restype = [ctypes.c_char_p, *[ctypes.c_void_p] * 4], None
    return found


def _function(name: str) -> Any:
    for library in _libraries():
        found = getattr(library, name, None)
        if found is not None:
            return found
    return None
