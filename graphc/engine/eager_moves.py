"""Copies that rearrange many numbers: the shapes that code for all sizes is made of.

NumPy goes element by element where an order is reversed, and calls memcpy for each short stretch of
what is put side by side.
"""

from __future__ import annotations

import math
from typing import Any

from ..ir.op import Attrs
from .eager_form import Form, Types

_STRETCH = 80  # bytes that are worth a call of memcpy
_MOST_PARTS = 4  # of which a choice for each line is nothing beside the line


def _concat(types: Types, attrs: Attrs) -> Form | None:
    """Side by side: what is before the dim, along it, and behind it. One after the other, NumPy
    copies each whole."""
    dim = attrs["dim"]
    first: Any = types[0].shape
    before, behind = math.prod(first[:dim]), math.prod(first[dim + 1 :])
    sizes: list[Any] = [t.shape[dim] for t in types]
    line = sum(sizes) * behind * types[0].dtype.numpy.itemsize
    if before == 1 or line >= _STRETCH * len(types) or len(types) > _MOST_PARTS:
        return None
    inputs = [(("o", before), (f"m{at}", size), ("i", behind)) for at, size in enumerate(sizes)]
    return Form(tuple(inputs), {"dim": 1})


_MOST_DIMS = 4


def _flip(types: Types, attrs: Attrs) -> Form | None:
    """Neighbouring dims that are all reversed, or all kept, are one."""
    groups: list[tuple[bool, int]] = []  # (whether it is reversed, how many elements)
    sizes: Any = types[0].shape
    for d, size in enumerate(sizes):
        if size == 1:
            continue
        turned = d in attrs["dims"]
        if groups and groups[-1][0] == turned:
            groups[-1] = turned, groups[-1][1] * size
        else:
            groups.append((turned, size))
    dims = tuple([at for at, (turned, _) in enumerate(groups) if turned])
    if len(groups) > _MOST_DIMS or not groups or not groups[-1][0]:
        return None  # lines that keep their order are NumPy's
    return Form((tuple([(f"n{at}", size) for at, (_, size) in enumerate(groups)]),), {"dims": dims})


MOVES = {"concat": _concat, "flip": _flip}
