"""x[indices] = y, x.index_add_(...), x.scatter_(...): written where the indices say, if few are.

An in-place write is else an operator whose result, a changed copy of all of x, is written back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.memory import contiguous
from graphc.ir.numpy_calls import may_share_memory
from graphc.ir.op import Attrs, Op, OpError

from .context import local
from .eager import _signature, _wrap, is_plain
from .few_places import FEW, FITS, write_places
from .history import requires_grad
from .near import is_near
from .promote import operand
from .tensor import Parameter, Tensor
from .values import Eager

F = TypeVar("F", bound=Callable[..., Any])
_PART = 4  # of many numbers at most one of so many: of more, copies are little beside the writes
_PLAIN = frozenset({Tensor, Parameter})


def write_at(op: Op, x: Tensor, operands: tuple[Tensor, ...], attrs: Attrs) -> bool:
    """x = op(x, *operands) in x's memory, for an operator that changes x at some places alone;
    whether that was done."""
    if Eager.prepare is None or type(x) not in _PLAIN or not is_plain(x):
        return False
    mine = x._graphc_array
    arrays = [mine]
    written = 1
    for other in operands:
        if type(other) not in _PLAIN or other._graphc_trace is not None or not is_near(other) or (
            local.grad and requires_grad(other)
        ):
            return False
        array = other._graphc_array
        if may_share_memory(mine, array):
            return False
        arrays.append(array)
        written = max(written, array.size)
    try:
        if op is ops.index_put:  # by rows
            lead, count = attrs["dim"], len(operands) - 1
            rows = np.broadcast_shapes(*[a.shape for a in arrays[2:]])
            written = math.prod((*mine.shape[:lead], *rows, *mine.shape[lead + count :]))
        signature = _signature(op, arrays, attrs)
    except (ValueError, OpError):  # the operator says what is wrong
        return False
    if signature.ready is None:
        signature.prepare(op, attrs, Eager.prepare)
    if signature.into is None or (
        written * _PART > mine.size >= FEW and not hasattr(signature.into, "in_memory")
    ):
        return False
    try:
        signature.into(*arrays, mine)
    except IndexError:  # nothing is written
        return False
    x._graphc_storage.version += 1
    if hasattr(signature.into, "rows"):
        _note(op, attrs, arrays, signature.into)
    return True


def _note(op: Op, attrs: Attrs, arrays: list[np.ndarray], into: Any) -> None:
    name, rows = "index_add", into.rows
    x, source, index = arrays
    if op is ops.scatter:
        name = "scatter_add" if attrs["reduce"] else "scatter"
        index, source = source, index
    kind: tuple[Any, ...] = (source.dtype, source.shape)
    if op is ops.scatter and not any(source.strides):  # a number, which is repeated
        kind, rows = (None, None), into.number
    _note_kind(name, attrs["dim"], x, index, kind, rows)


def _note_kind(
    name: str, dim: int, x: np.ndarray, index: np.ndarray, kind: tuple[Any, ...], rows: Any
) -> None:
    if len(_writers) >= _LIMIT:
        _writers.clear()
    types = [part for array in (x, index) for part in (array.dtype, array.shape)]
    for each in (dim, dim - x.ndim):
        _writers[(name, each, *types, *kind)] = rows


def _note_larger(
    name: str, dim: int, x: Tensor, index: Tensor, source: Tensor, part: tuple[slice, ...]
) -> None:
    """The same of a source of which only a part is written."""
    mine, places, values = x._graphc_array, index._graphc_array, source._graphc_array
    types = mine.dtype, mine.shape, places.dtype, places.shape, values.dtype
    rows = _writers.get((name, dim, *types, places.shape))
    if rows is not None:
        _note_kind(
            name, dim, mine, places, (values.dtype, values.shape),
            lambda places, values, out: rows(places, contiguous(values[part]), out),
        )


# what writes rows or numbers to an array, by the method, the dim and the types of a call that was
# done before
_writers: dict[Any, Any] = {}
_LIMIT = 10_000


def write_again(name: str, x: Tensor, dim: Any, index: Any, source: Any) -> bool:
    """x.index_add_(dim, index, source), scatter_ or scatter_add_ of few numbers, as it was done
    before to such tensors; whether it was done."""
    if Eager.prepare is None or type(index) is not Tensor or type(dim) is not int:
        return False
    kind: tuple[Any, ...]
    try:
        mine, places = x._graphc_array, index._graphc_array
        if type(source) in _PLAIN:
            values = source._graphc_array
            kind = values.dtype, values.shape
        elif type(source) in (int, float) and mine.dtype.char in "fd" and abs(source) < FITS:
            source, kind = operand(source, x.dtype), (None, None)
            values = source._graphc_array
        else:
            return False
    except AttributeError:  # of a trace, or without dense memory
        return False
    write = _writers.get((name, dim, mine.dtype, mine.shape, places.dtype, places.shape, *kind))
    if (
        write is None or type(x) not in _PLAIN or not is_plain(x) or not _is_operand(source)
        or not _is_operand(index) or not (are_apart(mine, places) and are_apart(mine, values))
    ):
        return False
    given = (values, places) if name == "index_add" else (places, values)
    if write(*given, mine) is None:
        return False
    x._graphc_storage.version += 1
    return True


def in_copy(function: F) -> F:
    """index_add(), index_copy(), index_fill(), scatter() or scatter_add(): of few numbers without
    history a copy, to which the plainest of arguments are written."""
    name = function.__name__

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if (
            len(args) == 4 and not kwargs and local.trace is None and local.counted is None
            and type(args[0]) in _PLAIN and type(args[2]) in _PLAIN
        ):
            x = args[0]
            if x._graphc_trace is None and args[2]._graphc_trace is None and (
                Eager.elsewhere is None and not (local.grad and requires_grad(x))
            ):
                array = x._graphc_array
                if array.size < FEW and array.flags.c_contiguous:
                    copy = _wrap(array.copy())
                    if write_again(name, copy, *args[1:]) or write_by_name(
                        name, copy, args[1:], kwargs
                    ):
                        return copy
        return function(*args, **kwargs)

    return cast(F, wrapper)


def _is_operand(x: Tensor) -> bool:
    return x._graphc_trace is None and is_near(x) and not (local.grad and requires_grad(x))


def are_apart(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays share no memory."""
    return (a.flags.owndata and b.flags.owndata and a is not b) or not may_share_memory(a, b)


