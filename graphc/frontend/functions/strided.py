"""Views by strides: as_strided, diagonal, unfold, and what is built on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim

from .. import promote
from ..context import local
from ..dispatch import apply, inplace
from ..errors import TraceError, located
from ..functionalize import dense_order
from ..history import requires_grad
from ..ownership import owns_result
from ..recalled import recalled
from ..replayed import replayed
from ..storage import address, contiguous_strides, offset_of
from ..tensor import Tensor, alias, current
from ..views import base_of
from .arguments import environment, recorded_as, shape, shape_of, with_out, wrap_dim
from .inplace import fill_


def _root(x: Tensor) -> tuple[Tensor, Any] | None:
    """A row-major tensor on the memory under x, with x's history, and x's offset in it.

    None under a trace where the memory has gaps that a graph does not see.
    """
    state = current(x)
    base = current(base_of(state)) if state._base is not None else state
    if state._graphc_trace is not None:
        holder = base if base._graphc_storage is state._graphc_storage else state
        traced = holder._graphc_traced
        order = dense_order(traced.type.shape, traced.strides, environment())
        if order is None:
            return None
        memory = holder if traced.is_contiguous() else apply(ops.permute, holder, dims=order)
        return memory, state._graphc_traced.offset - traced.offset
    if requires_grad(state) and not requires_grad(base):
        base = state  # a leaf
    if base._graphc_array.flags.c_contiguous and not (is_part(base) and not requires_grad(state)):
        start = offset_of(base._graphc_array, base._graphc_storage)
        return base, offset_of(state._graphc_array, state._graphc_storage) - start
    if requires_grad(state):
        order = dense_order(base.shape, base.stride(), environment())
        assert order is not None  # as_strided() has sent those with gaps to _from_part()
        start = offset_of(base._graphc_array, base._graphc_storage)
        return apply(ops.permute, base, dims=order), (
            offset_of(state._graphc_array, state._graphc_storage) - start
        )
    memory = alias(state)
    memory._graphc_array = state._graphc_storage.flat()
    return memory, (
        address(state._graphc_array) - address(memory._graphc_array)
    ) // state._graphc_array.itemsize


def is_part(x: Tensor) -> bool:
    """Whether there is more memory under a concrete tensor than its elements."""
    return int(x._graphc_array.size) != int(x._graphc_storage.flat().size)


def _lies_in_part(x: Tensor, from_start: bool) -> bool:
    """Whether a tensor that requires a gradient lies in memory of which its history does not know
    all: it, or what it is a view of, is a leaf that is a part of some memory, or has gaps.
    `from_start`: the place is counted from where that memory begins."""
    base = x if x._base is None else base_of(x)
    if x._base is None or not requires_grad(base):  # a leaf
        return is_part(x)
    if from_start and is_part(base):
        return True
    return (
        not base._graphc_array.flags.c_contiguous
        and dense_order(base.shape, base.stride(), environment()) is None
    )


def _from_part(x: Tensor, size: Any, stride: Any, offset: Any) -> Tensor:
    """as_strided() of a part of some memory that requires a gradient: a copy."""
    found = _root(x.detach())
    assert found is not None
    memory, start = found
    whole = as_strided_scatter(memory, x, shape(x), x.stride(), start)
    return as_strided(whole, size, stride, start if offset is None else offset)


def _outside_trace(trace: Any, x: Tensor, size: Any, stride: Any, offset: Any) -> Tensor:
    """as_strided() of an argument that is a part of some memory, which a graph does not see."""
    what = "as_strided() of a part of a larger memory"
    if not trace.runs_eagerly(what):
        raise TraceError(located(
            f"{what} has a storage_offset from that memory's start, which a graph does not see. "
            "Cure: pass the whole tensor and slice it inside"
        ))
    with trace.eager(what):
        return as_strided(x, size, stride, offset)


def as_strided(
    input: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """A view of the memory under `input` by sizes, strides and offset, in elements."""
    state = current(input)
    if state._graphc_trace is None and requires_grad(state) and (
        _lies_in_part(state, storage_offset is not None)
    ):
        return _from_part(input, size, stride, storage_offset)
    size, stride = shape_of((size,)), shape_of((stride,))
    state = current(input)  # a size that is a tensor has ended a segment
    trace = state._graphc_trace
    if trace is not None and storage_offset is not None:
        owner = state if state._base is None else current(base_of(state))
        concrete = trace.concrete_of(owner)
        cut = owner._graphc_traced.offset != 0  # detached from what it was a view of
        if cut or (concrete is not owner and is_part(concrete)):
            return _outside_trace(trace, input, size, stride, storage_offset)
        if concrete is not owner:
            trace.whole_memory[id(concrete)] = concrete
    found = _root(input)
    if found is None:
        return _outside_trace(trace, input, size, stride, storage_offset)
    base, offset = found
    start = offset if storage_offset is None else storage_offset
    result: Tensor = apply(ops.as_strided, base, size=size, stride=stride, offset=start)
    return result


@recalled
@recorded_as("DiagonalBackward0")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dims as the last dim: a view."""
    rank = input.ndim
    a, b = wrap_dim(dim1, rank), wrap_dim(dim2, rank)
    if a == b:
        raise RuntimeError(located(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}"
        ))
    sizes = shape(input)
    length = _diagonal_length(sizes[a], sizes[b], offset)
    strides = contiguous_strides(sizes)
    start: Any = 0
    if offset and length != 0:
        start = offset * strides[b] if offset > 0 else -offset * strides[a]
    rest = [d for d in range(rank) if d not in (a, b)]
    size = (*(sizes[d] for d in rest), length)
    stride = (*(strides[d] for d in rest), strides[a] + strides[b])
    result: Tensor = apply(ops.as_strided, input, size=size, stride=stride, offset=start)
    return result


