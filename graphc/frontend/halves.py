"""Half precision: what is computed in float32, on many elements in one loop, and then rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.op import Op

from . import promote
from .replayed import replayed
from .tensor import Tensor


def is_half(value: Any) -> bool:
    """Whether it is a tensor of half precision."""
    return isinstance(value, Tensor) and value.dtype.is_float and value.dtype.bits == 16


def rounded_once(function: Callable[..., Tensor], input: Tensor, *others: Any) -> Tensor:
    """function(input, *others); of half precision computed in float32, as torch's kernels do it,
    and rounded once."""
    if not is_half(input):
        return function(input, *others)
    wide = [x.to(dtypes.f32) if is_half(x) else x for x in (input, *others)]
    rounded: Tensor = function(*wide).to(input.dtype)
    return rounded


def binary(op: Op, a: Any, b: Any, *, to_float: bool = False) -> Any:
    """promote.binary."""
    if (op is ops.mul or op is ops.div) and is_half(a) and promote.is_number(b):
        return _by_number(op.name, a, b)
    return promote.binary(op, a, b, to_float=to_float)


@replayed
def _by_number(name: str, input: Tensor, number: Any) -> Any:
    return promote.binary(name, input, number)
