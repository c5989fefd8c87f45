"""torch.gradient: derivatives of sampled functions."""

from __future__ import annotations

from typing import Any

from .. import promote
from ..errors import located
from ..tensor import Tensor
from . import pointwise as P
from .arguments import as_sequence, environment, shape, wrap_dim
from .joining import cat
from .parts import slice_dim


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Central differences along each of the dims; one-sided ones of `edge_order` at the ends.

    `spacing`: one number, or for each dim a number or a vector of coordinates.
    """
    if edge_order not in (1, 2):
        raise RuntimeError(located("torch.gradient only supports edge_order=1 and edge_order=2."))
    dims = range(input.ndim) if dim is None else [wrap_dim(d, input.ndim) for d in as_sequence(dim)]
    if len(set(dims)) != len(dims):
        raise RuntimeError(located(f"dim appears multiple times in the list of dims: {dim}"))
    if spacing is None:
        spacing = 1
    if isinstance(spacing, Tensor):
        spacing = [spacing]
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(located(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"{len(dims)}, but got a list of length {len(steps)}"
        ))
    if any(isinstance(s, Tensor) and s.device != input.device for s in steps):
        raise RuntimeError(located(
            "torch.gradient expected each tensor to be on the same device as the input, "
            f"{input.device}"
        ))
    x = input
    if not (x.dtype.is_float or x.dtype.is_complex):
        x = promote.cast(x, promote.get_default_dtype())
    return tuple(_along(x, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _along(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    size = environment().specialise(shape(x)[dim])
    if size < edge_order + 1:
        raise RuntimeError(located(
            "torch.gradient expected each dimension size to be at least edge_order+1"
        ))

    def at(start: int, stop: int) -> Tensor:
        return slice_dim(x, dim, start, stop)

    steps = _steps(x, dim, spacing, size)

    def step(start: int, stop: int) -> Tensor:
        return slice_dim(steps, dim, start, stop) if steps.ndim else steps

    left, right = step(0, size - 2), step(1, size - 1)  # of the inner points
    inner = []
    if size > 2:
        inner = [_inner(at(0, size - 2), at(1, size - 1), at(2, size), left, right)]
    first = P.div(P.sub(at(1, 2), at(0, 1)), step(0, 1))
    last = P.div(P.sub(at(size - 1, size), at(size - 2, size - 1)), step(size - 2, size - 1))
    if edge_order == 2:
        a, b = step(0, 1), step(1, 2)
        second = P.div(P.sub(at(2, 3), at(1, 2)), b)
        first = P.add(first, P.mul(P.sub(first, second), P.div(a, P.add(a, b))))
        a, b = step(size - 2, size - 1), step(size - 3, size - 2)
        second = P.div(P.sub(at(size - 2, size - 1), at(size - 3, size - 2)), b)
        last = P.add(last, P.mul(P.sub(last, second), P.div(a, P.add(a, b))))
    return cat([first, *inner, last], dim)


def _inner(before: Tensor, here: Tensor, behind: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Between even steps (`left` is `right`) the point itself, infinite perhaps, has no part."""
    total: Tensor = P.add(left, right)
    if left is right:
        return P.div(P.sub(behind, before), total)
    rise, fall = P.div(P.sub(behind, here), right), P.div(P.sub(here, before), left)
    weighted = P.add(P.mul(rise, left), P.mul(fall, right))
    return P.div(weighted, total)


def _steps(x: Tensor, dim: int, spacing: Any, size: int) -> Tensor:
    """The distances of neighbours: a 0-d tensor, or one along `dim`."""
    if not isinstance(spacing, Tensor) or spacing.ndim == 0:
        return promote.operand(spacing, x.dtype)
    if tuple(spacing.shape) != (size,):
        raise RuntimeError(located(
            "torch.gradient expected each element of the spacing list to have the same length as "
            f"its dimension ({size}), got {list(spacing.shape)}"
        ))
    distances = promote.cast(P.sub(spacing[1:], spacing[:-1]), x.dtype)
    sizes = (1,) * dim + (size - 1,) + (1,) * (x.ndim - dim - 1)
    return distances.reshape(sizes)  # type: ignore[no-any-return]
