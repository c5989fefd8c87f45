"""Complex numbers: their making, their parts (which share memory), conjugates and angles."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes, ops

from .. import promote
from ..dispatch import apply, filled_beside
from ..errors import located
from ..ownership import owns_result
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import named, with_out
from .joining import stack
from .parts import select
from .repetition import broadcast_tensors


def view_as_real(input: Tensor) -> Tensor:
    """[..., 2]: real and imaginary parts; shares memory."""
    result: Tensor = apply(ops.view_as_real, input)
    return result


def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers of the pairs in the last dim; shares memory. Raises RuntimeError where it
    is not a dim of two adjacent numbers."""
    try:
        result: Tensor = apply(ops.view_as_complex, input)
    except RuntimeError as error:
        raise RuntimeError(located(str(error))) from None
    return result


def real(input: Tensor) -> Tensor:
    """The real part, sharing memory; a real tensor itself."""
    if not input.dtype.is_complex:
        return input
    return select(view_as_real(input), -1, 0)


def imag(input: Tensor) -> Tensor:
    """The imaginary part, sharing memory. Raises RuntimeError for a real tensor."""
    if not input.dtype.is_complex:
        raise RuntimeError(located(
            "imag is not implemented for tensors with non-complex dtypes."
        ))
    return select(view_as_real(input), -1, 1)


def conj(input: Tensor) -> Tensor:
    """The complex conjugate (a copy); a real tensor itself."""
    if not input.dtype.is_complex:
        return input
    result: Tensor = apply(ops.conj, input)
    return result


@with_out
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate, as a new tensor."""
    return conj(input)


def resolve(input: Tensor) -> Tensor:
    """The tensor itself: conjugation and negation are never put off."""
    return input


@with_out
@replayed
def angle(input: Tensor) -> Tensor:
    """The argument in radians; of real numbers 0, pi for negative ones and NaN for NaN."""
    if input.dtype.is_complex:
        return P.atan2(imag(input), real(input))
    x = input if input.dtype.is_float else promote.cast(input, promote.get_default_dtype())
    turned = P.where(P.lt(x, 0), 3.141592653589793, 0.0)
    return P.where(P.isnan(x), x, promote.cast(turned, x.dtype))  # type: ignore[no-any-return]


@with_out
def sgn(input: Tensor) -> Tensor:
    """The sign; x / |x| of complex numbers."""
    if not input.dtype.is_complex:
        return P.sign(input)
    return named(apply(ops.complex_sign, input), "SgnBackward0")


def _pair(name: str, first: Tensor, second: Tensor) -> None:
    for x in (first, second):
        if x.dtype not in (dtypes.f32, dtypes.f64):
            raise RuntimeError(located(
                "Expected both inputs to be Half, Float or Double tensors but got "
                f"{promote._name(first.dtype)} and {promote._name(second.dtype)}"
            ))
    if first.dtype is not second.dtype:
        raise RuntimeError(located(
            f"Expected object of scalar type {promote._name(first.dtype)} but got scalar type "
            f"{promote._name(second.dtype)} for second argument"
        ))


@replayed
@with_out
@owns_result
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of real and imaginary parts."""
    _pair("complex", real, imag)
    if tuple(real.shape) != tuple(imag.shape):
        real, imag = broadcast_tensors(real, imag)
    return view_as_complex(stack([real, imag], -1).contiguous())


@replayed
@with_out
@owns_result
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of absolute values and angles."""
    _pair("polar", abs, angle)
    parts = [P.mul(abs, P.cos(angle)), P.mul(abs, P.sin(angle))]
    return view_as_complex(stack(parts, -1).contiguous())


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.dtype.is_complex


def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0."""
    if input.dtype.is_complex:
        return P.eq(imag(input), 0)
    result: Tensor = filled_beside(input, input._graphc_type.shape, True, dtypes.bool_)
    return result


def set_real(self: Tensor, value: Any) -> None:
    """x.real = value."""
    real(self).copy_(value)


def set_imag(self: Tensor, value: Any) -> None:
    """x.imag = value."""
    imag(self).copy_(value)


def conj_physical_(self: Tensor) -> Tensor:
    """Conjugate in place."""
    return self.copy_(conj(self))  # type: ignore[no-any-return]


PROPERTIES = {"real": property(real, set_real), "imag": property(imag, set_imag)}
METHODS = {
    "conj": conj, "resolve_conj": resolve, "resolve_neg": resolve,
    "conj_physical_": conj_physical_, "__complex__": lambda self: self.item() + 0j,
}
