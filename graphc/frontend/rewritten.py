"""x.clamp_(0, 1) on many numbers: what the function comes to, computed in the tensor's own memory.

An in-place method is a function whose result is written back (functions/inplace.py). Where that
function goes element by element, and follows from types (replayed.py), one loop reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .context import local
from .eager import is_plain
from .history import requires_grad
from .near import is_near
from .replayed import UNKNOWN, key_of, watched
from .tensor import Tensor
from .values import Eager

_FEW = 1 << 14  # numbers that fit into the caches, of which a copy costs next to nothing
_LIMIT = 10_000

# what runs on the tensors' arrays, the first of which is written to; None: there is no such code
_known: dict[Any, Callable[[Any], Any] | None] = {}


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
        if np.may_share_memory(mine, other):
            return False
    if whole(arrays) is None:
        return False
    x._graphc_storage.version += 1
    return True
