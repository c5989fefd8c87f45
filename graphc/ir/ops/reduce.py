"""Reductions over `dims` (sorted, distinct), and arg-reductions over one `dim`.

16-bit floats are accumulated in float32 by the backends; the record says the result's dtype.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, product
from ..op import Attrs, Op, TypeRule, VjpRule, register
from ..rounding import EXACT, LINEAR, SUMMED, Rounding
from ..types import Shape, TensorType, Type
from ._rules import cast, expand, keep_dims, ops, permute, reshape, sum_dims
from ._types import (
    BOOL,
    COMPLEX,
    NUMBERS,
    RING,
    Types,
    fail,
    reduced_shape,
    require_dim,
    require_dims,
    require_dtype,
)
from .cumulative import exclusive_product


def _require_elements(name: str, shape: Shape, dim: int, env: DimEnv) -> None:
    if env.equal(shape[dim], 0):
        fail(f"{name}(): Expected reduction dim {dim} to have non-zero size.", IndexError)


def _reduce_type(name: str, allowed: frozenset[dtypes.DType], empty: bool) -> TypeRule:
    """The rule of a reduction; `empty`: whether it has a value over no elements."""

    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        (x,) = types
        dims: tuple[int, ...] = attrs["dims"]
        require_dtype(name, x.dtype, allowed)
        require_dims(name, dims, x.rank)
        if not empty:
            for dim in dims:
                _require_elements(name, x.shape, dim, env)
        return TensorType(x.dtype, reduced_shape(x.shape, dims, attrs["keepdim"]))

    return infer


def _arg_type(name: str) -> TypeRule:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        (x,) = types
        require_dtype(name, x.dtype, NUMBERS)
        require_dim(name, attrs["dim"], x.rank)
        _require_elements(name, x.shape, attrs["dim"], env)
        shape = reduced_shape(x.shape, (attrs["dim"],), attrs["keepdim"])
        return TensorType(dtypes.i64, shape)

    return infer


def _sum_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: tuple[int, ...], keepdim: bool
) -> Any:
    shape = inputs[0].type.shape
    return (expand(keep_dims(grads[0], shape, dims, keepdim), shape),)


def _prod_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: tuple[int, ...], keepdim: bool
) -> Any:
    # the product of all the others, without a division: right at zeros, and so are its gradients
    (x,) = inputs
    shape = x.type.shape
    size = product(shape[d] for d in dims)
    if not dims or size == 0:
        return (expand(keep_dims(grads[0], shape, dims, keepdim), shape),)
    order = list(range(len(shape)))
    first = dims[0]
    if dims[-1] - first >= len(dims):  # dims that do not lie side by side go last
        order = [*(d for d in order if d not in dims), *dims]
        first = len(shape) - len(dims)
    moved = tuple(shape[d] for d in order)
    rows = reshape(permute(x, order), (*moved[:first], size, *moved[first + len(dims):]))
    before = exclusive_product(rows, first)
    after = ops.flip(exclusive_product(ops.flip(rows, dims=(first,)), first), dims=(first,))
    others = reshape(before * after, moved)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return (keep_dims(grads[0], shape, dims, keepdim) * permute(others, inverse),)


def _extremum_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: tuple[int, ...], keepdim: bool
) -> Any:
    (x,), (y,) = inputs, outs
    shape = x.type.shape
    g = keep_dims(grads[0], shape, dims, keepdim)
    y = keep_dims(y, shape, dims, keepdim)
    won = ops.eq(x, y)
    if x.type.dtype.is_float and len(dims) == len(shape):
        won = ops.logical_or(won, ops.isnan(x))  # torch's max() and min() do so; amax() does not
    winners = cast(won, x.type.dtype)
    return (g / sum_dims(winners, dims, keepdim=True) * winners,)


def _register(
    name: str,
    rounding: Rounding,
    allowed: frozenset[dtypes.DType],
    vjp: VjpRule | None,
    doc: str,
    *,
    empty: bool = True,
    nondifferentiable: str = "",
    domain: tuple[float, float] = (-10.0, 10.0),
) -> None:
    register(
        Op(
            name, "reduce", _reduce_type(name, allowed, empty), vjp, arity=1,
            attrs=("dims", "keepdim"), nondifferentiable=nondifferentiable, domain=domain,
            cost=None, rounding=rounding, takes_complex=not COMPLEX.isdisjoint(allowed), doc=doc,
        )
    )


_register("sum", LINEAR, RING, _sum_vjp, "The sum over `dims`; 0 over no elements.")
_register("prod", SUMMED, RING, _prod_vjp, "The product over `dims`; 1 over no elements.",
          domain=(-2.0, 2.0))
_register(
    "amax", EXACT, NUMBERS, _extremum_vjp,
    "The largest over `dims`; NaN wins; ties share the gradient evenly.", empty=False,
)
_register(
    "amin", EXACT, NUMBERS, _extremum_vjp,
    "The smallest over `dims`; NaN wins; ties share the gradient evenly.", empty=False,
)
_register("any", EXACT, BOOL, None, "True if any is, over `dims`.",
          nondifferentiable="bool result")
_register("all", EXACT, BOOL, None, "True if all are, over `dims`.",
          nondifferentiable="bool result")

for _name, _which in (("argmax", "largest"), ("argmin", "smallest")):
    register(
        Op(
            _name, "arg_reduce", _arg_type(_name), arity=1, attrs=("dim", "keepdim"),
            nondifferentiable="integer result",
            cost=None, rounding=EXACT, takes_complex=False,
            doc=f"The i64 index of the {_which} along `dim`; the first of equals; NaN wins.",
        )
    )
