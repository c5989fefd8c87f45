"""Running sums, products and extrema along one dimension."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, Size, minimum
from ..op import Attrs, Op, TypeRule, register
from ..rounding import EXACT, LINEAR, SUMMED
from ..types import TupleType, Type
from ._rules import filled, ops, zeros
from ._types import NUMBERS, RING, Types, require_dim, require_dtype

_MOST_STEPS = 31  # doublings that cover any size a dimension can have


def _cumulative_type(name: str, with_index: bool) -> TypeRule:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        (x,) = types
        require_dtype(name, x.dtype, NUMBERS if with_index else RING)
        require_dim(name, attrs["dim"], x.rank)
        return TupleType((x, x.with_dtype(dtypes.i64))) if with_index else x

    return infer


def _part(x: Any, dim: int, start: Size, stop: Size) -> Any:
    """x[start:stop] along `dim`."""
    shape = x.type.shape
    starts = tuple(start if i == dim else 0 for i in range(len(shape)))
    stops = tuple(stop if i == dim else size for i, size in enumerate(shape))
    return ops.slice(x, starts=starts, stops=stops, steps=(1,) * len(shape))


def exclusive_product(x: Any, dim: int) -> Any:
    """The product of the elements before each one along `dim`, which has at least one."""
    shape = x.type.shape
    first = tuple(1 if i == dim else size for i, size in enumerate(shape))
    ones = filled(x, first, 1, x.type.dtype)
    return ops.cumprod(ops.concat(ones, _part(x, dim, 0, shape[dim] - 1), dim=dim), dim=dim)


def _ahead(x: Any, dim: int, by: Size) -> Any:
    """Element i + by at i along `dim`; 0 past the end."""
    shape = x.type.shape
    none = (0,) * len(shape)
    high = tuple(by if i == dim else 0 for i in range(len(shape)))
    return ops.pad(
        _part(x, dim, by, shape[dim]), low=none, high=high, interior=none, value=0.0
    )


def _cumsum_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    backwards = ops.flip(grads[0], dims=(dim,))
    return (ops.flip(ops.cumsum(backwards, dim=dim), dims=(dim,)),)


def _cumprod_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    """x's gradient at k is prod(x[:k]) * s[k], where s[k] = g[k] + x[k+1] * s[k+1].

    The recurrence is solved by doubling, without a division, so that it holds at zeros, and
    so do its own gradients.
    """
    (g,), (x,) = grads, inputs
    size = x.type.shape[dim]
    if size == 0:
        return (g,)
    total, factor = g, _ahead(x, dim, 1)
    steps = (size - 1).bit_length() if isinstance(size, int) else _MOST_STEPS
    for step in range(steps):
        by = minimum(1 << step, size)
        total = total + factor * _ahead(total, dim, by)
        if step + 1 < steps:
            factor = factor * _ahead(factor, dim, by)
    return (exclusive_product(x, dim) * total,)


def _running_extremum_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    return (ops.scatter(zeros(inputs[0]), outs[1], grads[0], dim=dim, reduce="add"),)


register(
    Op(
        "cumsum", "cumulative", _cumulative_type("cumsum", False), _cumsum_vjp, arity=1,
        attrs=("dim",),
        cost=None, rounding=LINEAR, takes_complex=True,
        doc="The running sum along `dim`, in the input's dtype.",
    )
)
register(
    Op(
        "cumprod", "cumulative", _cumulative_type("cumprod", False), _cumprod_vjp, arity=1,
        attrs=("dim",), domain=(-2.0, 2.0),
        cost=None, rounding=SUMMED, takes_complex=True,
        doc="The running product along `dim`, in the input's dtype.",
    )
)
for _name, _which in (("cummax", "largest"), ("cummin", "smallest")):
    register(
        Op(
            _name, "cumulative", _cumulative_type(_name, True), _running_extremum_vjp, arity=1,
            results=2, attrs=("dim",),
            cost=None, rounding=EXACT, takes_complex=False,
            doc=f"The {_which} so far along `dim` and its i64 index; the latest of equals.",
        )
    )
