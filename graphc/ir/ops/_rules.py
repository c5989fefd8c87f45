"""What gradient rules and decompositions share.

They compute on any `Value` through operators called as functions; of a value itself they read
`.type` alone, so that what a rule really reads can be found by tracing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..dim import Size, product
from ..dtypes import DType
from ..op import REGISTRY, Op, VjpRule
from ..types import Shape


class _Operators:
    """Records by name, looked up when a rule runs: families refer to each other in circles."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Op:
        try:
            return REGISTRY[name]
        except KeyError:
            raise AttributeError(f"there is no operator {name!r}") from None


ops = _Operators()


# --- shorthand for gradient rules ------------------------------------------------------------


def unary_rule(gradient: Callable[[Any, Any, Any], Any]) -> VjpRule:
    """The rule of a one-input operator without metadata, from gradient(g, x, y)."""

    def vjp(grads: Any, inputs: Any, outs: Any, needs: Any, **attrs: Any) -> Sequence[Any]:
        return (gradient(grads[0], inputs[0], outs[0]),)

    return vjp


def rounded_once(gradient: Callable[..., Any], g: Any, *others: Any) -> Any:
    """gradient(g, *others); of half precision computed in float32, as torch's kernels do it, and
    rounded once."""
    dtype = g.type.dtype
    if not (dtype.is_float and dtype.bits == 16):
        return gradient(g, *others)
    return ops.cast(gradient(*[ops.cast(x, dtype=dtypes.f32) for x in (g, *others)]), dtype=dtype)


def binary_rule(
    left: Callable[[Any, Any, Any, Any], Any], right: Callable[[Any, Any, Any, Any], Any]
) -> VjpRule:
    """The rule of a two-input operator from the gradients left, right of (g, a, b, y)."""

    def vjp(grads: Any, inputs: Any, outs: Any, needs: Any, **attrs: Any) -> Sequence[Any]:
        a, b = inputs
        return (
            left(grads[0], a, b, outs[0]) if needs[0] else None,
            right(grads[0], a, b, outs[0]) if needs[1] else None,
        )

    return vjp


# --- values ----------------------------------------------------------------------------------


def number(like: Any, value: float | int | bool) -> Any:
    """A 0-d constant of `like`'s dtype."""
    return like._constant(value, like.type)


def filled(like: Any, shape: Shape, value: float | Size, dtype: DType) -> Any:
    """A tensor of one value, in the world of `like`."""
    if dtype.is_float and isinstance(value, (int, float)):
        value = float(value)  # one spelling, so that equal fills are one node
    return ops.full.like(like, shape=shape, value=value, dtype=dtype)


def zeros(like: Any) -> Any:
    """Zeros of `like`'s shape and dtype."""
    return filled(like, like.type.shape, 0, like.type.dtype)


def select(condition: Any, a: Any, b: Any) -> Any:
    """where(condition, a, b); one of a and b may be a Python number."""
    if not hasattr(a, "_emit"):
        a = number(b, a)
    elif not hasattr(b, "_emit"):
        b = number(a, b)
    return ops.where(condition, a, b)


def count(like: Any, sizes: Sequence[Size]) -> Any:
    """The product of `sizes` as a number, or as a 0-d value of `like`'s dtype if symbolic."""
    total = product(sizes)
    if isinstance(total, int):
        return float(total)
    return filled(like, (), total, like.type.dtype)


def accumulation_dtype(dtype: DType) -> DType:
    """The dtype that a numerically delicate composite computes in: float32 for 16-bit floats."""
    return dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype


def cast(x: Any, dtype: DType) -> Any:
    """`x` as `dtype`; `x` itself where it is that already."""
    return x if x.type.dtype is dtype else ops.cast(x, dtype=dtype)


def conj(x: Any) -> Any:
    """The complex conjugate; a real value (or None) itself."""
    if x is None or not x.type.dtype.is_complex:
        return x
    return ops.conj(x)


# --- shapes ----------------------------------------------------------------------------------


def reshape(x: Any, shape: Shape) -> Any:
    """`x` with `shape`; `x` itself where it has that already."""
    return x if x.type.shape == shape else ops.reshape(x, shape=shape)


def permute(x: Any, dims: Sequence[int]) -> Any:
    """`x` with its dimensions in the order `dims`; `x` itself where that is the order."""
    order = tuple(dims)
    return x if order == tuple(range(len(order))) else ops.permute(x, dims=order)


def expand(x: Any, shape: Shape) -> Any:
    """`x` repeated to `shape`; `x` itself where it has that already."""
    return x if x.type.shape == shape else ops.expand(x, shape=shape)


def sum_dims(x: Any, dims: Sequence[int], keepdim: bool = False) -> Any:
    """The sum over `dims`; `x` itself for none."""
    return ops.sum(x, dims=tuple(dims), keepdim=keepdim) if dims else x


def unsqueeze(x: Any, dim: int) -> Any:
    """`x` with a dimension of size 1 put in at `dim`."""
    shape = x.type.shape
    return reshape(x, (*shape[:dim], 1, *shape[dim:]))


def keep_dims(x: Any, shape: Shape, dims: Sequence[int], keepdim: bool) -> Any:
    """`x`, reduced from `shape` over `dims`, with the reduced dimensions as size 1."""
    if keepdim:
        return x
    return reshape(x, tuple(1 if i in dims else size for i, size in enumerate(shape)))


def along(vector: Any, rank: int, dim: int) -> Any:
    """A 1-d value laid along dimension `dim` of a tensor with `rank` dimensions."""
    size = vector.type.shape[0]
    return reshape(vector, tuple(size if i == dim else 1 for i in range(rank)))


def sum_to(g: Any, shape: Shape) -> Any:
    """Sum a gradient of a broadcast shape down to `shape`."""
    have = g.type.shape
    if have == shape:
        return g
    extra = len(have) - len(shape)
    dims = list(range(extra))
    for i, size in enumerate(shape):
        if isinstance(size, int) and size == 1 and have[extra + i] != 1:
            dims.append(extra + i)
    # a size that equals another by guard alone is respelled by the reshape
    return reshape(sum_dims(g, dims), shape)
