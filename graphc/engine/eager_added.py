"""x.index_add_(dim, index, rows) in eager mode: rows added in x's own memory, one after the other.

Of few numbers by NumPy or by native code (eager_rows.py), which give the same bits; of many by
native code, or, of short rows, by compiled code. Types alone say which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir.memory import contiguous
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_form import Types
from .eager_rows import MUCH, native

Ready = Callable[..., Any]


def into(op: Op, types: Types, attrs: Attrs, slow: Ready) -> Ready:
    """What `slow` does, of (x, rows, index, the array of x); see held()."""
    if not _are_rows(op, types, attrs):
        return slow
    if _count(types[1]) > _FEW:
        return of_many(op, types, attrs, slow) or slow
    words, char = _words(types, attrs), types[0].dtype.numpy.char
    return held(lambda: native.function("add_rows", char, words), slow)


def held(find: Callable[[], Ready | None], slow: Ready) -> Ready:
    """`slow`, until native code that is given all but the first operand was right so often. It has
    a function `rows` of these, which gives None where it has done nothing."""
    fill: Ready | None = None
    found: Ready | None = None
    right, wrong = 0, False

    def rows(*given: Any) -> Any:
        return None if fill is None else fill(*given)

    def written(x: Any, *given: Any) -> None:
        nonlocal fill, found, right, wrong
        if fill is not None:
            if fill(*given) is None:
                slow(x, *given)
            return
        if not wrong:
            found = found or find()
        *operands, out = given
        mine = None if found is None or wrong else out.copy()
        slow(x, *given)
        if mine is None or found is None or found(*operands, mine) is None:
            return
        if mine.tobytes() == out.tobytes():
            right += 1
            fill = found if right >= _HELD else None
        else:
            wrong = True

    written.__dict__["rows"] = rows
    return written


def of_many(op: Op, types: Types, attrs: Attrs, slow: Ready) -> Ready | None:
    """into() of many numbers, without a copy of x (`in_memory`); None: no code, or short rows."""
    fill = _of_long_rows(op, types, attrs)
    if fill is None:
        return None

    def added(x: Any, source: Any, index: Any, out: Any) -> None:
        if fill(contiguous(source), contiguous(index), out) is None:
            slow(x, source, index, out)  # says which position is out of range

    added.__dict__["in_memory"] = True
    return added


def copied(op: Op, types: Types, attrs: Attrs, ready: Ready) -> Ready | None:
    """An index_put that accumulates more than few numbers as a copy of x to which rows are added;
    None: see of_many()."""
    fill = _of_long_rows(op, types, attrs, _FEW)
    if fill is None:
        return None

    def added(x: Any, source: Any, index: Any) -> Any:
        out = x.copy()
        if fill(contiguous(source), contiguous(index), out) is None:
            return ready(x, source, index)  # positions from behind, or out of range
        return out

    return added


def _of_long_rows(op: Op, types: Types, attrs: Attrs, few: int = 0) -> Ready | None:
    """Native code that adds rows which are worth its calls; None: no such, or not more than `few`
    numbers."""
    if not _are_rows(op, types, attrs) or _count(types[1]) <= few:
        return None
    words = _words(types, attrs)
    if words[2] < _LONG:
        return None
    return native.function("add_rows", types[0].dtype.numpy.char, words, MUCH)


def _words(types: Types, attrs: Attrs) -> list[int]:
    shape: Any = types[0].shape
    count: Any = types[2].shape[0]
    dim = attrs["dim"]
    return [math.prod(shape[:dim]), count, math.prod(shape[dim + 1 :]), shape[dim]]


_LONG = 8  # numbers of a row that are worth a call of NumPy's loop
_HELD = 2  # calls that are held against NumPy
_FEW = 1024  # numbers that NumPy's backend adds one by one (backends/numpy/indexing.py)


def _are_rows(op: Op, types: Types, attrs: Attrs) -> bool:
    """Whether floats are added along one dim."""
    if op.name != "index_put" or not attrs["accumulate"] or len(types) != 3:
        return False
    x, source, index = types
    sizes: Any = x.shape
    places: Any = index.shape
    dim = attrs["dim"]
    return (
        x.dtype.name in ("f32", "f64") and len(places) == 1
        and source.shape == (*sizes[:dim], *places, *sizes[dim + 1 :])
        and _count(source) > 0
    )


def _count(type_: TensorType) -> int:
    return math.prod(type_.shape)  # type: ignore[arg-type]
