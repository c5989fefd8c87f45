"""x.lerp_(y, w): what the function comes to, written to the tensor's own memory.

An in-place method is a function whose result is written back (functions/inplace.py). Where what it
comes to follows from types (replayed.py), few numbers are computed as they were before, and copied;
of many, one loop reads and writes, if the function goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import ops
from graphc.ir.numpy_calls import may_share_memory
from graphc.ir.op import Op

from .context import local
from .eager import _signature, _signatures, is_plain
from .history import requires_grad
from .near import is_near
from .promote import operand
from .replayed import UNKNOWN, Replay, _lie_in_rows, key_of, watched
from .tensor import Parameter, Tensor
from .values import Eager
from .written_at import are_apart

_PLAIN = frozenset({Tensor, Parameter})
_FEW = 1 << 14  # numbers that fit into the caches, of which a copy costs next to nothing
_LIMIT = 10_000

# what runs on the tensors' arrays, the first of which is written to; None: there is no such code
_known: dict[Any, Callable[[Any], Any] | None] = {}
_few: dict[Any, Replay | None] = {}  # what is done again on few numbers
_seen: set[Any] = set()  # calls that may come again
_MOST_SEEN = 1000


def is_many(x: Tensor) -> bool:
    """Whether a copy of it takes long."""
    return x._graphc_array.size >= _FEW


def write_whole(
    function: Callable[..., Tensor], x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """x = function(x, ...) in x's memory; whether that was done."""
    if x._graphc_trace is not None or not is_many(x) or not is_plain(x):
        return False
    if Eager.prepare is None or Eager.chain is None or local.autocast is not None:
        return False
    tensors: list[Tensor] = []
    key = key_of(function, (x, *args), kwargs, tensors)
    if key is UNKNOWN or not all(map(is_near, tensors)):
        return False
    if local.grad and any(map(requires_grad, tensors)):
        return False
    if key not in _known:
        if len(_known) >= _LIMIT:
            _known.clear()
        result, watch = watched(function, (x, *args), kwargs, tensors)
        _known[key] = watch.whole_in_place(result)
    whole = _known.get(key)
    if whole is None:
        return False
    arrays = [t._graphc_array for t in tensors]
    mine = arrays[0]
    for other in arrays[1:]:
        if may_share_memory(mine, other):
            return False
    if whole(arrays) is None:
        return False
    x._graphc_storage.version += 1
    return True


def write_one(op: Op, x: Tensor) -> bool:
    """x = op(x) in x's memory, of few float32 or float64 numbers; whether that was done."""
    if Eager.prepare is None or local.autocast is not None or not is_plain(x):
        return False
    mine = x._graphc_array
    if mine.dtype.char not in "fd" or mine.size >= _FEW:
        return False
    signature = _signatures.get((op, mine.dtype, mine.shape)) or _signature(op, [mine], {})
    mine[...] = (signature.ready or signature.prepare(op, {}, Eager.prepare))(mine)
    x._graphc_storage.version += 1
    return True


def add_scaled(op: Op, x: Tensor, y: Any, alpha: Any) -> bool:
    """x = op(x, alpha * y) of few numbers of one float dtype and shape, op being a sum or a
    difference; whether that was done."""
    if (
        Eager.prepare is None or Eager.elsewhere is not None or type(y) not in _PLAIN
        or type(alpha) not in (int, float) or not is_plain(x) or y._graphc_trace is not None
    ):
        return False
    mine, its = x._graphc_array, y._graphc_array
    if mine.dtype.char not in "fd" or its.dtype is not mine.dtype or mine.size >= _FEW or (
        its.shape != mine.shape or (local.grad and requires_grad(y))
        or not (y is x or are_apart(mine, its))
    ):
        return False
    factor = operand(alpha, x.dtype)._graphc_array
    product = _signatures.get((ops.mul, its.dtype, its.shape, factor.dtype, factor.shape))
    total = _signatures.get((op, mine.dtype, mine.shape, mine.dtype, mine.shape))
    if product is None or product.ready is None or total is None or total.into is None:
        return False
    total.into(mine, product.ready(its, factor), mine)
    x._graphc_storage.version += 1
    return True


def write_few(
    function: Callable[..., Tensor], x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """x = function(x, ...) of few numbers, as it was done before; whether that was done."""
    if (
        Eager.prepare is None or local.autocast is not None or not is_plain(x) or is_many(x)
    ):
        return False
    tensors: list[Tensor] = []
    key = key_of(function, (x, *args), kwargs, tensors)
    if key is UNKNOWN:
        return False
    mine, elsewhere = x._graphc_array, Eager.elsewhere is not None
    for other in tensors:
        if elsewhere and not is_near(other):
            return False
        if other is x:  # is_plain() has seen to it
            continue
        if (
            other._graphc_requires_grad or other._graphc_node is not None
            or other._base is not None
        ) and local.grad and requires_grad(other):
            return False
        if may_share_memory(mine, other._graphc_array):
            return False
    if key in _few:
        again = _few[key]
        if again is None or (
            again.in_rows and not _lie_in_rows(tensors)
        ):
            return False
        found = again.run(tensors) if again.native is None else again.native(tensors)
    elif key not in _seen:  # numbers of a schedule come but once
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen.add(key)
        return False
    else:
        if len(_few) >= _LIMIT:
            _few.clear()
        _few[key] = None  # where it raises, it does so again
        found, watch = watched(function, (x, *args), kwargs, tensors)
        if not isinstance(found, Tensor) or found._graphc_type != x._graphc_type:
            return False
        if not watch.in_rows or _lie_in_rows(tensors):
            _few[key] = watch.replay(len(tensors), found)
    mine[...] = found._graphc_array
    x._graphc_storage.version += 1
    return True
