"""Eager mode with larger rounding errors: how well are its results defined at all?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..frontend.dispatch import set_runner
from ..frontend.values import Eager, Runner
from ..ir.dtypes import from_numpy
from ..ir.op import Attrs, Op
from ..ir.rounding import rounding_of
from .evaluate import Noise


@contextmanager
def rounding_errors(seed: int) -> Iterator[None]:
    """Inside, each eager operator that rounds is off by a few units in the last place."""
    exact = Eager.run
    set_runner(_noisy(exact, Noise(seed)))
    try:
        yield
    finally:
        set_runner(exact)


def _noisy(run: Runner, noise: Noise) -> Runner:
    def moved(array: np.ndarray) -> Any:
        return noise.apply(array, from_numpy(array.dtype))

    def noisy(op: Op, arrays: list[np.ndarray], attrs: Attrs) -> Any:
        result = run(op, arrays, attrs)
        results = result if isinstance(result, tuple) else (result,)
        fact = rounding_of(
            op.rounding, attrs, [from_numpy(a.dtype) for a in arrays],
            [from_numpy(np.asarray(r).dtype) for r in results],
        )
        if not fact.units:
            return result
        if fact.operands:
            result = run(op, [moved(a) for a in arrays], attrs)
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    return noisy
