"""Reading and writing at indices: gather, scatter, index_*, masked_*, take, nonzero."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.op import OutOfRange

from .. import promote
from ..dispatch import apply, constant, inplace
from ..eager import _wrap
from ..errors import kind_name, located
from ..few_places import picked_by_mask, scattered_few, write_places
from ..overlap import check_apart
from ..ownership import owns_result
from ..replayed import replayed
from ..tensor import Tensor, concrete
from ..written_at import in_copy
from . import pointwise as P
from .arguments import (
    broadcast_sizes,
    environment,
    fitting,
    public_size,
    recorded_as,
    shape,
    with_out,
    wrap_dim,
)
from .copies import contiguous
from .dtype_names import CPP_NAMES, iinfo
from .index_vectors import (
    not_negative,
    require_index,
    require_one_rank,
    require_slices,
    vector,
)
from .indexing import put as put_selection
from .indexing import read_index, take
from .parts import slice_dim
from .positions import places_of
from .repetition import broadcast_tensors
from .selected import rows_first

_CURE = "its result's size depends on values: call it outside the compiled function"
_REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "amax",
               "amin": "amin"}


# --- gather, scatter ---------------------------------------------------------------------------


@replayed
@with_out
@owns_result
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """input[..., index[i], ...] along `dim`; the result has index's shape."""
    along = wrap_dim(dim, input.ndim)
    places = require_index("gather", index)
    if 0 in shape(places) and input.ndim != places.ndim:
        nothing: Tensor = input.reshape(-1)[:0]
        return nothing.reshape(shape(places))  # type: ignore[no-any-return]
    if input.ndim == 0 or places.ndim == 0:
        require_one_rank(input, places, "input")
        flat = gather(input.reshape(-1), 0, places.reshape(-1))
        return flat.reshape(shape(places))  # type: ignore[no-any-return]
    result: Tensor = apply(ops.gather, input, places, dim=along)
    return result


def _scatter(
    name: str, x: Tensor, dim: int, index: Tensor, src: Any, reduce: str
) -> Tensor:
    along = wrap_dim(dim, x.ndim)
    places = require_index(name, index)
    if isinstance(src, Tensor):
        if src.dtype is not x.dtype:
            raise RuntimeError(located(
                f"{name}(): Expected self.dtype to be equal to src.dtype"
            ))
    else:
        src = promote.operand(fitting(src, x.dtype), x.dtype)
        src = apply(ops.expand, src, shape=shape(places))
    if 0 in shape(places):
        return x.clone()  # type: ignore[no-any-return]
    if x.ndim == 0:
        require_one_rank(x, places, "self")
        flat = _scatter(name, x.reshape(1), 0, places.reshape(-1), src.reshape(-1), reduce)
        return flat.reshape(())  # type: ignore[no-any-return]
    src = _cut(name, src, shape(places))
    if reduce and x.dtype is dtypes.bool_:  # or, and
        kind = "amin" if reduce in ("mul", "amin") else "amax"
        bytes_ = promote.cast(x, dtypes.u8), places, promote.cast(src, dtypes.u8)
        return promote.cast(apply(ops.scatter, *bytes_, dim=along, reduce=kind), x.dtype)
    result: Tensor = apply(ops.scatter, x, places, src, dim=along, reduce=reduce)
    return result


