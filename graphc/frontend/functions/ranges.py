"""arange, linspace, logspace, range and eye."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType

from .. import promote
from ..context import local
from ..dispatch import apply, constant
from ..errors import located, warn_user
from ..numbers import is_traced_number, plain_size
from ..placement import makes
from ..promote import get_default_dtype
from ..replayed import replayed
from ..tensor import Tensor
from .arguments import check_dtype, fitting, non_negative, write_out
from .creation import finish


@makes
@replayed
def arange(
    *bounds: Any, start: Any = None, end: Any = None, step: Any = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    out: Any = None,
) -> Tensor:
    """start, start + step, ... below end: arange(end), arange(start, end), ... with a step.

    Raises TypeError for a start or a step without an end, as torch does.
    """
    start, end, step = _bounds(bounds, start, end, step)
    values = (start, end, step)
    dtype = check_dtype(dtype) or (None if out is None else out.dtype)
    plain = out is None and type(start) is int and type(end) is int and type(step) is int
    if plain and dtype is None:
        dtype = dtypes.i64
    elif dtype is None:
        floats = any(promote.number_dtype(v).is_float for v in values if not isinstance(v, Tensor))
        tensors = [v for v in values if isinstance(v, Tensor)]
        floats = floats or any(t.dtype.is_float for t in tensors)
        dtype = get_default_dtype() if floats else dtypes.i64
    if not plain and out is None and is_traced_number(end) and (
        type(start) is int and start == 0 and step == 1
    ):
        result: Tensor = apply(ops.iota, shape=(plain_size(end),), dim=0, dtype=dtype)
        return result.requires_grad_() if requires_grad else result
    if not plain and out is None and _is_traced_range(start, end, step):
        result = _traced_range(start, end, int(step), dtype)
        return result.requires_grad_() if requires_grad else result
    if not plain:
        start, end, step = (v.item() if isinstance(v, Tensor) else v for v in values)
    _check_range(start, end, step)
    count = math.ceil((end - start) / step)
    if dtype.is_integer and int(step) == 0:
        raise ValueError(located(f"step must be nonzero, but {step} is cut to 0 for {dtype}"))
    result = _ranged(count, start, step, dtype)
    if out is not None:
        return write_out(out, result)
    return result.requires_grad_() if requires_grad else result


def _check_range(start: Any, end: Any, step: Any) -> None:
    """Raise RuntimeError where there is no such range."""
    if step == 0:
        raise RuntimeError(located("step must be nonzero"))
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(located(f"unsupported range: {start} -> {end}"))
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(located(
            "upper bound and lower bound inconsistent with step sign"
        ))


def _bounds(given: tuple[Any, ...], start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    """(start, end, step) of what stood before the names and behind them."""
    alone = len(given) == 1 and start is None and end is None and step is None
    if alone:
        return (0, given[0], 1) if given[0] is not None else _incomplete()
    if 1 < len(given) < 4 and start is None and end is None and step is None and (
        given[0] is not None and given[1] is not None
    ):
        return given[0], given[1], 1 if len(given) == 2 or given[2] is None else given[2]
    named = list(given)
    for value in (start, end, step)[len(named) :]:
        named.append(value)
    twice = any(v is not None for v in (start, end, step)[: len(given)])
    if len(named) > 3 or twice or named[1] is None:
        _incomplete()
    if named[0] is None:
        if named[2] is not None:
            _incomplete()
        named[0] = 0
    return named[0], named[1], 1 if named[2] is None else named[2]


def _incomplete() -> Any:
    raise TypeError(located(
        "arange() received an invalid combination of arguments. Cure: arange(end), "
        "arange(start, end) or arange(start, end, step)"
    ))


def _is_traced_range(start: Any, end: Any, step: Any) -> bool:
    """Whether a bound is a traced number, and all are integers."""
    return (is_traced_number(start) or is_traced_number(end)) and (
        isinstance(start, int) and isinstance(end, int)
        and type(step) in (int, float) and step != 0 and step == step // 1
    )


def _traced_range(start: Any, end: Any, step: int, dtype: DType) -> Tensor:
    """One version for every start: a model that goes on where its cache ends has such positions."""
    distance, width = (end - start, step) if step > 0 else (start - end, -step)
    if distance < 0:
        raise RuntimeError(located(
            "upper bound and lower bound inconsistent with step sign"
        ))
    count = plain_size((distance + (width - 1)) // width)
    steps: Tensor = apply(ops.iota, shape=(count,), dim=0, dtype=dtypes.i64)
    result: Tensor = (steps * step + start).to(dtype)
    return result


_SURE = 1 << 62  # a number below is one of 64 bits, whatever step is beside it


def _ranged(count: int, start: Any, step: Any, dtype: DType) -> Tensor:
    """An iota where the range is plain, so that a graph stays small; else a constant."""
    if start == 0 and step == 1:
        result: Tensor = apply(ops.iota, shape=(count,), dim=0, dtype=dtype)
        return result
    array: Any
    if type(start) is int and type(step) is int and dtype is dtypes.i64 and (
        -_SURE < start < _SURE and -_SURE < start + count * step < _SURE
    ):
        array = np.arange(start, start + count * step, step, dtype=np.int64)
    elif dtype.is_integer:
        array = int(start) + int(step) * np.arange(count, dtype=np.int64)
    else:
        array = start + step * np.arange(count, dtype=np.float64)
    return constant(array.astype(dtype.numpy, copy=False), fresh=True)


def _steps(name: str, start: Any, end: Any, steps: Any) -> int:
    """How many values are asked for."""
    if isinstance(steps, (float, bool)) or not hasattr(steps, "__index__"):
        raise TypeError(located(
            f"{name}() received an invalid combination of arguments - got ("
            f"{', '.join(type(v).__name__ for v in (start, end, steps))}): steps must be an int"
        ))
    count: int = steps.__index__()
    if count < 0:
        raise RuntimeError(located("number of steps must be non-negative"))
    return count


@makes
def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False, out: Any = None,
) -> Tensor:
    """`steps` values from start to end, both included; symmetric as torch's."""
    steps = _steps("linspace", start, end, steps)
    if (isinstance(start, Tensor) and start.ndim) or (isinstance(end, Tensor) and end.ndim):
        raise RuntimeError(located("linspace only supports 0-dimensional start and end tensors"))
    dtype = check_dtype(dtype) or (get_default_dtype() if out is None else out.dtype)
    kind = dtype.numpy if dtype.is_float else np.dtype(np.float64)
    low, high = _number(start), _number(end)
    if dtype is dtypes.f32:
        low, high = fitting(low, dtype), fitting(high, dtype)
    spaced = _fused if kind.itemsize > 2 else _spaced
    with np.errstate(all="ignore"):  # too far apart is infinitely far
        values = spaced(low, high, steps, kind)
    made = constant(values.astype(dtype.numpy, copy=False), fresh=True)
    if out is not None:
        return write_out(out, made, warns=False)
    return finish(made, requires_grad)


