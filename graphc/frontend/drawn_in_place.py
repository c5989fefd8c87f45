"""x.uniform_(), x.normal_(): few random numbers, drawn into the tensor's own memory.

They are else drawn into new memory, which is written to the tensor's. The bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes

from .eager import is_plain, is_writable
from .random_state import Generator, default_generator
from .storage import readers
from .tensor import Parameter, Tensor
from .values import Eager

_PLAIN = frozenset({Tensor, Parameter})
_KINDS = {"f": dtypes.f32, "d": dtypes.f64}
LEAST = 1e-30  # of standard deviations that leave no zeros, to which a mean of 0 gives a sign
_FEW = 16  # fewer normal numbers than this are drawn in pairs, and scaled in float64


def draw_into(name: str, x: Tensor, generator: Generator | None, **attrs: Any) -> bool:
    """What the operator `name` draws with these attributes, besides shape and dtype, written to
    x's memory; whether that was done: of few numbers, where nobody records, counts or watches."""
    if not _takes(x, generator) or not _fill(name, x._graphc_array, generator, attrs):
        return False
    x._graphc_storage.version += 1
    return True


def draw_normals_into(x: Tensor, generator: Generator | None, mean: float, std: float) -> bool:
    """The same of normal numbers, which are drawn, scaled, and moved."""
    if not _takes(x, generator):
        return False
    memory = x._graphc_array
    drawn, scaled = memory, std != 1 or mean != 0
    if scaled and (memory.dtype.char != "f" or std < LEAST):
        return False
    if scaled and memory.size < _FEW:
        if mean != 0:
            return False
        drawn = np.empty(memory.shape)
    if not _fill("rng_normal", drawn, generator, {}):
        return False
    if scaled:
        with np.errstate(all="ignore"):
            if mean == 0:
                drawn = np.multiply(drawn, np.asarray(std, drawn.dtype), drawn)
            else:  # in one rounding, nearly always
                drawn = drawn.astype(np.float64)
                np.multiply(drawn, _as_single(std), drawn)
                np.add(drawn, _as_single(mean), drawn)
            if drawn is not memory:
                memory[...] = drawn
    x._graphc_storage.version += 1
    return True


def _as_single(value: float) -> np.ndarray:
    return np.asarray(np.float32(value), np.float64)


def _takes(x: Tensor, generator: Generator | None) -> bool:
    return (
        Eager.prepare is not None and type(x) in _PLAIN and is_plain(x)
        and x._graphc_array.dtype.char in _KINDS
        and (generator is None or generator._place is None)
    )


def _fill(
    name: str, memory: np.ndarray, generator: Generator | None, attrs: dict[str, Any]
) -> bool:
    attrs["shape"], attrs["dtype"] = memory.shape, _KINDS[memory.dtype.char]
    fill = Eager.drawer(name, attrs)
    if fill is None:
        return False
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
