"""Copies with something around them: a number, or what lies inside, again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .common import Array

Ints = Sequence[int]
_FEW = 8  # lines that are written one by one: their elements are one loop, however far apart


def padded(
    x: Array, low: Ints, high: Ints, edge: Callable[[Array, int, int], None]
) -> Array:
    """x with `low` before and `high` behind it along each dim, which `edge(lines, before, size)`
    fills: all of dim 1 but size elements from `before` on."""
    sizes = [n + before + after for n, before, after in zip(x.shape, low, high, strict=True)]
    out = np.empty(sizes, x.dtype)
    inner = [slice(before, before + n) for n, before in zip(x.shape, low, strict=True)]
    out[tuple(inner)] = x
    for d, size in enumerate(x.shape):
        if low[d] or high[d]:  # dims before this one are whole, those behind it are not yet
            lines = out.reshape(-1, *sizes[d:])[(slice(None), slice(None), *inner[d + 1 :])]
            edge(lines, low[d], size)
    return out


def with_number(value: Any) -> Callable[[Array, int, int], None]:
    """An edge of one number."""

    def edge(lines: Array, before: int, size: int) -> None:
        lines[:, :before] = value
        lines[:, before + size :] = value

    return edge


def _repeated(lines: Array, before: int, size: int) -> None:
    last = before + size - 1
    behind = lines.shape[1] - last - 1
    _put(lines, range(before), [before] * before)
    _put(lines, range(last + 1, last + 1 + behind), [last] * behind)


def _reflected(lines: Array, before: int, size: int) -> None:
    last = before + size - 1
    behind = lines.shape[1] - last - 1
    _put(lines, range(before), [2 * before - at for at in range(before)])
    _put(lines, range(last + 1, last + 1 + behind), [last - 1 - at for at in range(behind)])


def _wrapped(lines: Array, before: int, size: int) -> None:
    behind = lines.shape[1] - before - size
    _put(lines, range(before), [size + at for at in range(before)])
    _put(lines, range(before + size, before + size + behind), range(before, before + behind))


def _put(lines: Array, targets: Ints, sources: Ints) -> None:
    if len(targets) > _FEW:
        lines[:, targets[0] : targets[-1] + 1] = lines.take(sources, 1)
        return
    for target, source in zip(targets, sources, strict=True):
        lines[:, target] = lines[:, source]


AROUND = {"reflect": _reflected, "replicate": _repeated, "circular": _wrapped}
