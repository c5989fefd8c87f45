"""Distances between rows."""

from __future__ import annotations

from ..context import local
from ..errors import located
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import environment, recorded_as, shape
from .linalg_basic import matmul
from .norms import vector_norm

_FEW_ROWS = 25  # beyond which torch takes Euclidean distances from a product


def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(a^2 + b^2 - 2ab), whose gradient is 0 where rows are equal."""
    squares = P.add(
        P.square(x1).sum(-1).unsqueeze(-1), P.square(x2).sum(-1).unsqueeze(-2)
    )
    total = P.sub(squares, P.mul(matmul(x1, x2.transpose(-2, -1)), 2))
    equal = P.le(total, 0)
    result: Tensor = P.where(equal, 0.0, P.sqrt(P.where(equal, 1.0, total)))
    return result


def _by_product(x1: Tensor, x2: Tensor, p: float, compute_mode: str) -> bool:
    """Whether distances come of a product of matrices."""
    rows = [shape(x)[-2] for x in (x1, x2) if x.ndim >= 2]
    return p == 2 and len(rows) == 2 and x1.dtype is x2.dtype and x1.dtype.is_float and (
        compute_mode == "use_mm_for_euclid_dist" or (
            compute_mode != "donot_use_mm_for_euclid_dist"
            and any(isinstance(n, int) and n > _FEW_ROWS for n in rows)
        )
    )


@replayed
def norm_of_difference(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """Over the last dim; of many numbers one loop, as no view is among its steps."""
    return vector_norm(P.sub(x1, x2), p, -1)


@recorded_as("CdistBackward0")
def _cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str) -> Tensor:
    if _by_product(x1, x2, p, compute_mode):
        return _euclidean(x1, x2)
    return norm_of_difference(x1.unsqueeze(-2), x2.unsqueeze(-3), p)


_cdist_again = replayed(_cdist)
MANY_DIFFERENCES = 1 << 16  # from which on they are one loop, without memory for them


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "") -> Tensor:
    """Distances between the rows of two batches of matrices."""
    for i, x in enumerate((x1, x2)):
        if x.ndim < 2:
            raise RuntimeError(located(
                f"cdist only supports at least 2D tensors, X{i + 1} got: {x.ndim}D"
            ))
    columns = shape(x1)[-1], shape(x2)[-1]
    if not environment().equal(*columns):
        raise RuntimeError(located(
            f"X1 and X2 must have the same number of columns. X1: {columns[0]} X2: {columns[1]}"
        ))
    if local.trace is None and isinstance(x1, Tensor) and isinstance(x2, Tensor) and (
        x2.ndim >= 2 and x1.numel() * shape(x2)[-2] >= MANY_DIFFERENCES
        and not _by_product(x1, x2, p, compute_mode)
    ):
        return _cdist(x1, x2, p, compute_mode)
    return _cdist_again(x1, x2, p, compute_mode)
