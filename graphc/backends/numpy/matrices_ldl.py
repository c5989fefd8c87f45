"""L D L^H with the pivots of Bunch and Kaufman (Math. Comp. 31, 1977), as LAPACK stores them.

D has blocks of 1 and 2. pivots[k] = p + 1: rows k and p were swapped before a block of 1; two
equal pivots -(p + 1): rows k + 1 and p were, before a block of 2 at k and k + 1.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from .common import Array, Function

_ALPHA = (1 + math.sqrt(17)) / 8  # bounds the growth of elements


def _size(x: Array) -> Array:
    """|re| + |im|, by which LAPACK compares."""
    return np.asarray(np.abs(x.real) + np.abs(x.imag))


def _pivot(a: Array, k: int, hermitian: bool) -> tuple[int, int]:
    """The row to swap in, and the size of the block at k; (-1, 1) for a column of zeros."""
    corner = abs(a[k, k].real) if hermitian else float(_size(a[k, k]))
    below = _size(a[k + 1 :, k])
    best = k + 1 + int(np.argmax(below)) if below.size else k
    column = float(below[best - k - 1]) if below.size else 0.0
    if not max(corner, column) > 0:
        return -1, 1
    if corner >= _ALPHA * column:
        return k, 1
    row = max(
        float(_size(a[best, k:best]).max(initial=0)),
        float(_size(a[best + 1 :, best]).max(initial=0)),
    )
    if corner >= _ALPHA * column * (column / row):
        return k, 1
    middle = abs(a[best, best].real) if hermitian else float(_size(a[best, best]))
    return (best, 1) if middle >= _ALPHA * row else (best, 2)


def _swap(a: Array, k: int, at: int, other: int, hermitian: bool) -> None:
    """Rows and columns `at` < `other` of the lower triangle from column k on."""
    a[other + 1 :, [at, other]] = a[other + 1 :, [other, at]]
    inner = a[at + 1 : other, at].copy()
    across = a[other, at + 1 : other].copy()
    a[at + 1 : other, at] = across.conj() if hermitian else across
    a[other, at + 1 : other] = inner.conj() if hermitian else inner
    if hermitian:
        a[other, at] = a[other, at].conj()
    a[at, at], a[other, other] = a[other, other], a[at, at]
    a[[at, other], k:at] = a[[other, at], k:at]


def _eliminate(a: Array, k: int, step: int, hermitian: bool) -> None:
    """Subtract what the block at k says of the rest, and leave L in its columns."""
    rest = slice(k + step, None)
    if a[rest, k].size == 0:
        return
    block = a[k : k + step, k : k + step].copy()
    if step == 2:
        block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
    columns = a[rest, k : k + step].copy()
    lower = np.linalg.solve(block.T, columns.T).T
    other = columns.conj() if hermitian else columns
    a[rest, rest] -= np.tril(lower @ other.T)
    a[rest, k : k + step] = lower


def _factor_one(a: Array, hermitian: bool) -> tuple[Array, Array, int]:
    a = np.tril(a)
    n = a.shape[0]
    pivots = np.zeros(n, np.int32)
    k = info = 0
    while k < n:
        if hermitian:
            a[k, k] = a[k, k].real
        at, step = _pivot(a, k, hermitian)
        if at < 0:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + step - 1
        if at != last:
            _swap(a, k, last, at, hermitian)
        if hermitian:
            diagonal = np.arange(k, n)
            a[diagonal, diagonal] = a[diagonal, diagonal].real
        _eliminate(a, k, step, hermitian)
        pivots[k : k + step] = at + 1 if step == 1 else -(at + 1)
        k += step
    return a, pivots, info


def _solve_one(a: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    x, n = b.copy(), a.shape[0]
    blocks, k = [], 0
    while k < n:
        step = 1 if pivots[k] > 0 else 2
        blocks.append((k, step, abs(int(pivots[k])) - 1))
        k += step
    for k, step, at in blocks:
        last = k + step - 1
        x[[last, at]] = x[[at, last]]
        x[k + step :] -= a[k + step :, k : k + step] @ x[k : k + step]
    for k, step, at in reversed(blocks):
        block = a[k : k + step, k : k + step].copy()
        if step == 2:
            block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
        below = a[k + step :, k : k + step]
        x[k : k + step] = np.linalg.solve(block, x[k : k + step])
        x[k : k + step] -= (below.conj() if hermitian else below).T @ x[k + step :]
        last = k + step - 1
        x[[last, at]] = x[[at, last]]
    return x


def _factor(a: Array, *, hermitian: bool) -> tuple[Array, Array, Array]:
    found, pivots = np.empty(a.shape, a.dtype), np.empty(a.shape[:-1], np.int32)
    info = np.zeros(a.shape[:-2], np.int32)
    for index in product(*(range(n) for n in a.shape[:-2])):
        found[index], pivots[index], info[index] = _factor_one(a[index], hermitian)
    return found, pivots, info


def _solve(a: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    found = np.empty(b.shape, b.dtype)
    for index in product(*(range(n) for n in b.shape[:-2])):
        found[index] = _solve_one(a[index], pivots[index], b[index], hermitian)
    return found


TABLE: dict[str, Function] = {"linalg_ldl_factor": _factor, "linalg_ldl_solve": _solve}
