"""Tensors of sizes alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....ir.dtypes import from_numpy
from ..carried import Carried, held_array, kind_for
from ..numbers import MOST, Numbers
from ..table import Node, operator
from .arithmetic import dtype_of
from .limits import check_count


def _value(node: Node) -> np.ndarray:
    return np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(-1)


def _fold_filled(node: Node, shape: Numbers) -> Numbers | None:
    sizes = shape.integers()
    value = _value(node)
    if shape.traced or math.prod(sizes) > MOST or min(sizes, default=0) < 0:
        return None
    if value.size != 1 or (value.dtype.kind != "u" and kind_for(value.dtype) is not None):
        return None
    return Numbers.of(np.full(sizes, value[0]))


@operator("ConstantOfShape", 9, numbers=(0,), folded=_fold_filled)
def filled(node: Node, shape: Numbers) -> Any:
    value = _value(node)
    if value.size != 1:
        node.refuse(f"its value has {value.size} elements", "give it one")
    sizes = shape.integers()
    check_count(node, sizes)
    kind = kind_for(value.dtype)
    if kind is not None:
        one = held_array(value, kind).item()
        return Carried(T.full(sizes, one, dtype=kind.holder), kind)
    return T.full(sizes, value.item(), dtype=from_numpy(value.dtype))


def _fold_range(node: Node, start: Numbers, limit: Numbers, step: Numbers) -> Numbers | None:
    if start.traced or limit.traced or step.traced or not step.items[0]:
        return None
    (first,), (last,), (by,) = start.items, limit.items, step.items
    if not -MOST <= (last - first) / by <= MOST:
        return None
    return Numbers.of(np.arange(first, last, by, dtype=start.kind))


@operator("Range", 11, numbers=(0, 1, 2), folded=_fold_range)
def range_(node: Node, start: Numbers, limit: Numbers, step: Numbers) -> Any:
    (first,), (last,), (by,) = start.items, limit.items, step.items
    dtype = from_numpy(start.kind)
    if limit.traced and not (start.traced or step.traced) and (first, by) == (0, 1):
        return T.arange(last, dtype=dtype)
    first, last, by = (float(x) if start.kind.kind == "f" else int(x) for x in (first, last, by))
    if by == 0 or not all(map(math.isfinite, (first, last, by))):
        node.refuse(f"it goes from {first} to {last} in steps of {by}", "give it other ends")
    count = max(0, math.ceil((last - first) / by))
    check_count(node, [count])
    if dtype.is_floating_point:
        return (T.arange(count, dtype=dtype) * by + first).to(dtype)
    return T.from_numpy(first + by * np.arange(count, dtype=np.int64)).to(dtype)


@operator("EyeLike", 9)
def eye_like(node: Node, x: Tensor) -> Any:
    dtype = dtype_of(node, node.get("dtype")) if node.get("dtype") else x.dtype
    rows, columns = T.arange(x.shape[0]).unsqueeze(1), T.arange(x.shape[1])
    return (columns - rows == node.get("k", 0)).to(dtype)


@operator("Trilu", 14, numbers=(1,))
def triangle(node: Node, x: Tensor, k: Numbers | None = None) -> Any:
    shift = int(k.items[0]) if k is not None and k.items else 0
    bound = max(int(n) for n in x.shape[-2:]) + 1
    shift = max(-bound, min(bound, shift))
    return T.triu(x, shift) if node.get("upper", 1) else T.tril(x, shift)
