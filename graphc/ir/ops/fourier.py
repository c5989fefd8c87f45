"""Discrete Fourier transforms: complex to complex, real to half a spectrum, and back.

`scale` multiplies the result; a transform and its inverse are each other's adjoint but for it.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv
from ..dtypes import complex_of
from ..op import Attrs, Op, register
from ..rounding import SUMMED
from ..types import TensorType, Type
from ._rules import along, cast, ops
from ._types import COMPLEX, Types, fail, require_dims


def _complex_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dims("fft", attrs["dims"], x.rank)
    if x.dtype not in COMPLEX:
        fail(f"fft_complex takes complex tensors, got {x.dtype}")
    return x


def _real_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dims("rfft", attrs["dims"], x.rank)
    if x.dtype.name not in ("f32", "f64"):
        fail(f"rfft expects a real input tensor, but got {x.dtype.torch_name}")
    last = attrs["dims"][-1]
    shape = tuple(n // 2 + 1 if i == last else n for i, n in enumerate(x.shape))
    return TensorType(complex_of(x.dtype), shape)


def _inverse_real_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dims("irfft", attrs["dims"], x.rank)
    if x.dtype not in COMPLEX:
        fail(f"fft_inverse_real takes complex tensors, got {x.dtype}")
    last = attrs["dims"][-1]
    shape = tuple(attrs["size"] if i == last else n for i, n in enumerate(x.shape))
    return TensorType(x.dtype.real, shape)


def _complex_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: Any, inverse: bool, scale: float
) -> Any:
    return (ops.fft_complex(grads[0], dims=dims, inverse=not inverse, scale=scale),)


def _real_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: Any, scale: float
) -> Any:
    """The other half of the spectrum has no gradient: pad with zeros, then take the real part."""
    (g,), (x,) = grads, inputs
    last = dims[-1]
    rank = len(g.type.shape)
    missing = x.type.shape[last] - g.type.shape[last]
    high = tuple(missing if i == last else 0 for i in range(rank))
    none = (0,) * rank
    padded = ops.pad(g, low=none, high=high, interior=none, value=0.0)
    whole = ops.fft_complex(padded, dims=dims, inverse=True, scale=scale)
    return (cast(whole, x.type.dtype),)


def _inverse_real_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: Any, size: Any, scale: float
) -> Any:
    """Each number of the half spectrum but the first, and the middle one, was used twice."""
    (g,), (x,) = grads, inputs
    last = dims[-1]
    half = ops.fft_real(g, dims=dims, scale=scale)
    count = x.type.shape[last]
    place = ops.iota.like(g, shape=(count,), dim=0, dtype=g.type.dtype)
    twice = ops.logical_and(ops.gt(place, 0.0), ops.lt(place, (size - 1) // 2 + 0.5))
    factor = cast(cast(twice, g.type.dtype) + 1.0, x.type.dtype)
    return (half * along(factor, len(x.type.shape), last),)


register(
    Op(
        "fft_complex", "routine", _complex_type, _complex_vjp, arity=1,
        attrs=("dims", "inverse", "scale"), adjoint=True,
        cost=None, rounding=SUMMED, takes_complex=True,
        doc="The discrete Fourier transform over `dims`, or its inverse, times `scale`.",
    )
)
register(
    Op(
        "fft_real", "routine", _real_type, _real_vjp, arity=1, attrs=("dims", "scale"),
        adjoint=True,
        cost=None, rounding=SUMMED, takes_complex=True,
        doc="The transform of real numbers, half of the last of `dims`.",
    )
)
register(
    Op(
        "fft_inverse_real", "routine", _inverse_real_type, _inverse_real_vjp, arity=1,
        attrs=("dims", "size", "scale"), adjoint=True,
        cost=None, rounding=SUMMED, takes_complex=True,
        doc="Real numbers, `size` of them in the last of `dims`, of half a spectrum.",
    )
)
