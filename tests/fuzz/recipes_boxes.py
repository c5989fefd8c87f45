"""Recipes of boxes of images."""

from __future__ import annotations

from typing import Any

from graphc.doubt.case import Style
from graphc.ir import ops
from graphc.ir.dtypes import FLOATS
from tests.fuzz.maker import Maker, Refused
from tests.fuzz.recipes import NUMBERS, recipe


def _batch(m: Maker) -> Any:
    found = m.rng.choice((1, 2, 3, *m.sizes))
    return 2 if m.hint(found) > 12 else found


@recipe("box_pool", "box_pool_grad")
def _pooled(m: Maker, name: str) -> Any:
    dtype, sensitive = m.dtype(FLOATS), m.chance(0.4)
    plane = m.rng.randint(1, 9), m.rng.randint(1, 9)
    bins, samples = (m.rng.randint(1, 3), m.rng.randint(1, 3)), (m.rng.randint(1, 4), 2)
    channels = m.rng.choice((1, 2, 5))
    deep = channels * bins[0] * bins[1] if sensitive else channels
    shape, boxes = (_batch(m), deep, *plane), _batch(m)
    if not m.hint(shape[0]) and m.hint(boxes):
        raise Refused
    # an infinity times a weight of 0 is NaN, at places that each engine adds up in its own order
    tame = Style() if m.traits.special else None
    taps = [m.indices(shape[0], (boxes,), wrap=True)]
    for size, each, count in zip(plane, bins, samples, strict=True):
        taps += [
            m.indices(size, (boxes, each, count), wrap=True),
            m.shaped(dtype, (boxes, each, count), tame),
        ]
    if name == "box_pool":
        return ops.box_pool(m.shaped(dtype, shape, tame), *taps, sensitive=sensitive)
    g = m.shaped(dtype, (boxes, channels, *bins), tame)
    return ops.box_pool_grad(g, *taps, shape=shape, sensitive=sensitive)


@recipe("box_argmax")
def _largest(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS, low=4, high=4, test=m.static)
    boxes, count = m.rng.randint(1, 3), x.shape[0]
    if not count:
        raise Refused
    edges = []
    for size in x.shape[2:]:
        for _ in range(2):
            edges.append(m.indices(size + 1, (boxes, 2)))
    return ops.box_argmax(x, m.indices(count, (boxes,)), *edges)
