"""Products of vectors and matrices; pytorch.org/docs/stable/linalg.html."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphc

from ._batches import Tensor, located, with_out


@with_out
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `dim`."""
    return graphc.cross(input, other, dim)


@with_out
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of conj(x) * y along `dim`."""
    if x.dtype is not y.dtype:
        raise RuntimeError(located(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found {x.dtype} and "
            f"{y.dtype} instead"
        ))
    return (x.conj() * y).sum(dim)


@with_out
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """torch.matmul."""
    return graphc.matmul(input, other)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices."""
    return graphc.diagonal(A, offset, dim1, dim2)


@with_out
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, multiplied in the cheapest order."""
    values = list(tensors)
    if len(values) < 2:
        raise RuntimeError(located(
            f"multi_dot(): expected at least 2 tensors but got {len(values)}"
        ))
    first, last = values[0].ndim == 1, values[-1].ndim == 1
    if first:
        values[0] = values[0].unsqueeze(0)
    if last:
        values[-1] = values[-1].unsqueeze(1)
    for i, x in enumerate(values):
        if x.ndim != 2:
            raise RuntimeError(located(f"multi_dot(): tensor {i} must be 2D but got {x.ndim}D"))
    found = _in_order(values)
    if first:
        found = found.squeeze(0)
    return found.squeeze(-1) if last else found


def _in_order(values: list[Tensor]) -> Tensor:
    """Matrix chain multiplication by dynamic programming (Cormen et al., 15.2)."""
    count = len(values)
    sizes = [values[0].shape[0], *(x.shape[1] for x in values)]
    cost = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], cut[i, j] = min(options)
    done: dict[tuple[int, int], Tensor] = {(i, i): x for i, x in enumerate(values)}
    stack = [(0, count - 1)]
    while stack:
        i, j = span = stack[-1]
        if span in done:
            stack.pop()
            continue
        k = cut[span]
        parts = [(i, k), (k + 1, j)]
        missing = [p for p in parts if p not in done]
        stack.extend(missing)
        if not missing:
            done[span] = done[parts[0]] @ done[parts[1]]
    return done[0, count - 1]


@with_out
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element, as rows."""
    x = x.unsqueeze(0) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else N
    if count <= 1 and N is not None:
        raise RuntimeError(located("N must be greater than 1."))
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        x = x.long()  # as a product of integers is
    ones = graphc.ones_like(x)
    powers: list[Any] = [ones]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return graphc.stack(powers, -1)
