"""x[...] and x[...] = value: torch's indexing, basic (views) and advanced (gathers).

An index is read from left to right into a chain of views; what is left are index tensors at some
dims of the view, which one `index` (or `index_put`) operator takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.memory import on_host

from .. import promote
from ..context import local
from ..dispatch import apply, constant, inplace
from ..errors import located
from ..few_places import picked_at, picked_by_mask, write_places
from ..indexed_layout import as_indexed
from ..known import values
from ..near import are_near, is_near
from ..numbers import is_traced_number, plain_size
from ..overlap import check_apart
from ..picks import is_there, picked
from ..placement import is_loose, place_at, selected
from ..recalled import note, recall
from ..tensor import Tensor, concrete
from ..transfer import moved
from ..values import Eager
from ..written_at import write_at
from .arguments import environment, fitting, is_mask, named, require_fit, shape
from .creation import tensor
from .dtype_names import TYPE_NAMES
from .parts import drop_dim, slice_dim
from .positions import places_of
from .shape import unsqueeze
from .written_parts import write_part

_MASK_CURE = "use torch.where or a multiplication by the mask, or index outside the function"
_INTEGERS = (dtypes.i64, dtypes.i32, dtypes.i16, dtypes.i8)


class Selection:
    """What an index leaves: a view, and at each of its dims an index tensor or None."""

    def __init__(self, x: Tensor) -> None:
        self.view = x
        self.dim = 0  # the next dim of `view` that an index entry takes
        self.tensors: list[tuple[int, Tensor]] = []
        self.entries: list[str] = []  # what selects more than a view: "mask" or "positions"

    # --- one entry each ----------------------------------------------------------------------

    def integer(self, index: Any, original: int) -> None:
        size = shape(self.view)[self.dim]
        place = plain_size(index)
        env = environment()
        start = place if env.not_negative(place) else place + size
        if not env.not_negative(start) or not env.at_most(start + 1, size):
            raise IndexError(located(
                f"index {place} is out of bounds for dimension {original} with size {size}"
            ))
        part = slice_dim(self.view, self.dim, start, start + 1)
        self.view = named(drop_dim(part, self.dim), "SelectBackward0")

    def slice(self, index: slice) -> None:
        size = shape(self.view)[self.dim]
        start, stop, step = slice_bounds(index, size)
        if not (step == 1 and start == 0 and stop == size):
            self.view = slice_dim(self.view, self.dim, start, stop, step)
        self.dim += 1

    def new_dim(self) -> None:
        self.view = unsqueeze(self.view, self.dim)
        self.dim += 1

    def tensor(self, index: Tensor, original: int) -> None:
        if is_mask(index):
            self.mask(index, original)
            return
        if index.dtype not in _INTEGERS:
            raise IndexError(located(
                "tensors used as indices must be long, int, byte or bool tensors"
            ))
        if index.ndim == 0 and local.trace is None:
            self.integer(on_host(index._graphc_array).item(), original)
            return
        if Eager.elsewhere is not None:
            index = _beside(self.view, index)
        if index.ndim:
            self.entries.append("positions")
        self.tensors.append((self.dim, promote.cast(index, dtypes.i64)))
        self.dim += 1

    def mask(self, mask: Tensor, original: int) -> None:
        if mask.ndim == 0:
            self.flag(mask)
            return
        sizes = shape(self.view)[self.dim : self.dim + mask.ndim]
        env = environment()
        for i, size in enumerate(shape(mask)):
            if i >= len(sizes) or not env.equal(size, sizes[i]):
                raise IndexError(located(
                    f"The shape of the mask {list(shape(mask))} at index {i} does not match the "
                    f"shape of the indexed tensor {list(shape(self.view))} at index "
                    f"{self.dim + i}"
                ))
        truth = concrete(mask, "indexing by a mask", _MASK_CURE)
        self.entries.append("mask")
        for places in places_of(truth):
            self.places(places)

    def flag(self, flag: Any) -> None:
        """True or False: a new dim with one element or none."""
        self.view = unsqueeze(self.view, self.dim)
        if isinstance(flag, Tensor):
            flag = bool(concrete(flag, "indexing by a 0-d mask", _MASK_CURE))
            self.entries.append("positions")
        self.places(np.zeros(1 if flag else 0, np.int64))

    def places(self, known: np.ndarray) -> None:
        """Positions that are known now, made where the tensor lies."""
        if Eager.elsewhere is None:
            made = constant(known, fresh=True)
        else:
            with selected(place_at(self.view)):
                made = constant(known)
        self.tensors.append((self.dim, made))
        self.dim += 1

    # --- the result --------------------------------------------------------------------------

    def require_dtype(self, value: Tensor) -> None:
        """Raise RuntimeError for a value of another dtype where torch's index_put_ does: it casts
        what is written to a view, and one number for a mask."""
        if not self.entries:
            return
        if self.entries == ["mask"] and value._graphc_type.elements == 1:
            if place_at(value) is None:
                fitting(value.item(), self.view.dtype)  # raises where it does not fit
            return
        raise RuntimeError(located(
            "Index put requires the source and destination dtypes match, got "
            f"{promote._name(self.view.dtype)} for the destination and "
            f"{promote._name(value.dtype)} for the source. Cure: value.to({self.view.dtype})"
        ))

    def arranged(self) -> tuple[Tensor, list[Tensor], int]:
        """A view whose indexed dims are neighbours, the index tensors, and the first such dim.

        Index tensors that are not neighbours put their result dims first, as in NumPy.
        """
        dims = [dim for dim, _ in self.tensors]
        tensors = [tensor for _, tensor in self.tensors]
        if dims == list(range(dims[0], dims[0] + len(dims))):
            return self.view, tensors, dims[0]
        rest = [d for d in range(self.view.ndim) if d not in dims]
        moved: Tensor = apply(ops.permute, self.view, dims=(*dims, *rest))
        return moved, tensors, 0


def _beside(view: Tensor, index: Tensor) -> Tensor:
    """Positions where the tensor lies that they are of. Raises RuntimeError for those of another
    device than the CPU."""
    here, there = place_at(view), place_at(index)
    if here is there or is_loose(index) or (there is None and index.ndim == 0):
        return index
    if there is not None:
        raise RuntimeError(located(
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({view.device})"
        ))
    return moved(index, here)


def slice_bounds(index: slice, size: Any) -> tuple[Any, Any, int]:
    """(start, stop, step) of a slice of a dim, with 0 <= start <= stop <= size."""
    step = 1 if index.step is None else index.step
    step = _bound(step)
    if not isinstance(step, int):
        raise TypeError(located("a slice's step must be a plain int under compile"))
    if step <= 0:
        raise ValueError(located("step must be greater than zero"))
    start = 0 if index.start is None else _bound(index.start)
    stop = size if index.stop is None else _bound(index.stop)
    if isinstance(size, int) and isinstance(start, int) and isinstance(stop, int):
        start, stop, step = slice(start, stop, step).indices(size)
        return start, max(start, stop), step
    env = environment()
    start, stop = _clip(start, size, env), _clip(stop, size, env)
    if not env.at_most(start, stop):
        stop = start
    return start, stop, step


def _clip(place: Any, size: Any, env: Any) -> Any:
    if place is size:
        return place
    if not env.not_negative(place):
        place = place + size
        if not env.not_negative(place):
            return 0
    return place if env.at_most(place, size) else size


def _bound(value: Any) -> Any:
    if isinstance(value, Tensor):
        return int(values(value, "a tensor as a slice bound", "use an int").item())
    if is_traced_number(value):
        return plain_size(value)
    if not hasattr(value, "__index__"):
        raise TypeError(located(
            "slice indices must be integers or None or have an __index__ method"
        ))
    return value.__index__()


# --- reading an index --------------------------------------------------------------------------


def _entries(index: Any) -> list[Any]:
    """The index as a list of entries, one per subscript."""
    if isinstance(index, tuple):
        return list(index)
    if isinstance(index, list) and _is_tuple_like(index):
        return list(index)
    return [index]


def _is_tuple_like(index: list[Any]) -> bool:
    """Old NumPy style, which torch keeps: a list that holds slices, tensors, ... is a tuple."""
    if len(index) >= 32:
        return False
    return any(
        item is None or item is Ellipsis or isinstance(item, (slice, Tensor, list, tuple))
        for item in index
    )


def _plain(entries: list[Any]) -> list[Any]:
    """Nested lists with a trace's numbers as their values: a position is decided upon."""
    return [
        _plain(list(e)) if isinstance(e, (list, tuple)) else
        e.__index__() if is_traced_number(e) else e
        for e in entries
    ]