def _cut(name: str, src: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    """The part of a larger src that the index covers."""
    if src.ndim != len(sizes):
        raise RuntimeError(located(
            "Index tensor must have the same number of dimensions as src tensor "
            f"({name}: {len(sizes)} and {src.ndim})"
        ))
    env = environment()
    for d, (have, want) in enumerate(zip(shape(src), sizes, strict=True)):
        if env.equal(have, want):
            continue
        if not env.at_most(want, have):
            raise RuntimeError(located(
                f"Expected index {list(sizes)} to be no larger than src {list(shape(src))} "
                f"({name}, dimension {d})"
            ))
        src = slice_dim(src, d, 0, want)
    return src


@in_copy
@replayed
@with_out
@owns_result
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with src (or a number) written at `index` along `dim`."""
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError(located("reduce argument must be either add or multiply."))
    source = src if src is not None else value
    return _scatter("scatter", input, dim, index, source, _REDUCTIONS[reduce] if reduce else "")


@in_copy
@replayed
@with_out
@owns_result
@recorded_as("ScatterAddBackward0")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with src added at `index` along `dim`."""
    return _scatter("scatter_add", input, dim, index, src, "add")


@replayed
@with_out
@owns_result
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine src with what is at `index`: "sum", "prod", "mean", "amax" or "amin"."""
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(located(
            "reduce argument must be either sum, prod, mean, amax or amin, got " + reduce
        ))
    x = input
    if not include_self:
        x = _without_self(input, dim, index, reduce)
    kind = "sum" if reduce == "mean" else reduce
    result = _scatter("scatter_reduce", x, dim, index, src, _REDUCTIONS[kind])
    if reduce != "mean":
        return result
    ones = apply(ops.full, shape=shape(src), value=_one(x), dtype=x.dtype)
    start = apply(ops.full, shape=shape(x), value=_one(x) * int(include_self), dtype=x.dtype)
    counts = P.clamp(_scatter("scatter_reduce", start, dim, index, ones, "add"), min=1)
    mode = None if x.dtype.is_float else "floor"
    return P.div(result, counts, rounding_mode=mode)


def _one(x: Tensor) -> Any:
    return 1.0 if x.dtype.is_float else 1


def _without_self(x: Tensor, dim: int, index: Tensor, reduce: str) -> Tensor:
    """x with the neutral element at the places that will be written."""
    if reduce in ("sum", "mean"):
        neutral: Any = 0
    elif reduce == "prod":
        neutral = 1
    elif x.dtype.is_float:
        neutral = float("-inf") if reduce == "amax" else float("inf")
    elif x.dtype is dtypes.bool_:
        neutral = reduce == "amin"
    else:
        neutral = iinfo(x.dtype).min if reduce == "amax" else iinfo(x.dtype).max
    return _scatter("scatter_reduce", x, dim, index, neutral, "")


# --- along one dim by a vector of positions ----------------------------------------------------


@rows_first
@with_out
@owns_result
@recorded_as("IndexSelectBackward0")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `dim` at the positions of a vector."""
    along = wrap_dim(dim, input.ndim)
    places = vector("index_select", index)
    try:
        places = not_negative(places, shape(input)[along] if input.ndim else 1, along)
        if input.ndim == 0:
            count = shape(places)[0]
            if not environment().equal(count, 1):
                raise RuntimeError(located(
                    "index_select(): Index to scalar can have only 1 value, got "
                    f"{count} value(s)"
                ))
            return take(input.reshape(1), [places], 0).reshape(())  # type: ignore[no-any-return]
        return take(input, [places], along)
    except IndexError as error:
        # torch's class hangs on the dtype and on how many dims there are
        raise OutOfRange(located(f"index out of range in self: {error}")) from None


def _index_write(name: str, x: Tensor, dim: int, index: Tensor, source: Any, add: bool) -> Tensor:
    along = wrap_dim(dim, x.ndim)
    places = vector(name, index)
    if isinstance(source, Tensor) and source.dtype is not x.dtype:
        raise RuntimeError(located(
            f"{name}(): self and source expected to have the same dtype, but got (self) "
            f"{x.dtype} and (source) {source.dtype}"
        ))
    value = source if isinstance(source, Tensor) else promote.operand(source, x.dtype)
    if name == "index_copy" and source.ndim != x.ndim:
        require_slices(x, source)
    if x.ndim == 0:
        flat = _index_write(name, x.reshape(1), 0, places, value.reshape(-1), add)
        return flat.reshape(())  # type: ignore[no-any-return]
    if isinstance(source, Tensor) and name != "index_fill":
        if source.ndim != x.ndim:
            value = source.reshape(1) if source.ndim == 0 else source
        have, want = shape(value)[along : along + 1], shape(places)
        if have and not environment().equal(have[0], want[0]):
            raise RuntimeError(located(
                f"{name}(): Number of indices ({want[0]}) should be equal to source.size(dim): "
                f"({have[0]}), for dim: {along}"
            ))
    if name != "index_fill":
        places = not_negative(places, shape(x)[along], along)
    try:
        return _index_put(x, value, [places], along, add)
    except IndexError as error:
        if not add:
            raise
        raise OutOfRange(str(error)) from None  # torch's class hangs on how many dims there are


def _index_put(
    x: Tensor, value: Tensor, places: list[Tensor], dim: int, accumulate: bool
) -> Tensor:
    """The operator; adding bools is counting them."""
    if accumulate and x.dtype is dtypes.bool_:
        x, value = promote.cast(x, dtypes.i64), promote.cast(value, dtypes.i64)
        count = apply(ops.index_put, x, value, *places, dim=dim, accumulate=True)
        return promote.cast(count, dtypes.bool_)
    result: Tensor = apply(ops.index_put, x, value, *places, dim=dim, accumulate=accumulate)
    return result


def _same_slices(name: str, x: Tensor, dim: int, source: Tensor) -> None:
    """Raise RuntimeError where the sizes differ in another dim than `dim`."""
    along = wrap_dim(dim, x.ndim)
    a, b = shape(x), shape(source)
    env = environment()
    if len(a) == len(b) and all(
        d == along or env.equal(m, n) for d, (m, n) in enumerate(zip(a, b, strict=True))
    ):
        return
    if len(a) > 1 or len(b) > 1:
        raise RuntimeError(located(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(a)} source.shape = {list(b)}"
        ))