def _spaced(start: Any, end: Any, steps: int, kind: np.dtype) -> np.ndarray:
    """Equal steps from both ends to the middle, each rounded as torch rounds it: a product, then
    a sum."""
    low, high = kind.type(start), kind.type(end)
    if steps == 1:
        return np.array([low])
    step, count, base = _steps_of(low, high, steps, kind)
    found: np.ndarray = step * count + base
    return found.astype(kind, copy=False)


def _steps_of(low: Any, high: Any, steps: int, kind: np.dtype) -> tuple[Any, Any, np.ndarray]:
    """What lies between two values, how many of it from which end: what is to be added up."""
    step = kind.type((high - low) / kind.type(max(steps - 1, 1)))
    base = np.full(steps, low)
    base[steps // 2 :] = high
    return step, _counted(steps, kind), base


def _fused(start: Any, end: Any, steps: int, kind: np.dtype) -> np.ndarray:
    """As `_spaced`, but a product and its sum are rounded once: torch's linspace, to the bit."""
    low, high = kind.type(start), kind.type(end)
    if steps == 1:
        return np.array([low])
    step, count, base = _steps_of(low, high, steps, kind)
    if kind == np.float32:  # products of two of them are exact in float64
        wide: np.ndarray = np.multiply(step, count, dtype=np.float64) + base
        return wide.astype(kind)
    if not np.isfinite(step):
        return np.asarray(step * count + base)
    upper, lower = _halves(float(step))
    first, rest = upper * count, lower * count  # both exact
    total = base + first
    back = total - base
    lost = (base - (total - back)) + (first - back)
    found: np.ndarray = total + (lost + rest)
    return found if np.isfinite(found).all() else step * count + base


def _halves(number: float) -> tuple[float, float]:
    """Two numbers of 26 bits whose sum it is (T. J. Dekker, 1971)."""
    fraction, exponent = math.frexp(number)
    upper = math.ldexp(round(math.ldexp(fraction, 26)), exponent - 26)
    return upper, number - upper


_FEW = 64


def _counted(steps: int, kind: np.dtype) -> np.ndarray:
    """Steps from the first of two halves, and back from the end of the second, which end at -0."""
    return _few_counted(steps, kind) if steps <= _FEW else _counting(steps, kind)


def _counting(steps: int, kind: np.dtype) -> np.ndarray:
    half = steps // 2
    found = np.arange(steps, dtype=np.float64)
    found[half:] = -np.arange(steps - half - 1, -1, -1, dtype=np.float64)
    return found.astype(kind, copy=False)


_few_counted = functools.lru_cache(maxsize=2 * _FEW)(_counting)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


@makes
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False, out: Any = None,
) -> Tensor:
    """base ** linspace(start, end)."""
    steps = _steps("logspace", start, end, steps)
    dtype = check_dtype(dtype) or (get_default_dtype() if out is None else out.dtype)
    if any(isinstance(v, Tensor) and v.ndim for v in (start, end)):
        raise RuntimeError(located("logspace only supports 0-dimensional start and end tensors"))
    start, end = _number(start), _number(end)
    if dtype.is_integer:  # the ends are cut to integers first, as torch has it
        start, end = int(start), int(end)
    with np.errstate(all="ignore"):  # too large is infinite
        powers = np.power(float(_number(base)), _spaced(start, end, steps, np.dtype(np.float64)))
        made = constant(powers.astype(dtype.numpy))
    if out is not None:
        return write_out(out, made, warns=False)
    return finish(made, requires_grad)


