"""Where values belong in a sorted sequence, by bisection."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..context import local
from ..eager import _wrap
from ..near import are_near
from ..tensor import Parameter, Tensor, from_array
from ..values import Eager

_FEW = 1 << 10  # numbers
_PLAIN = frozenset({Tensor, Parameter})


def searched_few(edges: Any, values: Any, right: Any) -> Tensor | None:
    """Of few numbers of one dtype, by one call of NumPy's; None: not so plain."""
    if (
        type(edges) not in _PLAIN or type(values) not in _PLAIN or type(right) is not bool
        or local.trace is not None or local.counted is not None or Eager.prepare is None
        or Eager.elsewhere is not None or edges._graphc_trace is not None
        or values._graphc_trace is not None
    ):
        return None
    of, found = edges._graphc_array, values._graphc_array
    kind = of.dtype.char
    if of.ndim != 1 or found.dtype.char != kind or kind not in "fdli" or (
        of.size > _FEW or found.size > _FEW or not found.ndim
    ):
        return None
    if kind in "fd" and np.isnan(of).any():
        return None
    places = of.searchsorted(found, "right" if right else "left")
    return _wrap(places) if places.dtype.char == "l" else None


def searched(edges: Tensor, values: Tensor, right: bool) -> Tensor | None:
    """Eagerly on the CPU, by bisection; None: elsewhere, or NaN is among the edges."""
    if local.trace is not None or local.counted is not None or edges.ndim != 1:
        return None
    if not are_near(edges, values):
        return None
    of, found = edges._graphc_array, values._graphc_array
    if of.dtype.kind not in "iufb":  # bfloat16
        of, found = of.astype(np.float32), found.astype(np.float32)
    if np.isnan(of).any():
        return None
    places = np.searchsorted(of, found, "right" if right else "left")
    return from_array(np.asarray(places, np.int64))
