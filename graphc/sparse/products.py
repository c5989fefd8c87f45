"""Products of sparse matrices with dense ones, and what lies at the entries of a dense product:
operators of graphc.ir (`ir/ops/sparse.py`) on the entries and what a Pattern says of its places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..frontend.context import local
from ..frontend.dispatch import apply
from ..frontend.errors import located
from ..frontend.history import requires_grad
from ..frontend.tensor import Tensor, from_array
from ..ir import ops
from .conversions import coalesced, is_sparse, summed, to_coo
from .patterns import Compressed, Pattern
from .tensor import SparseTensor, entries, met, outside, records, sparse


def _product(values: Tensor, dense: Tensor, pattern: Pattern, turned: bool = False) -> Tensor:
    """[rows, width]: of each row, the sum of its entries times rows of `dense`. `turned`: of the
    matrix that is turned."""
    rows, columns, *walks = pattern.walks(turned or _differentiated(dense))
    if turned:
        rows, columns, walks = columns, rows, [*walks[2:], *walks[:2]]
    found: Tensor = apply(ops.sparse_product, values, dense, rows, columns, *walks)
    return found


def _differentiated(x: Tensor) -> bool:
    return bool(local.grad and requires_grad(x))


# --- matrices ------------------------------------------------------------------------------------


def _matrix(x: SparseTensor) -> Pattern | Compressed:
    pattern: Pattern | Compressed = x._graphc_pattern
    if pattern.sparse_dim != 2 or pattern.dense_dim:
        raise RuntimeError(located(
            f"a product with a sparse tensor of {pattern.sparse_dim} sparse and "
            f"{pattern.dense_dim} dense dims: expected 2 and 0"
        ))
    return pattern


def times_dense(x: SparseTensor, dense: Tensor, turned: bool = False) -> Tensor:
    """[m, k] sparse @ [k, n] dense -> [m, n] dense; of x.T, if `turned`."""
    pattern = _matrix(x)
    return _product(entries(x).reshape(-1), dense, pattern.coo(), turned)


def times_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """[m, k] sparse @ [k, n] sparse -> [m, n] sparse, coalesced."""
    a, b = to_coo(a), coalesced(b)
    left, right = _matrix(a).coo(), _matrix(b).coo()
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
        return _with_dense(a, b, along_b, along_a == 0)
    found = _with_dense(b, a, along_a, along_b == 0)
    return found.permute(*range(1, found.ndim), 0)


def recorded_dot_general(a: Tensor, b: Tensor, *dims: Any, **named: Any) -> Tensor:
    """dot_general() under a trace, too: a segment records the product of a sparse matrix and a
    dense one."""
    met()
    pair = [x for x in (a, b) if isinstance(x, SparseTensor)]
    plain = len(pair) == 1 and not named.get("batch_a") and len(dims) < 3
    if local.trace is None or (plain and records(pair[0])):
        return dot_general(a, b, *dims, **named)
    found: Tensor = outside(dot_general)(a, b, *dims, **named)
    return found


def _with_dense(x: Tensor, dense: Tensor, along: int, turned: bool) -> Tensor:
    """A sparse matrix, `turned` or not, times a dense tensor of any rank: [rows, other dims]."""
    lead = dense.movedim(along, 0)
    rest = tuple(lead.shape[1:])
    flat = lead.reshape(lead.shape[0], math.prod(rest))
    found = times_dense(x, flat, turned)  # type: ignore[arg-type]
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
    places = np.stack([at * n + rows, at * k + columns])
    found = _product(entries(x), flat, Pattern.at(places, (batch * n, batch * k), False))
    return found.reshape(batch, n, width)


def sampled_product(mask: SparseTensor, left: Tensor, right: Tensor) -> SparseTensor:
    """left @ right [m, n] at the places of a sparse matrix."""
    pattern = mask._graphc_pattern
    walks = pattern.coo().walks(_differentiated(right))
    values = apply(ops.sparse_sampled, left, right.t(), *walks)
    return sparse(pattern, values)


def check_same(a: Tensor, b: Tensor) -> None:
    """Raise RuntimeError where two dtypes differ."""
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"expected both matrices to have the same dtype, but got {a.dtype} and {b.dtype}. "
            "Cure: convert one of them with .to(dtype)"
        ))
