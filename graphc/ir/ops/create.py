"""Operators without inputs: constant fills and counting. (`const` is in ir/graph.py.)"""

from __future__ import annotations

from .. import dtypes
from ..dim import DimEnv, Size
from ..op import LIGHT, Attrs, Op, register
from ..rounding import EXACT
from ..types import Shape, TensorType, Type
from ._types import NUMBERS, Types, fail, require_dim, require_dtype, sizes_text

_NO_INPUTS = "it has no inputs"


def require_shape(name: str, shape: Shape) -> None:
    """Raise unless `shape` is a tuple of sizes, none negative."""
    for size in shape:
        if isinstance(size, int) and size < 0:
            fail(f"{name}: Trying to create tensor with negative dimension {size}: "
                 f"{sizes_text(shape)}")


def _full(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    require_shape("full", attrs["shape"])
    value: float | Size = attrs["value"]
    dtype: dtypes.DType = attrs["dtype"]
    if isinstance(value, float) and not dtype.differentiable:
        fail(f"full: value {value!r} is a float, but dtype is {dtype}; give an int", TypeError)
    return TensorType(dtype, attrs["shape"])


def _iota(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    require_shape("iota", attrs["shape"])
    require_dim("iota", attrs["dim"], len(attrs["shape"]))
    require_dtype("iota", attrs["dtype"], NUMBERS)
    return TensorType(attrs["dtype"], attrs["shape"])


register(
    Op(
        "full", "create", _full, arity=0, attrs=("shape", "value", "dtype"),
        nondifferentiable=_NO_INPUTS,
        cost=LIGHT, rounding=EXACT, takes_complex=True,
        doc="`shape` filled with `value`: a number, or a symbolic Size (its run-time value).",
    )
)
register(
    Op(
        "iota", "create", _iota, arity=0, attrs=("shape", "dim", "dtype"),
        nondifferentiable=_NO_INPUTS,
        cost=LIGHT, rounding=EXACT, takes_complex=False,
        doc="`shape` where each element is its own index along `dim`.",
    )
)
