"""Small arrays whose numbers Python knows: constants, and what is computed of sizes.

Shape(x) is such an array, and so is what Gather, Concat, Mul, ... make of it: under a trace its
numbers are symbolic sizes, so that a Reshape to them stays right for any batch, and asks for no
tensor's value. Where an operator wants a tensor after all, `tensor()` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....frontend import functions as T
from ....frontend.numbers import is_traced_number, plain_number
from ....frontend.tensor import Tensor
from ....ir.dtypes import DType, from_numpy
from .carried import Carried, carried, held_array, kind_for

MOST = 64  # elements; sizes, paddings, axes and scales are fewer


class Numbers:
    """An array of at most MOST elements as Python's numbers, row by row. `kind` is a NumPy dtype,
    as ONNX has some that tensors here do not."""

    __slots__ = ("items", "kind", "shape")

    def __init__(self, items: Sequence[Any], shape: Sequence[int], kind: np.dtype) -> None:
        self.items, self.shape, self.kind = tuple(items), tuple(shape), kind

    @classmethod
    def of(cls, array: np.ndarray) -> Numbers:
        """A constant's."""
        return cls(array.reshape(-1).tolist(), array.shape, array.dtype)

    @property
    def traced(self) -> bool:
        """Whether a number is a symbolic size, or is computed of one."""
        return any(is_traced_number(item) for item in self.items)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def array(self) -> np.ndarray:
        """As NumPy's, of numbers that are decided for this recording."""
        plain = [plain_number(item) for item in self.items]
        return np.array(plain, self.kind).reshape(self.shape)

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> Numbers | None:
        """What `move` makes of an array of positions; None where it becomes too many."""
        places = np.asarray(move(np.arange(len(self.items)).reshape(self.shape)))
        if places.size > MOST:
            return None
        return Numbers(
            [self.items[i] for i in places.reshape(-1).tolist()], places.shape, self.kind
        )

    def tensor(self, like: Any = None) -> Any:
        """As a Tensor (on the device of `like`), or as what carries a kind that these lack."""
        device = like.device if isinstance(like, Tensor) else None
        foreign = kind_for(self.kind)
        if foreign is not None and not self.traced:
            return Carried(T.tensor(held_array(self.array(), foreign), device=device), foreign)
        dtype = T.int64 if foreign is not None else tensor_dtype(self.kind)
        if not self.traced:
            return T.tensor(self.array(), dtype=dtype, device=device)
        each = [T.full((), item, dtype=dtype, device=device) for item in self.items]
        found = T.stack(each).reshape(self.shape)
        return found if foreign is None else carried(found, foreign)

    def integers(self) -> list[Any]:
        """Its numbers where they are sizes, axes, ...: Python's ints, or symbolic ones."""
        return [item if is_traced_number(item) else int(item) for item in self.items]

    def __repr__(self) -> str:
        return f"Numbers({list(self.items)}, {list(self.shape)}, {self.kind})"


def tensor_dtype(kind: np.dtype) -> DType:
    """The dtype of tensors for a NumPy dtype. Raises TypeError where there is none."""
    return from_numpy(kind)


def sizes_of(shape: Sequence[Any]) -> Numbers:
    """Sizes as an int64 vector."""
    return Numbers(shape, (len(shape),), np.dtype(np.int64))


def joined(parts: Sequence[Numbers], axis: int) -> Numbers | None:
    """Concat."""
    items = [item for part in parts for item in part.items]
    if len(items) > MOST:
        return None
    starts = np.cumsum([0, *[len(part.items) for part in parts]])
    places = np.concatenate([
        np.arange(start, start + len(part.items)).reshape(part.shape)
        for start, part in zip(starts, parts, strict=False)
    ], axis)
    return Numbers([items[i] for i in places.reshape(-1).tolist()], places.shape, parts[0].kind)


def each(
    function: Callable[..., Any], exact: Callable[..., Any], kind: np.dtype | None,
    *given: Numbers,
) -> Numbers | None:
    """An elementwise function: `exact` of NumPy's arrays; where some numbers are symbolic integers,
    `function` of Python's. `kind`: of the result, where it is not the operands'."""
    try:
        shape = np.broadcast_shapes(*[part.shape for part in given])
    except ValueError:
        return None  # the tensors' function says what is wrong
    if math.prod(shape) > MOST:
        return None
    integers = all(part.kind.kind in "iub" for part in given)
    if not (integers and any(part.traced for part in given)):
        with np.errstate(all="ignore"):
            found = np.asarray(exact(*[part.array() for part in given]))
        return Numbers.of(found.astype(kind or given[-1].kind))
    spread = [part.moved(lambda places: np.broadcast_to(places, shape)) for part in given]
    rows = [part.items for part in spread if part is not None]
    items = [function(*row) for row in zip(*rows, strict=True)]
    return Numbers(items, shape, kind or given[-1].kind)
