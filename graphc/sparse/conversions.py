"""Between dense and sparse tensors and the sparse layouts; sums of what lies at one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.functions.arguments import wrap_dim
from ..frontend.layouts import (
    LAYOUTS,
    layout,
    sparse_coo,
    strided,
)
from ..frontend.tensor import Tensor, from_array
from ..ir import dtypes
from .patterns import BLOCKED, Pattern, ascends, compressed
from .tensor import SparseTensor, entries, outside, sparse


def is_sparse(value: Any) -> bool:
    """Whether a value is a tensor of a sparse layout."""
    return isinstance(value, SparseTensor)


def summed(values: Tensor, places: np.ndarray, count: int) -> Tensor:
    """`count` sums of the rows of `values` that have the same place; of bools: whether any."""
    if values.dtype is dtypes.bool_:
        found: Tensor = T.ne(summed(values.to(dtypes.i64), places, count), 0)
        return found
    start = T.zeros((count, *values.shape[1:]), dtype=values.dtype)
    total: Tensor = T.index_add(start, 0, from_array(places), values)
    return total


# --- one layout to another -----------------------------------------------------------------------


@outside
def to_coo(x: SparseTensor) -> SparseTensor:
    """The tensor as COO; itself, if it is that."""
    pattern = x._graphc_pattern
    if pattern.layout is sparse_coo:
        return x
    values = entries(x)
    return sparse(pattern.coo(), values.reshape(-1))


@outside
def coalesced(x: SparseTensor) -> SparseTensor:
    """COO with one entry for each place, in row-major order."""
    x = to_coo(x)
    pattern: Pattern = x._graphc_pattern
    if pattern.coalesced:
        return x
    keys = pattern.keys()
    if ascends(keys):
        return sparse(Pattern(pattern.indices, pattern.size, True), entries(x))
    known, which = np.unique(keys, return_inverse=True)
    found = Pattern.of_keys(known, pattern.size, pattern.sparse_dim, True)
    return sparse(found, summed(entries(x), which.reshape(-1), known.size))


@outside
def to_dense(
    self: SparseTensor, dtype: Any = None, *, masked_grad: bool | None = None
) -> Tensor:
    """All elements, 0 where there is no entry."""
    coo = to_coo(self)
    pattern: Pattern = coo._graphc_pattern
    flat = summed(entries(coo), pattern.keys(), pattern.places)
    dense: Tensor = flat.reshape(pattern.size)
    return dense if dtype is None else dense.to(dtype)


@outside
def to_sparse(
    self: Tensor, *args: Any, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """x.to_sparse(), x.to_sparse(sparse_dim), x.to_sparse(layout=torch.sparse_csr)."""
    dims = args[0] if args else None
    if isinstance(dims, type(strided)):
        dims, layout = None, dims
    if dense_dim:
        raise NotImplementedError(located(
            f"graphc does not have to_sparse(dense_dim={dense_dim}) of {layout or sparse_coo}. "
            "Cure: x.to_sparse(sparse_dim)"
        ))
    if layout is None or layout is sparse_coo:
        return _to_coo(self, dims)
    if layout is strided:
        return to_dense(self) if isinstance(self, SparseTensor) else self
    if layout not in LAYOUTS.values():
        raise RuntimeError(located(f"to_sparse: unexpected layout {layout!r}"))
    return to_compressed(self, layout, blocksize)


def _to_coo(x: Tensor, dims: int | None) -> SparseTensor:
    if isinstance(x, SparseTensor):
        found = to_coo(x)
        if dims is not None and dims != found._graphc_pattern.sparse_dim:
            raise RuntimeError(located(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self."
                "sparse_dim() is not supported"
            ))
        return found
    rank = x.ndim
    if dims is None:
        dims = rank
    if not 0 <= dims <= rank or (dims == 0 and rank):
        raise RuntimeError(located(
            "sparse_dim argument must be in >0 when self.dim()>0"
            if dims == 0 else
            f"sparse_dim argument must be in [0,{rank}] range, but {dims} is given"
        ))
    array = x._graphc_array
    size = tuple(array.shape)
    there = array != 0
    if dims < rank:
        there = there.any(axis=tuple(range(dims, rank)))
    keys = np.flatnonzero(there)
    pattern = Pattern.of_keys(keys, size, dims, True)
    rows = x.reshape(pattern.places, *size[dims:])
    return sparse(pattern, rows.index_select(0, from_array(keys)))


@outside
def to_compressed(
    x: Tensor, kind: layout, blocksize: Any = None, dense_dim: Any = None
) -> SparseTensor:
    """A matrix in a compressed layout."""
    if x.ndim != 2:
        raise NotImplementedError(located(
            f"graphc has {kind} of matrices alone, this tensor has the shape {list(x.shape)}. "
            "Cure: convert each matrix of a batch"
        ))
    if kind in BLOCKED and blocksize is None:
        raise RuntimeError(located(
            f"to_sparse: {kind} requires a blocksize. Cure: pass blocksize=(rows, columns)"
        ))
    block = (1, 1) if blocksize is None else (int(blocksize[0]), int(blocksize[1]))
    if isinstance(x, SparseTensor) and x.layout is kind and x._graphc_pattern.block == block:
        return x
    coo = coalesced(x if isinstance(x, SparseTensor) else _to_coo(x, None))
    if coo._graphc_pattern.dense_dim:
        raise NotImplementedError(located(
            f"graphc does not have {kind} of tensors with dense dims. Cure: x.to_dense()"
        ))
    pattern, places = compressed(coo._graphc_pattern, kind, block)
    if kind not in BLOCKED:
        order = np.empty_like(places)
        order[places] = np.arange(places.size)
        return sparse(pattern, entries(coo).index_select(0, from_array(order)))
    numbers = pattern.count * block[0] * block[1]
    values = summed(entries(coo), places, numbers)
    return sparse(pattern, values.reshape(pattern.count, *block))


# --- what lies at given places -------------------------------------------------------------------


@outside
def entries_at(x: Tensor, pattern: Any) -> Tensor:
    """What a tensor, dense or sparse, has at the places of a pattern, in its order: what becomes of
    the gradient of a tensor of that pattern."""
    if isinstance(x, SparseTensor):
        if x._graphc_pattern is pattern:
            return entries(x)
        found = _looked_up(coalesced(x), pattern.coo())
    else:
        coo = pattern.coo()
        rows = x.reshape(coo.places, *coo.dense_size)
        found = rows.index_select(0, from_array(coo.keys()))
    if pattern.layout in BLOCKED:
        return found.reshape(pattern.count, *pattern.block)
    return found


def _looked_up(x: SparseTensor, pattern: Pattern) -> Tensor:
    """Entries of a coalesced tensor at the places of another; 0 where it has none."""
    own: Pattern = x._graphc_pattern
    if own.sparse_dim != pattern.sparse_dim:
        raise RuntimeError(located(
            f"tensors with {own.sparse_dim} and {pattern.sparse_dim} sparse dims do not fit "
            "together. Cure: x.to_dense()"
        ))
    if not own.count:
        return T.zeros((pattern.count, *pattern.dense_size), dtype=x.dtype)
    known, wanted = own.keys(), pattern.keys()
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    there = known[at] == wanted
    rows = entries(x).index_select(0, from_array(at))
    shaped = from_array(there).reshape(-1, *[1] * pattern.dense_dim)
    found: Tensor = T.where(shaped, rows, T.zeros((), dtype=rows.dtype))
    return found


@outside
def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements at the places where a sparse tensor has entries."""
    if not isinstance(mask, SparseTensor):
        raise RuntimeError(located("sparse_mask expected 'mask' to be sparse, got a dense tensor"))
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(located(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(self.shape)} but mask has size {list(mask.shape)}"
        ))
    return sparse(mask._graphc_pattern, entries_at(self, mask._graphc_pattern))


