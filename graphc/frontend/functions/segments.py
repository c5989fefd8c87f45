"""Runs of a tensor along a dim: each reduced to one value, and the ends of equal ones."""

from __future__ import annotations

import math
from typing import Any

from ...ir import dtypes
from ..context import local
from ..errors import located
from ..ownership import owns_result
from ..tensor import Tensor
from .arguments import shape, wrap_dim
from .creation import full
from .cumulative import cumsum
from .gathering import scatter_add, scatter_reduce
from .joining import cat, stack
from .pointwise import where

# what an empty segment gives, and segments begin with
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}


@owns_result
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """The sum, mean, max, min or prod of each run of `axis`: of so many `lengths`, or between
    `offsets`, each of which may have a row for each of data's dims before."""
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in _NEUTRAL:
        raise RuntimeError(located(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        ))
    if indices is not None:
        raise RuntimeError(located(
            "segment_reduce(): indices based reduction is not supported yet."
        ))
    if not data.dtype.is_float:
        raise NotImplementedError(located(f"segment_reduce is not implemented for {data.dtype}"))
    ends = _offsets(data, lengths, offsets, unsafe)
    along = wrap_dim(axis, data.ndim)
    if ends.ndim != along + 1 or shape(ends)[:-1] != shape(data)[:along]:
        raise RuntimeError(located(
            f"segment_reduce(): Expected axis to be the last dimension of lengths or offsets, with "
            f"data's sizes before it, but got {axis}: {list(data.shape)} and {list(ends.shape)}"
        ))
    return _reduced(data, reduce, ends, along, initial)


def _known(x: Tensor) -> bool:
    """Whether its numbers are there to be asked."""
    return local.trace is None and x._graphc_trace is None and x.device.type != "meta"


def _offsets(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, unsafe: bool
) -> Tensor:
    """Where the segments begin, and the end of the last."""
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError(located(
            "segment_reduce(): Either lengths or offsets must be defined."
        ))
    if not isinstance(given, Tensor):
        raise TypeError(located(
            f"segment_reduce(): lengths and offsets must be Tensors, not {type(given).__name__}"
        ))
    if given.dtype not in (dtypes.i32, dtypes.i64) or given.ndim > data.ndim or given.ndim < 1:
        raise RuntimeError(located(
            f"segment_reduce(): lengths and offsets must be int32 or int64 of 1 to {data.ndim} "
            f"dims, got {given.dtype} of {given.ndim}"
        ))
    if offsets is not None:
        ends: Tensor = given.to(dtypes.i64)
        if _known(given) and bool((ends[..., 1:] < ends[..., :-1]).any()):
            raise RuntimeError(located("segment_reduce(): offsets must not descend"))
        return ends
    total = cumsum(given.to(dtypes.i64), -1)
    zero = full((*shape(given)[:-1], 1), 0, dtype=dtypes.i64, device=given.device)
    ends = cat([zero, total], -1)
    if not unsafe and _known(given):
        if given.numel() and bool((given < 0).any()):
            raise RuntimeError(located("lengths contains negative value!"))
        if bool((ends[..., -1] != data.shape[given.ndim - 1]).any()):
            raise RuntimeError(located(
                "segment_reduce(): Expected all rows of lengths along axis to sum to "
                "data.size(lengths.dim()-1) when !unsafe."
            ))
    return ends


def _reduced(
    data: Tensor, reduce: str, ends: Tensor, along: int, initial: float | None
) -> Tensor:
    sizes = shape(data)
    count, rows = shape(ends)[-1] - 1, sizes[:along]
    # the last segment that begins at a place or before: -1 and `count` are outside of all
    which = _until(ends, sizes[along])[..., : sizes[along]] - 1
    which = where(which < 0, count, which)
    index = which.reshape(*shape(which), *[1] * (data.ndim - along - 1)).expand(sizes)
    start = _NEUTRAL[reduce] if initial is None else float(initial)
    begun = full((*rows, count + 1, *sizes[along + 1 :]), start, dtype=data.dtype,
                 device=data.device)
    kind = "sum" if reduce == "mean" else reduce
    found: Tensor = scatter_reduce(begun, along, index, data, kind)
    found = found.narrow(along, 0, count).contiguous()
    if reduce != "mean":
        return found
    lengths = (ends[..., 1:] - ends[..., :-1]).to(data.dtype)
    lengths = lengths.reshape(*shape(lengths), *[1] * (data.ndim - along - 1))
    # of no elements: NaN, or the initial value as it is
    mean: Tensor = found / (lengths if initial is None else lengths.clamp(min=1))
    return mean


def _until(places: Tensor, size: Any) -> Tensor:
    """How many of some places from 0 to `size` are at each of these or before."""
    rows = shape(places)
    ones = full(rows, 1, dtype=dtypes.i64, device=places.device)
    start = full((*rows[:-1], size + 1), 0, dtype=dtypes.i64, device=places.device)
    found: Tensor = cumsum(scatter_add(start, -1, places, ones), -1)
    return found


_segment_reduce = segment_reduce  # torch's own name of it

# --- rows of sparse tensors ----------------------------------------------------------------------


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each of `size` rows begins among sorted row numbers, and where the last ends."""
    begins = _until(input.to(dtypes.i64) + 1, size)
    return begins.to(dtypes.i32) if out_int32 else begins


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row of each column, and the column, of a CSR tensor's indices."""
    kind = dtypes.i32 if out_int32 else dtypes.i64
    if crow_indices.ndim != 1 or col_indices.ndim != 1:
        raise NotImplementedError(located(
            "graphc does not convert the indices of batches. Cure: one after another"
        ))
    entries = shape(col_indices)[0]
    rows = _until(crow_indices.to(dtypes.i64), entries)[:entries] - 1
    both = [rows.to(kind), col_indices.to(kind)]
    return stack(both[::-1] if transpose else both)
