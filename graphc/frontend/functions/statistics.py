"""Covariance, correlation, combinations and their kin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from graphc.ir import dtypes

from .. import promote
from ..context import local
from ..dispatch import constant
from ..errors import located
from ..numbers import Size, plain_size, plain_sizes
from ..promote import get_default_dtype
from ..tensor import Tensor
from . import complex_numbers, parts, shape
from . import pointwise as P
from .arguments import (
    as_sequence,
    broadcast_sizes,
    environment,
    public_size,
    recorded_as,
    wrap_dim,
)
from .arguments import shape as shape_of_tensor
from .cumulative import cumsum, diff
from .joining import stack
from .parts import slice_dim
from .reduction import mean


def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """The covariance of variables (rows) over observations (columns)."""
    if input.ndim > 2:
        raise RuntimeError(located(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        ))
    x = input.reshape(1, -1) if input.ndim < 2 else input
    if not (x.dtype.is_float or x.dtype.is_complex):
        x = promote.cast(x, get_default_dtype())
    count = environment().specialise(shape_of_tensor(x)[1])
    weights = _weights(fweights, aweights, count, x)
    if weights is None:
        centred = P.sub(x, mean(x, 1, True))
        found = centred.mm(_adjoint(centred))
        once: Tensor = P.div(found, float(max(count - correction, 0))).squeeze()
        return once
    total = weights.sum()
    centred = P.sub(x, P.div(P.mul(x, weights).sum(1, keepdim=True), total))
    used: Any = correction
    if aweights is not None and correction:
        squared = P.mul(weights, promote.cast(aweights, weights.dtype)).sum()
        used = P.div(P.mul(squared, correction), total)
    found = centred.mm(_adjoint(P.mul(centred, weights)))
    scale = P.clamp(P.sub(total, used), min=0)
    result: Tensor = P.div(found, scale).squeeze()
    return result


def _adjoint(x: Tensor) -> Tensor:
    turned = shape.t(x)
    return turned.conj() if x.dtype.is_complex else turned


def _weights(fweights: Any, aweights: Any, count: int, x: Tensor) -> Tensor | None:
    """How often each observation counts, times how much; None: once."""
    result: Tensor | None = None
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        if tuple(weights.shape) != (count,):
            raise RuntimeError(located(
                f"cov(): expected {name} to be one number per observation ([{count}]), got shape "
                f"{list(weights.shape)}"
            ))
        if (name == "fweights") == weights.dtype.is_float:
            wanted = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(located(f"cov(): expected {name} to have {wanted} dtype"))
        if local.trace is None and bool((weights.detach() < 0).any()):
            raise RuntimeError(located(f"cov(): {name} cannot be negative"))
        real = x.dtype if x.dtype.is_float else x.real.dtype
        part = promote.cast(weights, real) if name == "fweights" else weights
        result = part if result is None else P.mul(result, part)
    return result


def corrcoef(input: Tensor) -> Tensor:
    """The correlation of variables (rows)."""
    c = cov(input)
    if c.ndim == 0:
        return P.div(c, c)
    deviation = P.sqrt(c.diagonal())
    scaled = P.div(P.div(c, deviation.unsqueeze(1)), deviation.unsqueeze(0))
    if not c.dtype.is_complex:
        return P.clamp(scaled, -1, 1)
    return complex_numbers.complex(P.clamp(scaled.real, -1, 1), P.clamp(scaled.imag, -1, 1))


@recorded_as("StackBackward0")
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
    def function(
        input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
    ) -> tuple[Tensor, ...]:
        given = [g for g in (indices_or_sections, indices, sections) if g is not None]
        if len(given) != 1:
            raise TypeError(located(f"{name}() takes either indices or sections"))
        indices_or_sections, = given
        if input.ndim < least:
            raise RuntimeError(located(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a "
                f"tensor with {input.ndim} dimensions!"
            ))
        along = 0 if name == "hsplit" and input.ndim == 1 else dim
        if isinstance(indices_or_sections, int):
            size = shape_of_tensor(input)[along]
            if indices_or_sections == 0 or size % indices_or_sections != 0:
                raise RuntimeError(located(
                    f"torch.{name} attempted to split along dimension {along}, but the size of "
                    f"the dimension {size} is not divisible by the split_size "
                    f"{indices_or_sections}!"
                ))
        return parts.tensor_split(input, indices_or_sections, along)

    function.__name__ = name
    function.__doc__ = f"tensor_split() along dim {dim}."
    return function


hsplit = _splitter("hsplit", 1, 1)
vsplit = _splitter("vsplit", 0, 2)
dsplit = _splitter("dsplit", 2, 3)


def broadcast_shapes(*shapes: Any) -> Any:
    """The common shape of several, as torch.Size."""
    common = broadcast_sizes(*(plain_sizes(as_sequence(s)) for s in shapes))
    return Size(public_size(size) for size in common)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return shape_of_tensor(input) == shape_of_tensor(other)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one index tensor per dim."""
    if indices.dtype.kind not in ("int", "uint"):
        raise ValueError(located(
            f"expected 'indices' to be integer dtype, but got {indices.dtype}"
        ))
    found = []
    sizes = as_sequence(shape.tolist() if isinstance(shape, Tensor) else shape)
    if any(not isinstance(plain_size(n), int) or plain_size(n) < 0 for n in sizes):
        raise ValueError(located(f"'shape' cannot have negative values, but got {tuple(sizes)}"))
    rest = promote.cast(indices, dtypes.i64)
    for size in reversed(sizes):
        found.append(P.remainder(rest, size))
        rest = P.div(rest, size, rounding_mode="floor")
    return tuple(reversed(found))


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over broadcast dims, so that the result has the given size."""
    want = as_sequence(size[0]) if len(size) == 1 else size
    have = shape_of_tensor(self)
    if not want:
        return self.sum()  # type: ignore[no-any-return]
    extra = len(have) - len(want)
    if extra < 0:
        raise RuntimeError(located(
            f"size {{{list(want)}}} is not expandable to size {{{list(have)}}}."
        ))
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(want) if n == 1 and have[i + extra] != 1
    )
    if not dims and not extra:
        return self
    total = self.sum(dims, True) if dims else self
    if total.dtype is dtypes.bool_ and tuple(have) != tuple(want):
        total = promote.cast(total, dtypes.i64)
    return total.reshape(want)  # type: ignore[no-any-return]


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1
) -> Tensor:
    """The running integral of y along `dim` by the trapezoidal rule."""
    if y.dtype is dtypes.bool_:
        raise RuntimeError(located(
            "cumulative_trapezoid: received a bool input for `y`, but bool is not supported"
        ))
    along = wrap_dim(dim, y.ndim)
    size = shape_of_tensor(y)[along]
    if isinstance(size, int) and size == 0:
        return y.clone()  # type: ignore[no-any-return]
    areas = P.add(slice_dim(y, along, 0, size - 1), slice_dim(y, along, 1, size))
    if x is not None:
        steps = diff(x, dim=-1 if x.ndim == 1 else along)
        if x.ndim == 1 and along != y.ndim - 1:
            steps = steps.reshape((-1,) + (1,) * (y.ndim - along - 1))
        areas = P.mul(areas, steps)
        dx = 1
    return cumsum(P.mul(areas, dx / 2.0), along)  # type: ignore[no-any-return]