def _as_index_tensor(entry: Any) -> Any:
    """Sequences, NumPy arrays and NumPy numbers as what the reader knows."""
    if isinstance(entry, np.ndarray):
        return constant(entry)
    if isinstance(entry, np.bool_):
        return bool(entry)
    if isinstance(entry, range):
        entry = list(entry)
    if isinstance(entry, str):
        raise TypeError(located("new(): invalid data type 'str'"))
    if isinstance(entry, (list, tuple)):
        found = tensor(_plain(list(entry)))
        return promote.cast(found, dtypes.i64) if not shape(found) or 0 in shape(found) else found
    return entry


def _consumed(entry: Any) -> int:
    if entry is None or entry is Ellipsis or isinstance(entry, bool):
        return 0
    if isinstance(entry, Tensor) and entry.dtype in (dtypes.bool_, dtypes.u8):
        return entry.ndim
    return 1


def read_index(x: Tensor, index: Any) -> Selection:
    """Apply the basic part of an index; raises IndexError or TypeError as torch does."""
    entries = [_as_index_tensor(e) for e in _entries(index)]
    used = sum(_consumed(e) for e in entries)
    rank = x.ndim
    if used > rank:
        if rank == 0 and len(entries) == 1 and not isinstance(entries[0], Tensor):
            raise IndexError(located(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
            ))
        raise IndexError(located(f"too many indices for tensor of dimension {rank}"))
    selection = Selection(x)
    original = 0
    for entry in entries:
        if isinstance(entry, bool):
            selection.flag(entry)
        elif isinstance(entry, slice):
            selection.slice(entry)
            original += 1
        elif entry is None:
            selection.new_dim()
        elif entry is Ellipsis:
            selection.dim += rank - used
            original += rank - used
        elif isinstance(entry, Tensor):
            dims = max(entry.ndim, 1) if entry.dtype is dtypes.bool_ else 1
            selection.tensor(entry, original)
            original += dims
        elif is_traced_number(entry) or hasattr(entry, "__index__"):
            selection.integer(
                entry if is_traced_number(entry) else entry.__index__(), original
            )
            original += 1
        else:
            raise IndexError(located(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                f"are valid indices (got {type(entry).__name__})"
            ))
    return selection


