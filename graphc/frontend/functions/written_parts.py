"""x[1:3] = y and x[:, 0] = 1: written to the array of a view that is known (recalled.py)."""

from __future__ import annotations

from typing import Any

from graphc.ir.numpy_calls import may_share_memory

from ..context import local
from ..eager import is_plain_part
from ..few_places import FEW, spreads
from ..history import requires_grad
from ..near import is_near
from ..tensor import Parameter, Tensor
from ..values import Eager
from .arguments import fitting

_PLAIN = frozenset({Tensor, Parameter})
# of a number that is written: the dtypes that it is written to without being promoted
_TAKE = {float: "fd", int: "fdl", bool: "fdl?"}


def write_part(view: Tensor, value: Any) -> bool:
    """view[...] = value, of a number or of a tensor of its dtype; whether that was done."""
    mine = view._graphc_array
    kind = type(value)
    if kind in _TAKE:
        if mine.dtype.char not in _TAKE[kind] or 0 in mine.strides or not is_plain_part(view):
            return False
        mine.fill(fitting(value, view.dtype))
    elif kind in _PLAIN and value._graphc_trace is None and Eager.prepare is not None:
        new = value._graphc_array
        if (
            new.dtype != mine.dtype or 0 in mine.strides or mine.size >= FEW
            or (new.shape != mine.shape and not spreads(new.shape, mine.shape))
            or not is_near(value) or not is_plain_part(view) or may_share_memory(mine, new)
            or (local.grad and requires_grad(value))
        ):
            return False
        mine[...] = new
    else:
        return False
    view._graphc_storage.version += 1
    return True
