"""Which arguments to() takes, by their places."""

from __future__ import annotations

from typing import Any

from graphc.ir.dtypes import DType

from ..context import local
from ..device import device
from ..errors import kind_name, located
from ..placement import place_at
from ..promote import cast
from ..tensor import Tensor


def to_one(x: Tensor, value: Any) -> Tensor | None:
    """x.to(value) of a dtype or, where x is there, of the CPU; None: it is to be looked at."""
    if local.trace is not None or x._graphc_trace is not None:
        return None
    kind = type(value)
    if kind is DType:
        return cast(x, value)
    name = value.type if kind is device else value if kind is str else None
    return x if name == "cpu" and place_at(x) is None else None


def check_order(args: tuple[Any, ...]) -> None:
    """A dtype or a Tensor comes first, or a dtype after a device; the rest are flags. Raises
    TypeError."""
    for i, value in enumerate(args[1:], 1):
        if value is None or isinstance(value, bool):
            continue
        second = i == 1 and not isinstance(args[0], (DType, Tensor))
        if second and not isinstance(value, (Tensor, str, int, device)):
            continue
        got = ", ".join(
            "torch.dtype" if isinstance(each, DType) else kind_name(each) for each in args
        )
        raise TypeError(located(
            f"to() received an invalid combination of arguments - got ({got}), but expected one "
            "of: to(dtype), to(device, dtype), to(other), and two flags"
        ))