def _recall_key(x: Tensor, index: Any) -> Any:
    """What tells which view an index gives (recalled.py); None where that is not known."""
    if local.trace is not None or local.counted is not None or x._graphc_trace is not None or (
        not is_near(x)
    ):
        return None
    if type(index) is int:
        return _KEY, x._graphc_array.shape, index
    if type(index) is tuple:
        parts = [_entry_key(entry) for entry in index]
        return None if _UNKNOWN in parts else (_KEY, x._graphc_array.shape, "", *parts)
    part = _entry_key(index)
    return None if part is _UNKNOWN else (_KEY, x._graphc_array.shape, part)


_KEY, _UNKNOWN = object(), object()
_BOUNDS = frozenset({int, type(None)})


def _entry_key(entry: Any) -> Any:
    kind = type(entry)
    if kind is int or entry is None or entry is Ellipsis:
        return entry
    if kind is slice:
        start, stop, step = entry.start, entry.stop, entry.step
        if type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS:
            return (start, stop, step)
    return _UNKNOWN


# --- get ---------------------------------------------------------------------------------------


def getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]: a view for ints, slices, None and `...`; a copy where a tensor or mask indexes."""
    key = _recall_key(self, index)
    if key is not None:
        known = recall(key, self)
        if known is not None:
            return known
    if (
        type(index) is Tensor and local.trace is None and index._graphc_trace is None
        and self._graphc_trace is None and are_near(self, index)
        and index._graphc_array.dtype.char == "l" and index._graphc_array.ndim
        and self._graphc_array.ndim
    ):
        return as_indexed(take(self, [index], 0), self, 0, 1)  # as the rest comes to
    few = picked_at(self, index) if type(index) is tuple else picked_by_mask(self, index)
    if few is not None:
        return few
    selection = read_index(self, index)
    if not selection.tensors:
        result = selection.view
        if result is self:
            result = named(
                apply(ops.reshape, self, shape=shape(self)),
                "AliasBackward0" if index is Ellipsis else "SliceBackward0",
            )
        if key is not None:
            note(key, self, result)
        return result
    x, tensors, dim = selection.arranged()
    return picked(x, tensors, dim, as_indexed(take(x, tensors, dim), x, dim, len(tensors)))


def take(x: Tensor, tensors: list[Tensor], dim: int) -> Tensor:
    """Advanced indexing of the dims from `dim`; the operator raises on an index out of range."""
    return apply(ops.index, x, *tensors, dim=dim)  # type: ignore[no-any-return]


# --- set ---------------------------------------------------------------------------------------


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value, written into x's memory."""
    key = _recall_key(self, index)
    if key is not None and local.trace is None and (
        view := self if index is Ellipsis else recall(key, self)
    ) is not None and write_part(view, value):
        return
    if key is None and write_places(self, index, value):
        return
    masked = _single_mask(self, index)
    if masked is not None and _is_scalar(value):
        _fill_masked(self, masked, value)
        return
    selection = read_index(self, index)
    if isinstance(value, Tensor) and value.dtype is not self.dtype:
        selection.require_dtype(value)
    source = _source(value, self)
    if not selection.tensors:
        view = selection.view
        if key is not None:
            note(key, self, view)
        require_fit(source, shape(view))
        if shape(source) == shape(view):  # one that is spread may be a part
            check_apart(view, source)
        inplace(view, source, overwrite=True)
        return
    put(selection, source, accumulate=False)


