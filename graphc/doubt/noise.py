"""Eager mode with larger rounding errors: how well are its results defined at all?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..frontend.placement import of, wrap_runners
from ..frontend.values import Runner
from ..ir.dtypes import from_numpy
from ..ir.memory import Buffer, on_host
from ..ir.op import Attrs, Op
from ..ir.rounding import rounding_of
from .evaluate import Noise


@contextmanager
def rounding_errors(seed: int) -> Iterator[None]:
    """Inside, each eager operator that rounds is off by a few units in the last place."""
    noise = Noise(seed)
    end = wrap_runners(lambda run: _noisy(run, noise))
    try:
        yield
    finally:
        end()


def _noisy(run: Runner, noise: Noise) -> Runner:
    def moved(buffer: Buffer) -> Buffer:
        place = of(buffer)
        if place is not None and place.device.type == "meta":  # no values
            return buffer
        found = noise.apply(on_host(buffer), from_numpy(buffer.dtype))
        return found if place is None else place.put(found)

    def noisy(op: Op, arrays: list[Buffer], attrs: Attrs) -> Any:
        result = run(op, arrays, attrs)
        results = result if isinstance(result, tuple) else (result,)
        fact = rounding_of(
            op.rounding, attrs, [from_numpy(a.dtype) for a in arrays],
            [from_numpy(r.dtype) for r in results],
        )
        if not fact.units:
            return result
        if fact.operands:
            result = run(op, [moved(a) for a in arrays], attrs)
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    return noisy
