"""x.uniform_(), x.normal_(): few random numbers, drawn into the tensor's own memory.

They are else drawn into new memory, which is written to the tensor's. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import dtypes

from .context import local
from .eager import is_plain, is_writable
from .random_state import Generator, default_generator
from .storage import readers
from .tensor import Parameter, Tensor, from_array
from .values import Eager

_PLAIN = frozenset({Tensor, Parameter})
_KINDS = {"f": dtypes.f32, "d": dtypes.f64}
LEAST = 1e-30  # of standard deviations that leave no zeros, to which a mean of 0 gives a sign
_MOST = 3e38  # which float32 has


# what draws, as it was done before: by the method, its two numbers, and what it draws into
_known: dict[Any, Callable[[Any, Any], Any]] = {}
_LIMIT = 4096


def drawn_again(method: str, x: Tensor, generator: Generator | None, a: Any, b: Any) -> bool:
    """x.uniform_(a, b) or x.normal_(a, b), as it was done before to such a tensor; whether it was
    done."""
    try:
        memory = x._graphc_array
    except AttributeError:  # of a trace, or without dense memory
        return False
    fill = _known.get((method, a, b, memory.dtype, memory.shape))
    return fill is not None and (
        type(x) in _PLAIN and is_plain(x) and Eager.prepare is not None
        and (generator is None or generator._place is None)
        and not Eager.by_counter() and _fill(fill, x, generator)
    )


def draw_into(
    method: str, x: Tensor, generator: Generator | None, a: float, b: float, name: str,
    **attrs: Any,
) -> bool:
    """What the operator `name` draws with these attributes, besides shape and dtype, written to
    x's memory, for x.uniform_(a, b) or x.normal_(a, b); whether that was done: of few numbers,
    where nobody records, counts or watches."""
    if not _takes(x, generator):
        return False
    memory = x._graphc_array
    attrs["shape"], attrs["dtype"] = memory.shape, _KINDS[memory.dtype.char]
    fill = Eager.drawer(name, attrs)
    if fill is None or not _fill(fill, x, generator):
        return False
    _note((method, a, b, memory.dtype, memory.shape), fill)
    return True


def _note(key: Any, fill: Callable[[Any, Any], Any]) -> None:
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[key] = fill


def draw_normals_into(x: Tensor, generator: Generator | None, mean: float, std: float) -> bool:
    """The same of normal numbers, which are drawn and scaled."""
    if mean == 0 and std == 1:
        return draw_into("normal_", x, generator, mean, std, "rng_normal")
    return LEAST <= std <= _MOST and -_MOST <= mean <= _MOST and draw_into(
        "normal_", x, generator, mean, std, "normals_scaled", mean=mean, std=std
    )


def _takes(x: Tensor, generator: Generator | None) -> bool:
    return (
        Eager.prepare is not None and type(x) in _PLAIN and is_plain(x)
        and x._graphc_array.dtype.char in _KINDS
        and (generator is None or generator._place is None)
    )


def _fill(fill: Callable[[Any, Any], Any], x: Tensor, generator: Generator | None) -> bool:
    if not _draw(fill, x._graphc_array, generator):
        return False
    x._graphc_storage.version += 1
    return True


def _draw(
    fill: Callable[[Any, Any], Any], memory: np.ndarray, generator: Generator | None
) -> bool:
    chosen = default_generator if generator is None else generator
    with chosen.turn:
        state = chosen.state
        if not is_writable(state):
            return False
        if readers:
            state._graphc_storage.before_write()
        if fill(state._graphc_array, memory) is None:
            return False
        state._graphc_storage.version += 1
    return True


def few_drawn(
    name: str, shape: tuple[int, ...], dtype: dtypes.DType, generator: Generator | None
) -> np.ndarray | None:
    """What an operator draws that has no other attributes; None, before anything is drawn: nothing
    draws so few at once."""
    if (generator is not None and generator._place is not None) or Eager.by_counter():
        return None
    key = (name, shape, dtype)
    fill = _known.get(key)
    if fill is None:
        fill = Eager.drawer(name, {"shape": shape, "dtype": dtype})
        if fill is None:
            return None
        _note(key, fill)
    memory = np.empty(shape, dtype.numpy)
    return memory if _draw(fill, memory, generator) else None


def kept(x: Tensor, p: float) -> Tensor | None:
    """What dropout multiplies few numbers by: 0 with probability p, else 1 / (1 - p); None: they
    are not few, or somebody records, counts or watches."""
    if (
        type(x) not in _PLAIN or type(p) not in (float, int)
        or Eager.prepare is None or Eager.elsewhere is not None
        or local.trace is not None or local.counted is not None or x._graphc_trace is not None
    ):
        return None
    array = x._graphc_array
    if array.dtype.char not in _KINDS or not array.flags.c_contiguous or Eager.by_counter():
        return None
    key = ("dropout", p, 0.0, array.dtype, array.shape)
    fill = _known.get(key)
    if fill is None:
        rest = array.dtype.type(1 - p)
        if rest < LEAST:
            return None
        fill = Eager.drawer("kept_scaled", {
            "p": float(1 - p), "scale": float(array.dtype.type(1) / rest), "shape": array.shape,
            "dtype": _KINDS[array.dtype.char],
        })
        if fill is None:
            return None
        _note(key, fill)
    noise = np.empty(array.shape, array.dtype)
    return from_array(noise) if _draw(fill, noise, None) else None
