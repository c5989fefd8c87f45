"""zeros_like(x), full_like(x, 2.0): one value, as eager mode has made it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType

from ..context import local
from ..eager import _signature, _wrap
from ..placement import ON_CPU
from ..tensor import Parameter, Tensor
from ..values import Eager

_PLAIN = frozenset({Tensor, Parameter})
_LIMIT = 10_000
_MOST = 2.0**24
# what fills memory, by the sizes, the number, and NumPy's dtype
_known: dict[Any, Callable[[], Any]] = {}


def _is_told_apart(value: Any, dtype: DType) -> bool:
    """Whether == tells a number from others, and memory can be filled with it: 0, 1, or one that
    any float of 32 bits or more has about it."""
    kind = type(value)
    return (kind is int and 0 <= value <= 1) or (
        (kind is float or kind is int) and value != 0 and abs(value) <= _MOST
        and (dtype is dtypes.f32 or dtype is dtypes.f64)
    )


def filled(sizes: tuple[Any, ...], value: Any, dtype: DType) -> Tensor | None:
    """One number; None where that is not so plain, anybody records, counts or watches, or it is
    done elsewhere."""
    if not _is_told_apart(value, dtype):
        return None
    if local.trace is not None or local.counted is not None or Eager.prepare is None or (
        Eager.elsewhere is not None and local.making is not ON_CPU
    ):
        return None
    ready = _known.get((sizes, value, dtype.numpy))
    if ready is None:
        ready = _noted(sizes, value, dtype)
    return _wrap(ready())


def like_alone(value: int) -> Callable[[Tensor], Tensor | None]:
    """The call with a tensor alone, where it is row-major; None: the function has to see to it."""

    def made(x: Tensor) -> Tensor | None:
        if Eager.elsewhere is not None or local.trace is not None or type(x) not in _PLAIN:
            return None
        try:
            array = x._graphc_array
        except AttributeError:  # of a trace that is over, or without dense memory
            return None
        if not array.flags.c_contiguous or local.counted is not None or Eager.prepare is None:
            return None
        ready = _known.get((array.shape, value, array.dtype))
        if ready is None:
            ready = _noted(array.shape, value, dtypes.from_numpy(array.dtype))
        return _wrap(ready())

    return made


def filled_beside(x: Tensor, size: tuple[Any, ...], value: int) -> Tensor | None:
    """x.new_zeros(*size), or with one tuple, of a dense tensor here; None: see filled()."""
    sizes = size[0] if len(size) == 1 and type(size[0]) is tuple else size
    if Eager.elsewhere is not None or local.trace is not None or type(x) not in _PLAIN or not sizes:
        return None
    for n in sizes:
        if type(n) is not int or n < 0:
            return None
    try:
        array = x._graphc_array
    except AttributeError:  # of a trace that is over, or without dense memory
        return None
    return filled(sizes, value, dtypes.from_numpy(array.dtype))


def _noted(sizes: tuple[int, ...], value: float, dtype: DType) -> Callable[[], Any]:
    number: Any = value
    if dtype.kind == "bool":
        number = bool(value)
    elif dtype.differentiable:
        number = float(value)
    attrs = {"shape": sizes, "value": number, "dtype": dtype}
    signature = _signature(ops.full, [], attrs)
    assert Eager.prepare is not None
    ready = signature.ready or signature.prepare(ops.full, attrs, Eager.prepare)
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[(sizes, value, dtype.numpy)] = ready
    return ready
