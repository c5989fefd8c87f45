"""Covariance, correlation, combinations and their kin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..dispatch import constant
from ..errors import located
from ..numbers import Size
from ..tensor import Tensor
from . import linalg_basic, parts, shape
from . import pointwise as P
from .arguments import as_sequence, broadcast_sizes, environment
from .arguments import shape as shape_of_tensor
from .cumulative import cumsum, diff
from .joining import stack
from .parts import slice_dim
from .reduction import mean
from .reduction import sum as sum_


def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """The covariance of variables (rows) over observations (columns)."""
    if input.ndim > 2:
        raise RuntimeError(located(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        ))  # fmt: skip
    if fweights is not None or aweights is not None:
        raise NotImplementedError(located("cov() with weights"))
    x = input.reshape(1, -1) if input.ndim < 2 else input
    count = environment().specialise(shape_of_tensor(x)[1])
    centred = P.sub(x, mean(x, 1, True))
    found = P.div(linalg_basic.mm(centred, shape.t(centred)), float(max(count - correction, 0)))
    return found.squeeze() if input.ndim < 2 else found


def corrcoef(input: Tensor) -> Tensor:
    """The correlation of variables (rows)."""
    c = cov(input)
    if c.ndim == 0:
        return P.div(c, c)
    deviation = P.sqrt(c.diagonal())
    scaled = P.div(P.div(c, deviation.unsqueeze(1)), deviation.unsqueeze(0))
    return P.clamp(scaled, -1, 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, one a row."""
    count = environment().specialise(shape_of_tensor(input)[0])
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(count), r)), np.int64).reshape(-1, r)
    return input[constant(rows)]


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix of a vector."""
    count = environment().specialise(shape_of_tensor(x)[0]) if N is None else N
    powers = [P.pow(x, i) for i in range(count)]
    return stack(powers if increasing else powers[::-1], 1)


def _splitter(name: str, dim: int, least: int) -> Any:
    def function(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(located(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a "
                f"tensor with {input.ndim} dimensions!"
            ))  # fmt: skip
        along = 0 if name == "hsplit" and input.ndim == 1 else dim
        return parts.tensor_split(input, indices_or_sections, along)

    function.__name__ = name
    function.__doc__ = f"tensor_split() along dim {dim}."
    return function


hsplit = _splitter("hsplit", 1, 1)
vsplit = _splitter("vsplit", 0, 2)
dsplit = _splitter("dsplit", 2, 3)


def broadcast_shapes(*shapes: Any) -> Any:
    """The common shape of several, as torch.Size."""
    return Size(broadcast_sizes(*(as_sequence(s) for s in shapes)))


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return shape_of_tensor(input) == shape_of_tensor(other)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one index tensor per dim."""
    found = []
    rest = indices
    for size in reversed(as_sequence(shape)):
        found.append(P.remainder(rest, size))
        rest = P.div(rest, size, rounding_mode="floor")
    return tuple(reversed(found))


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over broadcast dims, so that the result has the given size."""
    want = as_sequence(size[0]) if len(size) == 1 else size
    have = shape_of_tensor(self)
    extra = len(have) - len(want)
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(want) if n == 1 and have[i + extra] != 1
    )
    total = sum_(self, dims, True) if dims else self
    return total.reshape(want)  # type: ignore[no-any-return]


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1
) -> Tensor:
    """The running integral of y along `dim` by the trapezoidal rule."""
    along = dim % y.ndim
    size = shape_of_tensor(y)[along]
    areas = P.add(slice_dim(y, along, 0, size - 1), slice_dim(y, along, 1, size))
    if x is not None:
        steps = diff(x, dim=-1 if x.ndim == 1 else along)
        if x.ndim == 1 and along != y.ndim - 1:
            steps = steps.reshape((-1,) + (1,) * (y.ndim - along - 1))
        areas = P.mul(areas, steps)
        dx = 1
    return cumsum(P.mul(areas, dx / 2.0), along)  # type: ignore[no-any-return]
