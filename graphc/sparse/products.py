"""Products of sparse matrices with dense ones, and what lies at the entries of a dense product.

Each is the other's gradient: of C = A B, with A's entries v at rows r and columns c,

    C[r] += v B[c]      dB[c] += v dC[r]      dv = sum of dC[r] * B[c] along a row

Much of it is done by compiled code (kernels.py), little by NumPy.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.function import Function
from ..frontend.tensor import Tensor, from_array
from .conversions import coalesced, is_sparse, summed, to_coo
from .patterns import Pattern
from .tensor import SparseTensor, entries, sparse

_MANY = 1 << 15  # numbers that are multiplied, from which on compiled code is worth its call
_ROWS = 1 << 16  # numbers of rows that NumPy gathers at a time


@functools.cache
def _kernels() -> Any:
    """The compiler's side, imported when it is first asked for."""
    return importlib.import_module(".kernels", __package__)


class Product(Function):
    """[size, width]: of each row, the sum of its entries times those rows of `dense`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, dense: Tensor, rows: np.ndarray, columns: np.ndarray, size: int
    ) -> Tensor:
        ctx.save_for_backward(values, dense)
        ctx.rows, ctx.columns, ctx.size = rows, columns, size
        return from_array(_rounded(_product, values._array, dense._array, rows, columns, size))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        values, dense = ctx.saved_tensors
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            of_values = Sampled.apply(gradient, _conjugate(dense), ctx.rows, ctx.columns)
        if ctx.needs_input_grad[1]:
            count = int(dense.shape[0])
            of_dense = Product.apply(_conjugate(values), gradient, ctx.columns, ctx.rows, count)
        return of_values, of_dense, None, None, None


class Sampled(Function):
    """[entries]: of each, the sum of the products of a row of `left` and one of `right`."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, rows: np.ndarray, columns: np.ndarray
    ) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.rows, ctx.columns = rows, columns
        return from_array(_rounded(_sampled, left._array, right._array, rows, columns))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        left, right = ctx.saved_tensors
        rows, columns, found = ctx.rows, ctx.columns, [None, None]
        if ctx.needs_input_grad[0]:
            count = int(left.shape[0])
            found[0] = Product.apply(gradient, _conjugate(right), rows, columns, count)
        if ctx.needs_input_grad[1]:
            count = int(right.shape[0])
            found[1] = Product.apply(gradient, _conjugate(left), columns, rows, count)
        return *found, None, None


def _conjugate(x: Tensor) -> Tensor:
    return T.conj(x) if x.dtype.is_complex else x


def _rounded(function: Any, first: np.ndarray, second: np.ndarray, *rest: Any) -> np.ndarray:
    """Half precision is added up in float32, and rounded once."""
    kind = first.dtype
    if kind.itemsize == 2 and kind.kind not in "iu":
        wide: np.ndarray = function(first.astype(np.float32), second.astype(np.float32), *rest)
        return wide.astype(kind)
    found: np.ndarray = function(first, second, *rest)
    return found


