"""Test records of reductions, movement, indexing, sorting and cumulative operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from tests.opinfo_core import (
    ANY,
    BOOL,
    NUMBERS,
    RNG,
    Sample,
    distinct,
    draw,
    record,
    torch,
)

Shape = tuple[int, ...]

# --- reductions ------------------------------------------------------------------------------

_REDUCTIONS: tuple[tuple[Shape, Shape], ...] = (
    ((5,), (0,)),
    ((3, 4), (0,)),
    ((3, 4), (1,)),
    ((3, 4), (0, 1)),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (1,)),
    ((), ()),
    ((3, 4), ()),
    ((3, 0), (0,)),
    ((37, 65), (0,)),
    ((9, 70), (1,)),
)


def reduce_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dims in _REDUCTIONS:
        for keepdim in (False, True):
            yield Sample((draw(rng, dtype, shape, -2, 3),), {"dims": dims, "keepdim": keepdim})
    yield Sample((draw(rng, dtype, (0, 3)),), {"dims": (0,), "keepdim": False})


def prod_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dims in _REDUCTIONS[:-2]:
        values = (
            draw(rng, dtype, shape, 0.5, 1.5) if dtype.is_float else draw(rng, dtype, shape, -2, 3)
        )
        yield Sample((values,), {"dims": dims, "keepdim": False})
        yield Sample((values,), {"dims": dims, "keepdim": True})
    with_zeros = np.array([[1, 0, 3], [0, 0, 2], [4, 5, 6]]).astype(dtype.numpy)
    yield Sample((with_zeros,), {"dims": (1,), "keepdim": False})


def extremum_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dims in _REDUCTIONS:
        if int(np.prod(shape, dtype=int)) > 256:
            values = draw(rng, dtype, shape, -100, 100)
            yield Sample((values,), {"dims": dims, "keepdim": False}, gradient=False)
        else:
            for keepdim in (False, True):
                yield Sample((distinct(rng, dtype, shape),), {"dims": dims, "keepdim": keepdim})
    ties = np.array([[1, 3, 3], [2, 2, 2]]).astype(dtype.numpy)
    yield Sample((ties,), {"dims": (1,), "keepdim": False}, gradient=False)
    if dtype.is_float:
        bad = np.array([[1, np.nan, 3], [-np.inf, np.inf, 0]]).astype(dtype.numpy)
        yield Sample((bad,), {"dims": (1,), "keepdim": False}, gradient=False)


def arg_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (((5,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((0, 3), 1)):
        for keepdim in (False, True):
            yield Sample((distinct(rng, dtype, shape),), {"dim": dim, "keepdim": keepdim})
    ties = np.array([[1, 3, 3, 0, 0]]).astype(dtype.numpy)
    yield Sample((ties,), {"dim": 1, "keepdim": False})
    if dtype.is_float:
        bad = np.array([[1, np.nan, 3, np.nan], [-np.inf, 1, np.inf, 0]]).astype(dtype.numpy)
        yield Sample((bad,), {"dim": 1, "keepdim": False})


def _sum(x: Any, *, dims: Shape, keepdim: bool) -> Any:
    return torch.sum(x, dims, keepdim=keepdim, dtype=x.dtype) if dims else x.clone()


def _prod(x: Any, *, dims: Shape, keepdim: bool) -> Any:
    for dim in reversed(dims):
        x = torch.prod(x, dim, keepdim=keepdim, dtype=x.dtype)
    return x.clone()


def _over_dims(function: Any) -> Any:
    def reference(x: Any, *, dims: Shape, keepdim: bool) -> Any:
        return function(x, dims, keepdim) if dims else x.clone()

    return reference


record("sum", reduce_samples, _sum, NUMBERS, tolerance=16.0)
record("prod", prod_samples, _prod, NUMBERS, tolerance=16.0)
record("amax", extremum_samples, _over_dims(torch.amax), NUMBERS)
record("amin", extremum_samples, _over_dims(torch.amin), NUMBERS)
record("any", reduce_samples, _over_dims(torch.any), BOOL, gradient="bool result")
record("all", reduce_samples, _over_dims(torch.all), BOOL, gradient="bool result")
record(
    "argmax",
    arg_samples,
    lambda x, dim, keepdim: torch.argmax(x, dim, keepdim),
    NUMBERS,
    gradient="integer result",
)
record(
    "argmin",
    arg_samples,
    lambda x, dim, keepdim: torch.argmin(x, dim, keepdim),
    NUMBERS,
    gradient="integer result",
)

# --- movement --------------------------------------------------------------------------------


def _one(cases: Any) -> Any:
    """Samples of a one-input operator from (shape, attrs) pairs."""

    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for shape, attrs in cases:
            yield Sample((draw(rng, dtype, shape),), attrs)

    return samples


def _slices(starts: Shape, stops: Shape, steps: Shape) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def _region(starts: Shape, stops: Shape, steps: Shape) -> dict[str, Any]:
    return {"starts": starts, "stops": stops, "steps": steps}


def _pad(x: Any, *, low: Shape, high: Shape, interior: Shape, value: float) -> Any:
    spans = [n + max(n - 1, 0) * i for n, i in zip(x.shape, interior, strict=True)]
    shape = [a + s + b for a, s, b in zip(low, spans, high, strict=True)]
    out = torch.full(shape, value, dtype=x.dtype)
    out[tuple(slice(a, a + s, i + 1) for a, s, i in zip(low, spans, interior, strict=True))] = x
    return out


def _padding(low: Shape, high: Shape, interior: Shape, value: float = 0.0) -> dict[str, Any]:
    return {"low": low, "high": high, "interior": interior, "value": value}


def _slice_update(x: Any, source: Any, *, starts: Shape, stops: Shape, steps: Shape) -> Any:
    out = x.clone()
    out[_slices(starts, stops, steps)] = source
    return out


def _strided(size: Shape, stride: Shape, offset: int) -> dict[str, Any]:
    return {"size": size, "stride": stride, "offset": offset}


def _as_strided_update(x: Any, source: Any, *, size: Shape, stride: Shape, offset: int) -> Any:
    """Not torch.as_strided_scatter: its gradient for x is wrong (2.13)."""
    positions = torch.arange(x.numel()).as_strided(size, stride, offset)
    flat = x.reshape(-1).clone()
    flat[positions.reshape(-1)] = source.reshape(-1)
    return flat.reshape(x.shape)


def concat_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shapes, dim in ((((2, 3), (4, 3), (1, 3)), 0), (((2, 3), (2, 0), (2, 2)), 1), (((5,),), 0)):
        yield Sample(tuple(draw(rng, dtype, s) for s in shapes), {"dim": dim})


def slice_update_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, region, part in (
        ((5,), _region((1,), (4,), (1,)), (3,)),
        ((4, 6), _region((0, 1), (4, 6), (2, 3)), (2, 2)),
        ((3, 2), _region((1, 1), (1, 1), (1, 1)), (0, 0)),
    ):
        yield Sample((draw(rng, dtype, shape), draw(rng, dtype, part)), region)


def as_strided_update_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, region in (((12,), _strided((2, 3), (4, 1), 1)), ((3, 4), _strided((3,), (5,), 0))):
        yield Sample((draw(rng, dtype, shape), draw(rng, dtype, region["size"])), region)


record(
    "reshape",
    _one(
        [
            ((2, 6), {"shape": (3, 4)}),
            ((), {"shape": (1, 1)}),
            ((1,), {"shape": ()}),
            ((0, 3), {"shape": (3, 0, 2)}),
        ]
    ),
    lambda x, shape: x.reshape(shape),
    ANY,
)
record(
    "permute",
    _one([((2, 3, 4), {"dims": (2, 0, 1)}), ((2, 3), {"dims": (1, 0)}), ((), {"dims": ()})]),
    lambda x, dims: x.permute(dims),
    ANY,
)
record(
    "expand",
    _one(
        [
            ((3, 1), {"shape": (3, 4)}),
            ((1,), {"shape": (2, 5)}),
            ((), {"shape": (2, 3)}),
            ((2, 1, 3), {"shape": (4, 2, 5, 3)}),
            ((1, 3), {"shape": (0, 3)}),
        ]
    ),
    lambda x, shape: x.expand(shape),
    ANY,
)
record(
    "slice",
    _one(
        [
            ((5,), _region((1,), (4,), (1,))),
            ((7, 6), _region((0, 1), (7, 6), (3, 2))),
            ((4,), _region((2,), (2,), (1,))),
            ((), _region((), (), ())),
        ]
    ),
    lambda x, starts, stops, steps: x[_slices(starts, stops, steps)],
    ANY,
)
record(
    "as_strided",
    _one(
        [
            ((12,), _strided((3, 3), (2, 1), 1)),
            ((3, 4), _strided((4, 3), (1, 4), 0)),
            ((4,), _strided((2, 0), (1, 1), 0)),
            ((3,), _strided((), (), 2)),
        ]
    ),
    lambda x, size, stride, offset: x.as_strided(size, stride, offset),
    ANY,
)
record(
    "flip",
    _one(
        [
            ((4,), {"dims": (0,)}),
            ((2, 3, 4), {"dims": (0, 2)}),
            ((0, 2), {"dims": (1,)}),
            ((), {"dims": ()}),
        ]
    ),
    lambda x, dims: torch.flip(x, dims),
    ANY,
)
record(
    "pad",
    _one(
        [
            ((3,), _padding((1,), (2,), (0,))),
            ((2, 3), _padding((0, 1), (2, 0), (1, 2), 1.0)),
            ((0, 2), _padding((1, 0), (1, 0), (2, 0))),
            ((), _padding((), (), ())),
        ]
    ),
    _pad,
    NUMBERS,
)
record("concat", concat_samples, lambda *xs, dim: torch.cat(xs, dim), ANY)
record("slice_update", slice_update_samples, _slice_update, ANY)
record("as_strided_update", as_strided_update_samples, _as_strided_update, ANY)

# --- indexing --------------------------------------------------------------------------------


def _ids(rng: RNG, size: int, shape: Shape, wrap: bool = False) -> np.ndarray:
    return np.asarray(rng.integers(-size if wrap else 0, size, shape), np.int64)


def gather_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, index, dim in (
        ((5,), (8,), 0),
        ((3, 4), (2, 4), 0),
        ((3, 4), (3, 6), 1),
        ((2, 3, 4), (1, 3, 2), 1),
        ((3,), (0,), 0),
    ):
        yield Sample((draw(rng, dtype, x), _ids(rng, x[dim], index)), {"dim": dim})


def scatter_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    reductions = ("", "add", "mul", "amax", "amin") if dtype.kind != "bool" else ("",)
    for x, index, dim in (
        ((7,), (5,), 0),
        ((3, 4), (3, 2), 1),
        ((4, 3), (2, 3), 0),
        ((3,), (0,), 0),
    ):
        for reduce in reductions:
            ids = _ids(rng, x[dim], index)
            if not reduce:  # writing twice to one place has no gradient
                ids = np.argsort(rng.random(x), axis=dim)[tuple(slice(0, n) for n in index)]
            base = draw(rng, dtype, x, 1, 4)
            yield Sample((base, ids, draw(rng, dtype, index, 1, 4)), {"dim": dim, "reduce": reduce})


_SCATTER = {"add": "sum", "mul": "prod", "amax": "amax", "amin": "amin"}


def _scatter(x: Any, index: Any, source: Any, *, dim: int, reduce: str) -> Any:
    if not reduce:
        return torch.scatter(x, dim, index, source)
    return torch.scatter_reduce(x, dim, index, source, _SCATTER[reduce], include_self=True)


_INDEXED: tuple[tuple[Shape, tuple[Shape, ...], int], ...] = (
    ((5,), ((3,),), 0),
    ((5, 3), ((2, 2),), 0),
    ((4, 5), ((3,),), 1),
    ((4, 5), ((3,), (3,)), 0),
    ((2, 4, 5, 3), ((3, 1), (2,)), 1),
    ((5,), ((),), 0),
    ((5, 2), ((0,),), 0),
    ((6, 8), ((300,),), 0),
)


def index_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, indices, dim in _INDEXED:
        ids = [_ids(rng, shape[dim + i], s, wrap=True) for i, s in enumerate(indices)]
        yield Sample((draw(rng, dtype, shape), *ids), {"dim": dim})


def index_put_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, indices, dim in _INDEXED:
        middle = np.broadcast_shapes(*indices)
        full = (*shape[:dim], *middle, *shape[dim + len(indices) :])
        ids = [_ids(rng, shape[dim + i], s, wrap=True) for i, s in enumerate(indices)]
        if dtype.kind != "bool":
            for source in (full, ()):
                yield Sample(
                    (draw(rng, dtype, shape), draw(rng, dtype, source), *ids),
                    {"dim": dim, "accumulate": True},
                )
        if len(indices) == 1 and int(np.prod(middle, dtype=int)) <= shape[dim]:
            once = rng.permutation(shape[dim])[: int(np.prod(middle, dtype=int))].reshape(middle)
            yield Sample(
                (draw(rng, dtype, shape), draw(rng, dtype, full), once.astype(np.int64)),
                {"dim": dim, "accumulate": False},
            )


def _index_put(x: Any, source: Any, *indices: Any, dim: int, accumulate: bool) -> Any:
    k = len(indices)
    rank = len(torch.broadcast_shapes(*(i.shape for i in indices)))
    middle = torch.broadcast_shapes(*(i.shape for i in indices))
    source = source.expand([*x.shape[:dim], *middle, *x.shape[dim + k :]])
    front = x.movedim(tuple(range(dim, dim + k)), tuple(range(k)))
    source = source.movedim(tuple(range(dim, dim + rank)), tuple(range(rank)))
    result = front.index_put(indices, source, accumulate=accumulate)
    return result.movedim(tuple(range(k)), tuple(range(dim, dim + k)))


record("gather", gather_samples, lambda x, index, dim: torch.gather(x, dim, index), ANY)
record("scatter", scatter_samples, _scatter, ANY, tolerance=4.0)
record("index", index_samples, lambda x, *ids, dim: x[(slice(None),) * dim + ids], ANY)
record("index_put", index_put_samples, _index_put, ANY, tolerance=64.0)

# --- sorting and cumulative ------------------------------------------------------------------


def sort_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (((7,), 0), ((3, 5), 1), ((4, 3), 0), ((0, 3), 1), ((3, 0), 1)):
        for descending in (False, True):
            yield Sample(
                (distinct(rng, dtype, shape),),
                {"dim": dim, "descending": descending, "stable": False},
            )
    ties = (
        draw(rng, dtype, (2, 40), 0, 5)
        if dtype.is_integer
        else np.round(draw(rng, dtypes.f64, (2, 40), 0, 5)).astype(dtype.numpy)
    )
    for descending in (False, True):
        attrs = {"dim": 1, "descending": descending, "stable": True}
        yield Sample((ties,), attrs, gradient=False)
        if dtype.is_float:
            bad = np.array([[1, np.nan, -np.inf, np.inf, np.nan, 0]]).astype(dtype.numpy)
            yield Sample((bad,), attrs, gradient=False)


def topk_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim, k in (((7,), 0, 3), ((3, 5), 1, 5), ((4, 3), 0, 1), ((4, 3), 1, 0)):
        for largest in (False, True):
            yield Sample((distinct(rng, dtype, shape),), {"k": k, "dim": dim, "largest": largest})


def cumulative_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (((7,), 0), ((3, 5), 1), ((4, 3), 0), ((0, 3), 0), ((2, 3, 4), 1), ((1,), 0)):
        yield Sample((draw(rng, dtype, shape, -2, 3),), {"dim": dim})


def running_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    yield from cumulative_samples(dtype, rng)
    if dtype.is_float:
        bad = np.array([[1, 2, np.nan, 3, np.nan, 9], [1, 1, 0, 1, 2, 2]]).astype(dtype.numpy)
        yield Sample((bad,), {"dim": 1}, gradient=False)


record(
    "sort",
    sort_samples,
    lambda x, dim, descending, stable: torch.sort(x, dim=dim, descending=descending, stable=stable),
    (*BOOL, *NUMBERS),
)
record("topk", topk_samples, lambda x, k, dim, largest: torch.topk(x, k, dim, largest), NUMBERS)
record(
    "cumsum",
    cumulative_samples,
    lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype),
    NUMBERS,
    tolerance=8.0,
)
record(
    "cumprod",
    cumulative_samples,
    lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype),
    NUMBERS,
    tolerance=16.0,
)
record("cummax", running_samples, lambda x, dim: torch.cummax(x, dim), NUMBERS)
record("cummin", running_samples, lambda x, dim: torch.cummin(x, dim), NUMBERS)