def put(selection: Selection, source: Tensor, accumulate: bool) -> None:
    """Write (or add) `source` at the selected places."""
    x, tensors, dim = selection.arranged()
    extra = source.ndim - (x.ndim - len(tensors) + max(t.ndim for t in tensors))
    if extra > 0 and all(n == 1 for n in shape(source)[:extra]):
        source = source.reshape(shape(source)[extra:])
    if accumulate and x.dtype is dtypes.bool_:  # adding bools is counting them
        counted = [promote.cast(value, dtypes.i64) for value in (x, source)]
        count = apply(ops.index_put, *counted, *tensors, dim=dim, accumulate=True)
        inplace(x, promote.cast(count, x.dtype))
        return
    if is_there(x, tensors, source):
        return
    if any(t.ndim for t in tensors):  # at one place torch copies
        check_apart(x, source, whole=False)
    attrs = {"dim": dim, "accumulate": accumulate}
    if not write_at(ops.index_put, x, (source, *tensors), attrs):
        inplace(x, apply(ops.index_put, x, source, *tensors, **attrs))


def _single_mask(x: Tensor, index: Any) -> Tensor | None:
    """The mask of x[mask], of x's leading dims."""
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if isinstance(index, np.ndarray) and index.dtype == np.bool_:
        index = constant(index)
    if not isinstance(index, Tensor) or index.dtype is not dtypes.bool_ or index.ndim == 0:
        return None
    fits = index.ndim <= x.ndim and shape(index) == shape(x)[: index.ndim]
    return index if fits else None


def _is_scalar(value: Any) -> bool:
    return promote.is_number(value) or (isinstance(value, Tensor) and value.ndim == 0)


def _fill_masked(x: Tensor, mask: Tensor, value: Any) -> None:
    """x[mask] = a number: a select, which needs no positions."""
    mask = mask.reshape((*shape(mask), *(1,) * (x.ndim - mask.ndim)))
    if isinstance(value, Tensor) and value.dtype is not x.dtype and place_at(value) is None:
        fitting(value.item(), x.dtype)  # raises where it does not fit
    inplace(x, apply(ops.where, mask, _source(value, x), x))


def _source(value: Any, target: Tensor) -> Tensor:
    """The value as a tensor of the target's dtype."""
    if isinstance(value, Tensor):
        return promote.cast(value, target.dtype)
    if promote.is_number(value):  # too large for half precision is infinite, unlike in fill_()
        if target.dtype not in (dtypes.f16, dtypes.bf16) or isinstance(value, complex):
            value = fitting(value, target.dtype)
        return promote.operand(value, target.dtype)
    raise TypeError(located(
        f"can't assign a {type(value).__name__} to a torch.{TYPE_NAMES[target.dtype]}. "
        "Cure: torch.as_tensor(value)"
    ))


METHODS = {"__getitem__": getitem, "__setitem__": setitem}