# --- parts, in another order, side by side -------------------------------------------------------


def permuted(x: SparseTensor, dims: tuple[int, ...]) -> SparseTensor:
    """The dims in another order, sparse ones among themselves."""
    x = to_coo(x)
    pattern: Pattern = x._graphc_pattern
    n = pattern.sparse_dim
    if sorted(dims[:n]) != list(range(n)):
        raise RuntimeError(located(
            "permute: transpositions between sparse and dense dimensions are not allowed. Got "
            f"sparse_dim={n}, dims={list(dims)}"
        ))
    if n == 2 and tuple(dims) == (1, 0):
        return sparse(pattern.turned(), entries(x))
    size = tuple([pattern.size[dim] for dim in dims])
    same = list(dims[:n]) == list(range(n))
    places = pattern.array if same else pattern.array[list(dims[:n])]
    values = entries(x)
    if list(dims[n:]) != list(range(n, len(dims))):
        values = values.permute(0, *[dim - n + 1 for dim in dims[n:]])
    return sparse(Pattern.at(places, size, same and pattern.coalesced), values)


def sliced(x: SparseTensor, starts: Any, stops: Any, steps: Any) -> SparseTensor:
    """A part of each dim."""
    x = to_coo(x)
    pattern: Pattern = x._graphc_pattern
    n = pattern.sparse_dim
    size = tuple([
        max(0, -(-(stop - start) // step))
        for start, stop, step in zip(starts, stops, steps, strict=True)
    ])
    places = pattern.array
    kept = np.ones(pattern.count, np.bool_)
    moved = []
    for dim in range(n):
        row = places[dim] - starts[dim]
        kept &= (row >= 0) & (places[dim] < stops[dim]) & (row % steps[dim] == 0)
        moved.append(row // steps[dim])
    found = np.stack(moved)[:, kept] if moved else places[:, kept]
    values = entries(x)
    if not kept.all():
        values = values.index_select(0, from_array(np.flatnonzero(kept)))
    inner = [slice(a, b, s) for a, b, s in zip(starts[n:], stops[n:], steps[n:], strict=True)]
    if inner:
        values = values[(slice(None), *inner)]
    return sparse(Pattern.at(found, size, pattern.coalesced), values)


def reshaped(x: SparseTensor, size: tuple[int, ...]) -> SparseTensor | Tensor:
    """The same elements in row-major order: of tensors whose dims are all sparse, or without a
    first dim of size 1."""
    x = to_coo(x)
    pattern: Pattern = x._graphc_pattern
    if pattern.sparse_dim == 1 and pattern.size[0] == 1 and size == pattern.size[1:]:
        return summed(entries(x), np.zeros(pattern.count, np.int64), 1)[0]
    dense = pattern.dense_size
    lead = len(size) - len(dense)
    if lead < 0 or size[lead:] != dense:
        raise NotImplementedError(located(
            "graphc does not reshape the dense dims of sparse tensors. Cure: x.to_dense()"
        ))
    found = Pattern.of_keys(pattern.keys(), size, lead, pattern.coalesced)
    return sparse(found, entries(x))


def selected(x: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The slices of a dim at the positions of a vector."""
    x = coalesced(x)
    pattern: Pattern = x._graphc_pattern
    wanted = index._graphc_array.astype(np.int64)
    size = pattern.size[dim]
    if wanted.size and not (-size <= wanted.min() and wanted.max() < size):
        raise IndexError(located(f"index out of range in self: dim {dim} has size {size}"))
    wanted = np.where(wanted < 0, wanted + size, wanted)
    shape = (*pattern.size[:dim], wanted.size, *pattern.size[dim + 1 :])
    n = pattern.sparse_dim
    if dim >= n:
        values = entries(x).index_select(dim - n + 1, from_array(wanted))
        return sparse(Pattern(pattern.indices, shape, True), values)
    row = pattern.array[dim]
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], wanted, "left")
    lengths = np.searchsorted(row[order], wanted, "right") - begin
    ends = np.cumsum(lengths)
    inner = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - lengths, lengths)
    chosen = order[np.repeat(begin, lengths) + inner]
    places = pattern.array[:, chosen]
    places[dim] = np.repeat(np.arange(wanted.size), lengths)
    values = entries(x).index_select(0, from_array(chosen))
    return sparse(Pattern.at(places, shape, False), values)


@outside
def cat(tensors: Any, dim: int = 0) -> SparseTensor:
    """COO tensors one behind the other."""
    given = list(tensors)
    if not all(is_sparse(each) for each in given):
        raise RuntimeError(located(
            "cat: all tensors have to be sparse, or none. Cure: x.to_sparse(), or x.to_dense()"
        ))
    parts = [to_coo(each) for each in given]
    first: Pattern = parts[0]._graphc_pattern
    dim = wrap_dim(dim, len(first.size))
    for i, part in enumerate(parts):
        own: Pattern = part._graphc_pattern
        if own.sparse_dim != first.sparse_dim or any(
            a != b for d, (a, b) in enumerate(zip(own.size, first.size, strict=True)) if d != dim
        ):
            raise RuntimeError(located(
                f"All tensors must have the same shape: {list(first.size)} (except in the "
                f"concatenating dimension), but found shape: {list(own.size)} at position {i}"
            ))
    sizes = [part._graphc_pattern.size[dim] for part in parts]
    size = (*first.size[:dim], sum(sizes), *first.size[dim + 1 :])
    if dim >= first.sparse_dim:
        raise NotImplementedError(located(
            "graphc does not have cat() along dense dims of sparse tensors. Cure: x.to_dense()"
        ))
    places = []
    for part, offset in zip(parts, np.cumsum([0, *sizes]), strict=False):
        moved = part._graphc_pattern.array.copy()
        moved[dim] += offset
        places.append(moved)
    ordered = dim == 0 and all(part._graphc_pattern.coalesced for part in parts)
    pattern = Pattern.at(np.concatenate(places, 1), size, ordered)
    return sparse(pattern, T.cat([entries(part) for part in parts]))
