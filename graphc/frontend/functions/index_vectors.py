"""Tensors of positions, as gather, index_select, index_add and the like take them."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes
from graphc.ir.op import OutOfRange

from .. import promote
from ..context import local
from ..errors import located
from ..near import is_near
from ..tensor import Tensor
from . import pointwise as P
from .arguments import shape


def require_index(name: str, index: Any) -> Tensor:
    """Positions as int64. Raises TypeError, or RuntimeError for another dtype."""
    if not isinstance(index, Tensor):
        raise TypeError(located(f"{name}(): index must be a Tensor, not {type(index).__name__}"))
    if index.dtype not in (dtypes.i64, dtypes.i32) and (
        name != "gather" or 0 not in shape(index)
    ):
        raise RuntimeError(located(f"{name}(): Expected dtype int32/int64 for index"))
    return promote.cast(index, dtypes.i64)


# which take no int32, and what they raise of other dtypes
_LONG = {
    "index_copy": (RuntimeError, "index_copy_(): Expected a long tensor for index"),
    "index_fill": (IndexError, "index_fill_(): Expected dtype int64 for index."),
}


def vector(name: str, index: Any) -> Tensor:
    """Positions along one dim. Raises IndexError for more dims than one."""
    if name in _LONG and isinstance(index, Tensor) and index.dtype is not dtypes.i64:
        kind, message = _LONG[name]
        raise kind(located(message))
    places = require_index(name, index)
    if places.ndim > 1:
        raise IndexError(located(f"{name}(): Index is supposed to be a vector"))
    return places.reshape(1) if places.ndim == 0 else places


_BEHIND_ALL = (1 << 63) - 1  # an index that is out of range, whatever a symbolic size is


def not_negative(index: Tensor, size: Any, dim: int) -> Tensor:
    """Indices of which the operator refuses the negative ones too, which it would count from the
    end. Raises where eager mode sees one."""
    if local.trace is not None or index._graphc_trace is not None or not is_near(index):
        wide = promote.cast(index, dtypes.i64)
        refused: Tensor = P.where(P.lt(wide, 0), _BEHIND_ALL, wide)
        return refused
    array = index._graphc_array
    if array.size and (least := array.min()) < 0:
        raise OutOfRange(located(
            f"index {least} is out of bounds for dimension {dim} with size {size}"
        ))
    return index


def require_one_rank(x: Tensor, places: Tensor, name: str) -> None:
    """Raise RuntimeError where one of the two is a scalar and the other is more than a vector."""
    if max(x.ndim, 1) != max(places.ndim, 1):
        raise RuntimeError(located(
            f"Index tensor must have the same number of dimensions as {name} tensor"
        ))


def require_slices(x: Tensor, source: Tensor) -> None:
    """Raise IndexError or RuntimeError, where a copied source is not as many slices of x."""
    if x.ndim and source.ndim:
        raise IndexError(located(
            "index_copy_(): When source and destination are not scalars, their dimensionality "
            f"must match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({x.ndim})"
        ))
    if x.ndim > 1:
        raise RuntimeError(located(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination "
            f"slice shape: {' '.join(map(str, shape(x)[1:]))} at dimension 0 and source slice "
            "shape:  at dimension 0."
        ))
