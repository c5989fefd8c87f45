"""Complex numbers: conjugate, absolute value, sign, and the views between them and their parts.

torch's gradient of a complex number is that of its parts, as one number: g_real + i g_imag.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv
from ..dtypes import complex_of
from ..op import LIGHT, Attrs, Op, TypeRule, register
from ..rounding import EXACT, ROUNDED
from ..types import TensorType, Type
from ._rules import cast, ops, reshape
from ._types import COMPLEX, Types, fail

_DTYPES = {"f32", "f64"}


def _complex_type(name: str, real: bool) -> TypeRule:
    """One complex input; the result's dtype is that of its parts, or its own."""

    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        (x,) = types
        if x.dtype not in COMPLEX:
            fail(f"{name} is only supported for complex tensors, got {x.dtype}")
        return x.with_dtype(x.dtype.real) if real else x

    return infer


def _view_as_real(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    if x.dtype not in COMPLEX:
        fail("view_as_real is only supported for complex tensors")
    return TensorType(x.dtype.real, (*x.shape, 2))


def _view_as_complex(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    if x.dtype.name not in _DTYPES:
        fail("view_as_complex is only supported for half, float and double tensors, but got a "
             f"tensor of scalar type: {x.dtype.torch_name}")
    if not x.shape:
        fail("Input tensor must have one or more dimensions")
    if not env.equal(x.shape[-1], 2):
        fail("Tensor must have a last dimension of size 2")
    return TensorType(complex_of(x.dtype), x.shape[:-1])


def _abs_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    (x,) = inputs
    return (cast(grads[0], x.type.dtype) * ops.complex_sign(x),)


def _sign_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    """The part of g across the sign's direction, over |x|; 0 at 0."""
    (g,), (x,), (y,) = grads, inputs, outs
    size = ops.complex_abs(x)
    zero = ops.eq(size, 0.0)
    along = cast(ops.conj(y) * g, size.type.dtype)
    across = g - y * cast(along, g.type.dtype)
    safe = cast(ops.where(zero, reshape(size - size + 1.0, size.type.shape), size), g.type.dtype)
    return (ops.where(zero, across - across, across / safe),)


register(
    Op(
        "conj", "routine", _complex_type("conj", False),
        lambda grads, inputs, outs, needs: (ops.conj(grads[0]),), arity=1, adjoint=True,
        cost=None, rounding=EXACT, takes_complex=True,
        doc="The complex conjugate, as a copy.",
    )
)
register(
    Op(
        "complex_abs", "routine", _complex_type("abs", True), _abs_vjp, arity=1, adjoint=True,
        cost=None, rounding=ROUNDED, takes_complex=True,
        doc="|x| of complex numbers, real; gradient 0 at 0.",
    )
)
register(
    Op(
        "complex_sign", "routine", _complex_type("sgn", False), _sign_vjp, arity=1, adjoint=True,
        cost=None, rounding=ROUNDED, takes_complex=True,
        doc="x / |x| of complex numbers; 0 at 0.",
    )
)
register(
    Op(
        "view_as_real", "movement", _view_as_real,
        lambda grads, inputs, outs, needs: (ops.view_as_complex(grads[0]),), arity=1, view=True,
        adjoint=True,
        cost=LIGHT, rounding=EXACT, takes_complex=True,
        doc="[..., 2]: real and imaginary parts of complex [...]; shares memory.",
    )
)
register(
    Op(
        "view_as_complex", "movement", _view_as_complex,
        lambda grads, inputs, outs, needs: (ops.view_as_real(grads[0]),), arity=1, view=True,
        adjoint=True,
        cost=LIGHT, rounding=EXACT, takes_complex=True,
        doc="Complex [...] of parts in [..., 2]; shares memory.",
    )
)