def _diagonal_length(rows: Any, columns: Any, offset: int) -> Any:
    env = environment()
    if isinstance(rows, Dim) and rows == columns and env.at_most(abs(offset) + 1, rows):
        return rows - abs(offset)
    rows, columns = env.specialise(rows), env.specialise(columns)
    return max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)


@recalled
@recorded_as("UnfoldBackward0")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` every `step` along a dim, as a new last dim: a view."""
    rank = self.ndim
    dim = wrap_dim(dimension, rank)
    sizes = shape(self) or (1,)
    have = sizes[dim]
    if step <= 0:
        raise RuntimeError(located(f"step is {step} but must be > 0"))
    if not environment().at_most(size, have):
        raise RuntimeError(located(
            f"maximum size for tensor at dimension {dim} is {have} but size is {size}"
        ))
    strides = contiguous_strides(sizes)
    count = (have - size) // step + 1
    new = (*sizes[:dim], count, *sizes[dim + 1 :], size)
    stride = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim])
    if rank == 0:
        new, stride = (size,), (1,)
    result: Tensor = apply(ops.as_strided, self, size=new, stride=stride, offset=0)
    return result


@replayed
@with_out
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix's diagonal (a copy), or a matrix with a vector on its diagonal."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(located(
            f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D"
        ))
    return _diagonal(input, diagonal).clone()  # type: ignore[no-any-return]


_diagonal = diagonal


@replayed
@owns_result
@recorded_as("DiagEmbedBackward0")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dim of `input` on their diagonals."""
    n = shape(input)[-1]
    width = n + abs(offset)
    rank = input.ndim + 1
    found = _lined_up(input, offset, width) if local.trace is None and n else _chosen(
        input, offset, width)
    a, b = wrap_dim(dim1, rank), wrap_dim(dim2, rank)
    return found.movedim((-2, -1), (a, b)).contiguous()  # type: ignore[no-any-return]


def _lined_up(input: Tensor, offset: int, width: int) -> Tensor:
    """In a row, the diagonal's elements have `width` others between them."""
    n, lead = shape(input)[-1], (0,) * (input.ndim - 1)
    first = offset if offset > 0 else -offset * width
    behind = width * width - first - (n - 1) * (width + 1) - 1
    line = apply(
        ops.pad, input, low=(*lead, first), high=(*lead, behind), interior=(*lead, width),
        value=False if input.dtype is dtypes.bool_ else 0.0,
    )
    found: Tensor = line.reshape((*shape(input)[:-1], width, width))
    return found


def _chosen(input: Tensor, offset: int, width: Any) -> Tensor:
    """A choice for each place, whatever the sizes."""
    rank, extra = input.ndim + 1, abs(offset)
    # a column of values, where the diagonal is
    rows = apply(ops.iota, shape=(width, width), dim=0, dtype=dtypes.i64)
    columns = apply(ops.iota, shape=(width, width), dim=1, dtype=dtypes.i64)
    on = apply(
        ops.eq, apply(ops.add, rows, promote.operand(offset, dtypes.i64)), columns
    )
    low = (0,) * (rank - 2)
    before, after = (extra, 0) if offset < 0 else (0, extra)
    zero: Any = 0.0
    padded = apply(
        ops.pad, input, low=(*low, before), high=(*low, after),
        interior=(0,) * input.ndim, value=zero,
    )
    spread = padded.unsqueeze(-1)
    nothing = promote.operand(False if input.dtype is dtypes.bool_ else 0, input.dtype)
    found: Tensor = apply(ops.where, on, spread, nothing)
    return found


@recorded_as("DiagEmbedBackward0")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on its diagonal."""
    return diag_embed(input.reshape(-1), offset)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a number on the diagonal (tall matrices may go on after a wrap)."""
    if self.ndim < 2:
        raise RuntimeError(located("dimensions must larger than 1"))
    if self.ndim == 2:
        rows, columns = shape(self)
        fill_(_diagonal(self), fill_value)
        if wrap and rows > columns + 1:
            places = np.arange(0, rows * columns, columns + 1)
            flat = self.view(-1)
            flat[places] = fill_value
        return self
    env, sizes = environment(), shape(self)
    if not all(env.equal(size, sizes[0]) for size in sizes):
        raise RuntimeError(located("all dimensions of input must be of equal length"))
    for i in range(sizes[0]):
        self[(i,) * self.ndim] = fill_value
    return self


def _scatter(place: Tensor, src: Tensor) -> None:
    """Write into a view. Raises RuntimeError for a src of another shape, broadcast or not."""
    have, want, env = shape(src), shape(place), environment()
    if len(have) != len(want) or not all(map(env.equal, have, want)):
        raise RuntimeError(located(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(have)}, slice size = {list(want)}"
        ))
    inplace(place, src, overwrite=True)


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with src on the diagonal."""
    result = input.clone()
    _scatter(_diagonal(result, offset, dim1, dim2), src)
    return result  # type: ignore[no-any-return]


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """A copy with src at the elements that as_strided() would view."""
    result = input.clone()
    _scatter(as_strided(result, size, stride, storage_offset), src)
    return result  # type: ignore[no-any-return]


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with src at one position of `dim`."""
    result = input.clone()
    _scatter(result.select(dim, index), src)
    return result  # type: ignore[no-any-return]


@with_out
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A copy with src at a slice of `dim`."""
    result = input.clone()
    index = (slice(None),) * wrap_dim(dim, input.ndim)
    _scatter(result[(*index, slice(start, end, step))], src)
    return result  # type: ignore[no-any-return]