@in_copy
@with_out
@owns_result
@recorded_as("IndexAddBackward0")
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """A copy with alpha * source added at the positions of `index`."""
    _same_slices("index_add", input, dim, source)
    scaled = source if type(alpha) is int and alpha == 1 else P.mul(source, alpha)
    return _index_write("index_add", input, dim, index, scaled, True)


@in_copy
@with_out
@owns_result
@recorded_as("IndexCopyBackward0")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with source written at the positions of `index`."""
    return _index_write("index_copy", input, dim, index, source, False)


@in_copy
@with_out
@owns_result
@recorded_as("IndexFillBackward0")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with a number written at the positions of `index`."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(located(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            ))
        value = promote.cast(value, input.dtype)
    else:
        value = fitting(value, input.dtype)
    if not isinstance(value, Tensor):
        return _index_write("index_fill", input, dim, index, value, False)
    # a select, so that the value's gradient counts a repeated position once
    along = wrap_dim(dim, input.ndim)
    size = shape(input)[along] if input.ndim else 1
    nowhere = apply(ops.full, shape=(size,), value=False, dtype=dtypes.bool_)
    mask = _index_write("index_fill", nowhere, 0, index, True, False)
    sizes = [1] * input.ndim
    if sizes:
        sizes[along] = size
    result: Tensor = apply(ops.where, mask.reshape(tuple(sizes)), value, input)
    return result


def index_put(
    input: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with values written (or added) at a tuple of index tensors."""
    return index_put_(input.clone(), indices, values, accumulate)