def _product(
    values: np.ndarray, dense: np.ndarray, rows: np.ndarray, columns: np.ndarray, size: int
) -> np.ndarray:
    width = dense.shape[1]
    if values.size * width >= _MANY:
        found: np.ndarray | None = _kernels().product(values, dense, rows, columns, size)
        if found is not None:
            return found
    result = np.zeros((size, width), dense.dtype)
    if not values.size or not width:
        return result
    order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")
    if order is not None:
        values, rows, columns = values[order], rows[order], columns[order]
    begins = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    # runs of whole rows, so many that what is gathered stays small
    step = max(1, _ROWS // width)
    cuts = np.unique(np.searchsorted(begins, np.arange(0, values.size, step), "right") - 1)
    for first, last in zip(cuts, [*cuts[1:], begins.size], strict=True):
        low = begins[first]
        high = begins[last] if last < begins.size else values.size
        part = values[low:high, None] * dense[columns[low:high]]
        result[rows[begins[first:last]]] = np.add.reduceat(part, begins[first:last] - low, 0)
    return result


def _sampled(
    left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    width = left.shape[1]
    if rows.size * width >= _MANY:
        found: np.ndarray | None = _kernels().sampled(left, right, rows, columns)
        if found is not None:
            return found
    result = np.empty(rows.size, left.dtype)
    step = max(1, _ROWS // max(width, 1))
    for low in range(0, rows.size, step):
        part = slice(low, low + step)
        result[part] = (left[rows[part]] * right[columns[part]]).sum(1, dtype=left.dtype)
    return result


# --- matrices ------------------------------------------------------------------------------------


def _matrix(x: SparseTensor) -> Pattern:
    pattern: Pattern = x._graphc_pattern
    if pattern.sparse_dim != 2 or pattern.dense_dim:
        raise RuntimeError(located(
            f"a product with a sparse tensor of {pattern.sparse_dim} sparse and "
            f"{pattern.dense_dim} dense dims: expected 2 and 0"
        ))
    return pattern


def times_dense(x: SparseTensor, dense: Tensor) -> Tensor:
    """[m, k] sparse @ [k, n] dense -> [m, n] dense."""
    x = to_coo(x)
    pattern = _matrix(x)
    rows, columns = pattern.array
    found: Tensor = Product.apply(entries(x), dense, rows, columns, pattern.size[0])
    return found


def times_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """[m, k] sparse @ [k, n] sparse -> [m, n] sparse, coalesced."""
    a, b = to_coo(a), coalesced(b)
    left, right = _matrix(a), _matrix(b)
    rows, inner = left.array
    starts = np.searchsorted(right.array[0], np.arange(right.size[0] + 1))
    lengths = np.diff(starts)[inner]
    ends = np.cumsum(lengths)
    which = np.repeat(np.arange(left.count), lengths)  # of a's entries, for each product
    offset = np.arange(which.size) - np.repeat(ends - lengths, lengths)
    other = starts[inner[which]] + offset
    size = (left.size[0], right.size[1])
    keys = rows[which] * size[1] + right.array[1][other]
    known, place = np.unique(keys, return_inverse=True)
    products = entries(a).index_select(0, from_array(which)) * entries(b).index_select(
        0, from_array(other)
    )
    pattern = Pattern.of_keys(known, size, 2, True)
    return sparse(pattern, summed(products, place.reshape(-1), known.size))


def dot_general(
    a: Tensor, b: Tensor, contract_a: tuple[int, ...], contract_b: tuple[int, ...],
    batch_a: tuple[int, ...] = (), batch_b: tuple[int, ...] = (), tf32: bool = False,
) -> Tensor:
    """The contraction of ir/ops/contract.py, of operands one of which is sparse."""
    if batch_a:
        return _batched(a, b, contract_a, contract_b)
    (along_a,), (along_b,) = contract_a, contract_b
    if is_sparse(a) and is_sparse(b):
        left = a if along_a == 1 else a.t()
        right = b if along_b == 0 else b.t()
        product = times_sparse(left, right)  # type: ignore[arg-type]
        if a.layout is b.layout and a.layout is not product.layout:
            return product.to_sparse(layout=a.layout)
        return product
    if is_sparse(a):
        matrix = a if along_a == 1 else a.t()
        return _with_dense(matrix, b, along_b)
    matrix = b if along_b == 1 else b.t()
    found = _with_dense(matrix, a, along_a)
    return found.permute(*range(1, found.ndim), 0)


def _with_dense(x: Tensor, dense: Tensor, along: int) -> Tensor:
    """A sparse matrix times a dense tensor of any rank: [rows of x, other dims]."""
    lead = dense.movedim(along, 0)
    rest = tuple(lead.shape[1:])
    found = times_dense(x, lead.reshape(lead.shape[0], math.prod(rest)))  # type: ignore[arg-type]
    return found.reshape(found.shape[0], *rest)


def _batched(
    a: Tensor, b: Tensor, contract_a: tuple[int, ...], contract_b: tuple[int, ...]
) -> Tensor:
    """[b, n, k] sparse @ [b, k, m] dense: one matrix with the blocks side by side."""
    if not isinstance(a, SparseTensor) or is_sparse(b) or (contract_a, contract_b) != ((2,), (1,)):
        raise NotImplementedError(located(
            "graphc has batched products of a sparse tensor on the left with a dense one alone. "
            "Cure: x.to_dense()"
        ))
    x = to_coo(a)
    pattern: Pattern = x._graphc_pattern
    if pattern.sparse_dim != 3:
        raise RuntimeError(located("bmm_sparse: Tensor 'self' must be sparse in all its 3 dims"))
    batch, n, k = pattern.size
    at, rows, columns = pattern.array
    width = int(b.shape[2])
    flat = b.reshape(batch * k, width)
    found = Product.apply(entries(x), flat, at * n + rows, at * k + columns, batch * n)
    return found.reshape(batch, n, width)


def sampled_product(mask: SparseTensor, left: Tensor, right: Tensor) -> SparseTensor:
    """left @ right [m, n] at the places of a sparse matrix."""
    pattern = mask._graphc_pattern
    coo = pattern.coo()
    rows, columns = coo.array
    values = Sampled.apply(left, right.t(), rows, columns)
    return sparse(pattern, values)


def check_same(a: Tensor, b: Tensor) -> None:
    """Raise RuntimeError where two dtypes differ."""
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"expected both matrices to have the same dtype, but got {a.dtype} and {b.dtype}. "
            "Cure: convert one of them with .to(dtype)"
        ))
