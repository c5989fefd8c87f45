"""What the rules of linear algebra share: products, transposes, triangles and diagonals of
batches of matrices [..., m, n], on any `Value`."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, Size
from ..dtypes import DType
from ..types import TensorType
from ._rules import cast, conj, number, ops, permute, unsqueeze
from ._types import _TORCH_SCALAR_NAMES as SCALAR_NAMES
from ._types import fail

ACCEPTED = frozenset({dtypes.f32, dtypes.f64, *dtypes.COMPLEX})

__all__ = [
    "ACCEPTED", "diagonal", "diagonal_matrix", "eye_mask", "mH", "mT", "matmul",
    "real", "require_matrix", "require_square", "spread", "triangle",
]


def require_matrix(name: str, x: TensorType) -> None:
    """Raise unless `x` is a batch of matrices of float32, float64 or complex numbers."""
    if x.rank < 2:
        fail(f"{name}: The input tensor A must have at least 2 dimensions.")
    if x.dtype not in ACCEPTED:
        if x.dtype.is_float:
            fail(f"{name}: Low precision dtypes not supported. Got {SCALAR_NAMES[x.dtype.name]}")
        fail(f"{name}: Expected a floating point or complex tensor as input. "
             f"Got {SCALAR_NAMES[x.dtype.name]}")


def require_square(name: str, x: TensorType, env: DimEnv) -> Size:
    """The size of a batch of square matrices."""
    require_matrix(name, x)
    rows, columns = x.shape[-2:]
    if not env.equal(rows, columns):
        fail(f"{name}: A must be batches of square matrices, but they are {rows} by {columns} "
             "matrices")
    return rows


def mT(x: Any) -> Any:
    """The matrices transposed."""
    rank = len(x.type.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))


def mH(x: Any) -> Any:
    """The matrices transposed and conjugated."""
    return conj(mT(x))


def matmul(a: Any, b: Any) -> Any:
    """The product of two batches of the same batch dims."""
    n = len(a.type.shape) - 2
    dims = tuple(range(n))
    return ops.dot_general(
        a, b, batch_a=dims, batch_b=dims, contract_a=(n + 1,), contract_b=(n,)
    )


def real(x: Any) -> Any:
    """The real part of a complex value; a real one itself."""
    return cast(x, x.type.dtype.real)


def spread(vector: Any, dtype: DType, rows: bool) -> Any:
    """[..., k] as [..., 1, k] that scales columns, or (`rows`) [..., k, 1]."""
    rank = len(vector.type.shape)
    return cast(unsqueeze(vector, rank if rows else rank - 1), dtype)


def _places(like: Any, rows: Size, columns: Size) -> tuple[Any, Any]:
    shape = (rows, columns)
    row, column = [ops.iota.like(like, shape=shape, dim=d, dtype=dtypes.i64) for d in (0, 1)]
    return row, column


def eye_mask(x: Any) -> Any:
    """True on the diagonal of the last two dims."""
    return ops.eq(*_places(x, *x.type.shape[-2:]))


def diagonal(x: Any) -> Any:
    """The diagonals [..., k] of square matrices."""
    kept = ops.where(eye_mask(x), x, number(x, 0))
    return ops.sum(kept, dims=(len(x.type.shape) - 1,), keepdim=False)


def diagonal_matrix(vector: Any) -> Any:
    """Matrices with these diagonals, else 0."""
    rank = len(vector.type.shape)
    size = vector.type.shape[-1]
    columns = unsqueeze(vector, rank)
    wide = ops.expand(columns, shape=(*vector.type.shape, size))
    return ops.where(eye_mask(wide), wide, number(vector, 0))


def triangle(x: Any, upper: bool, strict: bool = False) -> Any:
    """The upper or lower triangle, with or without the diagonal, of the last two dims."""
    rows, columns = _places(x, *x.type.shape[-2:])
    compare = {(True, False): ops.le, (True, True): ops.lt,
               (False, False): ops.ge, (False, True): ops.gt}[upper, strict]
    return ops.where(compare(rows, columns), x, number(x, 0))
