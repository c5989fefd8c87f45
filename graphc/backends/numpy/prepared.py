"""What `run` comes to for one operator on inputs of known types: found once, then called often.

On a few numbers, choosing a function, half precision, warnings and layouts cost more than the
numbers. All but the layouts of operands follows from the operator, its attributes and the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.ir.op import Op
from graphc.ir.types import TensorType

from . import bound, bound_fourier, indexing
from .common import Array, Function, be_as_before, be_quiet, plain
from .ops import AS_LEFT, SILENT, TABLE, run
from .order import channels_kept, each, laid_out, row_major

# a function of the operands alone
Ready = Callable[..., Any]


def prepare(
    op: Op, types: Sequence[TensorType], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> Ready:
    """`run(op, arrays, attrs)` as a function of arrays of these types. Sizes are known."""
    function = TABLE.get(op.name)
    if op.name in bound_fourier.TABLE:
        along = bound_fourier.TABLE[op.name](types, **attrs)
        return _as_it_runs(op, attrs) if along is None else _unordered(along)
    if function is None or op.impure or op.view or op.family in ("control", "routine", "structure"):
        return _as_it_runs(op, attrs)
    halved = any(t.dtype.is_float and t.dtype.bits == 16 for t in types)
    if not halved:
        function = plain(function)
    ufunc = function if isinstance(function, np.ufunc) and not halved else None
    make = None if halved else bound.TABLE.get(op.name)
    tight = None if make is None else make(types, **attrs)
    if tight is not None:
        function = tight
    elif attrs:
        function = partial(function, **attrs)
    elif isinstance(function, np.ufunc) and not results[0].shape and op.elementwise:
        function = _without_scalars(function, results[0].dtype.numpy)
    silent = op.family in SILENT or _is_exact(op, types, results)
    flat = len(results) == 1 and len(results[0].shape) < 2 and not op.view
    if op.elementwise and len(types) == 2:
        ready = (_quiet_two if silent else _two)(function, flat)
        if ufunc is not None and tight is None and not attrs:
            ready.__dict__["into"] = _into(ufunc)
        return ready
    if op.elementwise and len(types) == 1:
        return (_quiet_one if silent else _one)(function, flat)
    if op.elementwise and len(types) == 3:
        return (_quiet_three if silent else _three)(function, flat)
    order = laid_out if op.keeps_order else row_major
    if order is laid_out and len(types) == 1 and len(results) == 1:
        return _one(function, False)
    left = op.family in AS_LEFT and not op.in_its_order
    if tight is not None and op.name in _ORDERED:
        return tight  # it has an order, and nothing to warn of
    if op.keeps_channels and len(results[0].shape) in (4, 5):
        return _ordered(function, channels_kept(op))
    if left or (flat and order is row_major) or tight in bound.PRODUCTS:
        ready = _unordered(function)
    else:
        ready = _ordered(function, order)
    into = indexing.into(op.name, types, attrs)
    if into is not None:
        ready.__dict__["into"] = _unordered(into)
    return ready


_ORDERED = frozenset(("concat", "full", "iota"))
_EXACT = frozenset(
    "neg abs add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor bitwise_not "
    "logical_and logical_or logical_xor where".split()
)


_SILENT_FLOATS = frozenset("neg abs where".split())  # which look at bits alone


def _is_exact(op: Op, types: Sequence[TensorType], results: Sequence[TensorType]) -> bool:
    """Whether NumPy has nothing to warn of: integers wrap silently, but in divisions."""
    if op.name == "cast":
        return types[0].dtype is results[0].dtype
    return op.name in _EXACT and not any(
        t.dtype.is_complex or (t.dtype.is_float and op.name not in _SILENT_FLOATS) for t in types
    )


def _without_scalars(function: np.ufunc, dtype: np.dtype[Any]) -> Function:
    """Into an array without dims: to make one of NumPy's scalars takes longer than to compute."""
    empty = np.empty
    if function.nin == 1:
        return lambda x: function(x, empty((), dtype))
    if function in (np.maximum, np.minimum):  # which warn of a third argument
        return lambda a, b: function(a, b, out=empty((), dtype))
    return lambda a, b: function(a, b, empty((), dtype))


def _as_it_runs(op: Op, attrs: Mapping[str, Any]) -> Ready:
    def ready(*arrays: Array) -> Any:
        return run(op, arrays, attrs)

    return ready


# `flat`: a result of at most one dim, which is contiguous as NumPy makes it


def _one(function: Function, flat: bool) -> Ready:
    def ready(x: Array) -> Any:
        token = be_quiet()
        try:
            out = function(x)
        finally:
            be_as_before(token)
        if type(out) is not np.ndarray:
            return np.asarray(out)
        if flat or (x.flags.c_contiguous and out.flags.c_contiguous):
            return out
        return laid_out(out, (x,))

    return ready


def _quiet_one(function: Function, flat: bool) -> Ready:
    def ready(x: Array) -> Any:
        out = function(x)
        if type(out) is not np.ndarray:
            return np.asarray(out)
        if flat or (x.flags.c_contiguous and out.flags.c_contiguous):
            return out
        return laid_out(out, (x,))

    return ready


def _two(function: Function, flat: bool) -> Ready:
    def ready(a: Array, b: Array) -> Any:
        token = be_quiet()
        try:
            out = function(a, b)
        finally:
            be_as_before(token)
        if type(out) is not np.ndarray:
            return np.asarray(out)
        if flat or (
            a.flags.c_contiguous and b.flags.c_contiguous and out.flags.c_contiguous
        ):
            return out
        return laid_out(out, (a, b))

    return ready


def _quiet_two(function: Function, flat: bool) -> Ready:
    def ready(a: Array, b: Array) -> Any:
        out = function(a, b)
        if type(out) is not np.ndarray:
            return np.asarray(out)
        if flat or (
            a.flags.c_contiguous and b.flags.c_contiguous and out.flags.c_contiguous
        ):
            return out
        return laid_out(out, (a, b))

    return ready


def _three(function: Function, flat: bool) -> Ready:
    silent = _quiet_three(function, flat)

    def ready(a: Array, b: Array, c: Array) -> Any:
        token = be_quiet()
        try:
            return silent(a, b, c)
        finally:
            be_as_before(token)

    return ready


def _quiet_three(function: Function, flat: bool) -> Ready:
    def ready(a: Array, b: Array, c: Array) -> Any:
        out = function(a, b, c)
        if type(out) is not np.ndarray:
            return np.asarray(out)
        if flat or (
            a.flags.c_contiguous and b.flags.c_contiguous and c.flags.c_contiguous
            and out.flags.c_contiguous
        ):
            return out
        return laid_out(out, (a, b, c))

    return ready


def _into(function: Function) -> Ready:
    """Of two operands, written to a third array, which may be the first."""

    def into(a: Array, b: Array, out: Array) -> Any:
        token = be_quiet()
        try:
            return function(a, b, out)
        finally:
            be_as_before(token)

    return into


def _unordered(function: Function) -> Ready:
    def ready(*arrays: Array) -> Any:
        token = be_quiet()
        try:
            out = function(*arrays)
        finally:
            be_as_before(token)
        if type(out) is np.ndarray or type(out) is tuple:
            return out
        return np.asarray(out)

    return ready


def _ordered(function: Function, order: Callable[..., Array]) -> Ready:
    def ready(*arrays: Array) -> Any:
        token = be_quiet()
        try:
            out = function(*arrays)
        finally:
            be_as_before(token)
        if type(out) is np.ndarray:
            return order(out, arrays)
        return each(out if type(out) is tuple else np.asarray(out), arrays, order)

    return ready