_ASKED_ONE_BY_ONE = 64  # positions, of which a list's smallest is found before a ufunc has begun


def is_negative(places: np.ndarray) -> bool:
    """Whether one of some positions is."""
    if places.size <= _ASKED_ONE_BY_ONE:
        return bool(min(places.ravel().tolist()) < 0)
    return bool(places.min() < 0)


def write_by_name(name: str, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """The in-place method of this name, of its plainest arguments; whether that was done."""
    if kwargs or len(args) != 3 or type(args[0]) is not int or type(args[1]) not in _PLAIN:
        return False
    dim, index, source = args
    if local.trace is not None or x._graphc_trace is not None or index._graphc_trace is not None:
        return False
    sizes, places = x._graphc_array.shape, index._graphc_array.shape
    if not -len(sizes) <= dim < len(sizes) or index.dtype is not dtypes.i64 or 0 in places:
        return False
    dim %= len(sizes)
    if x.dtype is dtypes.bool_:
        return False
    if type(source) in (int, float) and name in ("index_fill", "scatter"):
        if not (x.dtype.is_float and abs(source) < FITS):
            return False  # whether it fits is the function's to say
        value = operand(source, x.dtype)
    elif type(source) in _PLAIN and name != "index_fill" and source._graphc_trace is None:
        value = source
    else:
        return False
    if value.dtype is not x.dtype:
        return False
    given = value._graphc_array.shape
    if name.startswith("index"):
        if len(places) != 1 or given not in ((), (*sizes[:dim], *places, *sizes[dim + 1 :])) or (
            given == () and name != "index_fill"
        ):
            return False
        if name != "index_fill" and is_near(index) and is_negative(index._graphc_array):
            return False  # refused by the function; the operator counts such from the end
        adds = name == "index_add"
        if dim == 0 and not adds and write_places(x, index, value):
            return True
        attrs = {"dim": dim, "accumulate": adds}
        return write_at(ops.index_put, x, (value, index), attrs)
    if len(places) != len(sizes) or any(
        n > sizes[d] for d, n in enumerate(places) if d != dim
    ):
        return False
    part: tuple[slice, ...] | None = None
    if not given:
        value = value.expand(places)
    elif given != places:
        if len(given) != len(places) or any(n > m for n, m in zip(places, given, strict=True)):
            return False
        part = tuple(map(slice, places))
        value = value[part]
    reduce = "add" if name == "scatter_add" else ""
    done = write_at(ops.scatter, x, (index, value), {"dim": dim, "reduce": reduce})
    if done and part is not None:
        _note_larger(name, dim, x, index, source, part)
    return done
