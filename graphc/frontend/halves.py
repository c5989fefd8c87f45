"""Half precision and a number: computed in float32, on many elements in one loop."""

from __future__ import annotations

from typing import Any

from graphc.ir import ops
from graphc.ir.op import Op

from . import promote
from .replayed import replayed
from .tensor import Tensor


def is_half(value: Any) -> bool:
    """Whether it is a tensor of half precision."""
    return isinstance(value, Tensor) and value.dtype.is_float and value.dtype.bits == 16


def binary(op: Op, a: Any, b: Any, *, to_float: bool = False) -> Any:
    """promote.binary."""
    if (op is ops.mul or op is ops.div) and is_half(a) and promote.is_number(b):
        return _by_number(op.name, a, b)
    return promote.binary(op, a, b, to_float=to_float)


@replayed
def _by_number(name: str, input: Tensor, number: Any) -> Any:
    return promote.binary(name, input, number)