def index_put_(
    self: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    """Write (or add) values at a tuple of index tensors."""
    if type(indices) in (tuple, list) and write_places(self, tuple(indices), values, accumulate):
        return self
    for operand in (values, *(i for i in indices if isinstance(i, Tensor))):
        check_apart(self, operand, whole=False)
    # None in `indices` means the whole dim
    entries = tuple(slice(None) if i is None else i for i in indices)
    selection = read_index(self, entries)
    if values.dtype is not self.dtype:
        if accumulate or not selection.entries:
            selection.entries.append("positions")
        selection.require_dtype(values)
        values = promote.cast(values, self.dtype)
    if not selection.tensors:
        value = P.add(selection.view, values) if accumulate else values
        inplace(selection.view, value)
        return self
    put_selection(selection, values, accumulate)
    return self


# --- masks -------------------------------------------------------------------------------------


def _mask(name: str, mask: Any) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(located(
            f"{name}(): argument 'mask' (position 1) must be Tensor, not {kind_name(mask)}. Cure: "
            "torch.tensor(mask)"
        ))
    if mask.dtype is not dtypes.bool_:
        found = CPP_NAMES[mask.dtype]
        raise RuntimeError(located(
            f"{name}: expected BoolTensor for mask, got {found}"
            if name != "masked_fill" else
            f"masked_fill_ only supports boolean masks, but got mask with dtype {found}"
        ))
    return mask


@recorded_as("MaskedFillBackward0")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """value where mask is True."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(located(
                "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            ))
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(located(
                f"value cannot be converted to type {CPP_NAMES[input.dtype]} without overflow: "
                f"it is {value.dtype}"
            ))
        filler = promote.cast(value, input.dtype)
    else:
        filler = promote.operand(fitting(value, input.dtype), input.dtype)
    return contiguous(apply(ops.where, _mask("masked_fill", mask), filler, input))


@with_out
@recorded_as("MaskedSelectBackward0")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask is True, 1-d."""
    if type(mask) is Tensor and mask.shape == input.shape and (
        few := picked_by_mask(input, mask)
    ) is not None:
        return few
    truth = concrete(_mask("masked_select", mask), "masked_select()", _CURE)
    sizes = broadcast_sizes(shape(input), shape(mask))
    x = apply(ops.expand, input, shape=sizes)
    if not sizes:
        return take(x.reshape(1), [constant(np.arange(int(truth)))], 0)
    whole = np.broadcast_to(truth, np.broadcast_shapes(tuple(input.shape), truth.shape))
    places = [constant(p, fresh=True) for p in places_of(whole)]
    return take(x, places, 0)


@recorded_as("MaskedScatterBackward0")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the next elements of source where mask is True."""
    if source.dtype is not input.dtype:
        raise RuntimeError(located(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{promote._name(input.dtype)} and {promote._name(source.dtype)}"
        ))
    if (few := scattered_few(input, mask, source)) is not None:
        return _wrap(few)
    input, full = broadcast_tensors(input, _mask("masked_scatter", mask))
    flat = promote.cast(full.reshape(-1), dtypes.i64)
    order = P.clamp(P.sub(apply(ops.cumsum, flat, dim=0), 1), min=0)
    picked = take(source.reshape(-1), [order], 0).reshape(shape(input))
    result: Tensor = apply(ops.where, full, picked, input)
    return result.contiguous()  # type: ignore[no-any-return]


# --- flat positions ----------------------------------------------------------------------------


@with_out
def take_flat(input: Tensor, index: Tensor) -> Tensor:
    """The elements at flat positions (torch.take)."""
    return take(input.reshape(-1), [require_index("take", index)], 0)


@owns_result
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with source written (or added) at flat positions."""
    places = require_index("put_", index).reshape(-1)
    if source.dtype is not input.dtype:
        raise RuntimeError(located(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{promote._name(input.dtype)} and source.dtype = {promote._name(source.dtype)}"
        ))
    changed = _index_put(input.reshape(-1), source.reshape(-1), [places], 0, accumulate)
    return changed.reshape(shape(input))  # type: ignore[no-any-return]


def put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write (or add) source at flat positions."""
    return inplace(self, put(self, index, source, accumulate))


@replayed
@with_out
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather() with broadcasting of the other dims; flat without a dim."""
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    along = wrap_dim(dim, input.ndim)
    a, b = list(shape(input)), list(shape(indices))
    if len(a) != len(b):
        raise RuntimeError(located(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {len(a)} dimensions for input, and {len(b)} dimensions for indices"
        ))
    places = require_index("take_along_dim", indices)
    indices = P.where(P.lt(places, 0), P.add(places, public_size(a[along])), places)
    a[along] = b[along] = 1
    common = broadcast_sizes(tuple(a), tuple(b))

    def widened(x: Tensor) -> Tensor:
        sizes = (*common[:along], shape(x)[along], *common[along + 1 :])
        wide: Tensor = apply(ops.expand, x, shape=sizes)
        return wide

    return gather(widened(input), along, widened(indices))