@makes
def range(
    start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False, out: Any = None,
) -> Tensor:
    """start, start + step, ... up to end, included (torch.range, of old)."""
    warn_user(
        "torch.range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    start, end, step = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    _check_range(start, end, step)
    count = math.floor((end - start) / step) + 1
    kind = check_dtype(dtype) or get_default_dtype()
    array = start + step * np.arange(count, dtype=np.float64)
    result = constant(array.astype(kind.numpy))
    return write_out(out, result) if out is not None else finish(result, requires_grad)


@makes
def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False, out: Any = None,
) -> Tensor:
    """The identity matrix [n, m]."""
    dtype = check_dtype(dtype) or (get_default_dtype() if out is None else out.dtype)
    shape = (n, n if m is None else m)
    non_negative(shape)
    if local.trace is None and local.counted is None and out is None:
        result = apply(ops.full, shape=shape, value=0, dtype=dtype)
        if type(result._graphc_array) is np.ndarray:
            result._graphc_array.reshape(-1)[: min(shape) * (shape[1] + 1) : shape[1] + 1] = 1
            return finish(result, requires_grad)
    rows = apply(ops.iota, shape=(shape[0], 1), dim=0, dtype=dtypes.i64)
    columns = apply(ops.iota, shape=(1, shape[1]), dim=1, dtype=dtypes.i64)
    result = promote.cast(apply(ops.eq, rows, columns), dtype)
    if out is not None:
        return write_out(out, result, warns=False)
    return finish(result, requires_grad)
