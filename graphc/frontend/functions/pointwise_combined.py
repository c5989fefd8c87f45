"""Pointwise functions of three tensors: one moved towards another, sums with a product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes

from .. import promote
from ..errors import located
from ..halves import rounded_once
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import recorded_as, with_out
from .dtype_names import CPP_NAMES
from .older_calls import factor_first


@with_out
@recorded_as("LerpBackward0")
@replayed
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input); from the other end where weight >= 0.5, as torch."""
    return rounded_once(_between, *_lerp_operands(input, end, weight))


def _between(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = P.sub(end, input)
    if input.dtype.is_complex:
        near = P.lt(P.abs(weight), 0.5) if isinstance(weight, Tensor) else (
            math.hypot(complex(weight).real, complex(weight).imag) < 0.5
        )
        rest = P.sub(1, weight) if isinstance(weight, Tensor) else 1 - weight
        close, far = P.add(input, P.mul(difference, weight)), P.sub(end, P.mul(difference, rest))
        return P.where(near, close, far) if isinstance(near, Tensor) else (close if near else far)
    if isinstance(weight, Tensor):
        small = P.add(input, P.mul(weight, difference))
        large = P.sub(end, P.mul(difference, P.sub(1, weight)))
        result: Tensor = P.where(P.lt(P.abs(weight), 0.5), small, large)
        return result
    if -0.5 < weight < 0.5:
        return P.add(input, P.mul(difference, weight))
    return P.sub(end, P.mul(difference, 1 - weight))


def _lerp_operands(input: Tensor, end: Tensor, weight: Any) -> tuple[Tensor, Tensor, Any]:
    """The operands in one dtype. Raises RuntimeError for tensors of other dtypes
    and NotImplementedError for integers, as torch does."""
    P.require_tensors("lerp", input, end)
    several = isinstance(weight, Tensor) and weight.ndim > 0
    for name, given in (("end", end), *((("weight", weight),) if several else ())):
        if given.dtype is not input.dtype:
            raise RuntimeError(located(
                f"expected dtype {CPP_NAMES[input.dtype]} for `{name}` but got dtype "
                f"{CPP_NAMES[given.dtype]}"
            ))
    alone = isinstance(weight, Tensor) and not several
    dtype = promote.result_type(input, weight) if alone else input.dtype
    if not dtype.differentiable:
        kind = "tensor" if isinstance(weight, Tensor) else "scalar"
        raise NotImplementedError(located(
            f"\"lerp_kernel_{kind}\" not implemented for '{promote._name(dtype)}'"
        ))
    if not alone:
        return input, end, weight
    return promote.cast(input, dtype), promote.cast(end, dtype), promote.cast(weight, dtype)


def _combined(
    name: str, combine: Callable[..., Any], x: Tensor, a: Tensor, b: Tensor, value: Any
) -> Tensor:
    """x + value * (a combined with b), in one dtype; half precision is rounded once."""
    P.require_tensors(name, x)
    dtype = promote.result_type(x, a, b)
    wide = dtypes.f32 if dtype.is_float and dtype.bits == 16 else dtype
    x, a, b = promote.operands(x, a, b, dtype=wide)
    if dtype is dtypes.bool_:
        raise NotImplementedError(located(f"\"{name}_cpu_out\" not implemented for 'Bool'"))
    if not dtype.differentiable and isinstance(value, float):
        value = int(value)  # as torch passes it to integers
    if not (type(value) is int and value == 1):
        a = P.mul(a, value)
    return promote.cast(P.add(x, combine(a, b)), dtype)


@with_out
@recorded_as("AddcmulBackward0")
@replayed
def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *older: Any, value: Any = 1
) -> Tensor:
    """input + value * tensor1 * tensor2."""
    if older:
        value, tensor1, tensor2 = factor_first("addcmul", "value", (tensor1, tensor2, *older), 2)
    P.require_tensors("addcmul", tensor1, tensor2)
    return _combined("addcmul", P.mul, input, tensor1, tensor2, value)


@with_out
@recorded_as("AddcdivBackward0")
@replayed
def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *older: Any, value: Any = 1
) -> Tensor:
    """input + value * tensor1 / tensor2."""
    if older:
        value, tensor1, tensor2 = factor_first("addcdiv", "value", (tensor1, tensor2, *older), 2)
    if not (tensor1.dtype.differentiable or tensor2.dtype.differentiable):
        raise RuntimeError(located(
            "Integer division with addcdiv is no longer supported. Cure: use input + value * "
            "tensor1 / tensor2, or torch.trunc of the quotient"
        ))
    return _combined("addcdiv", P.div, input, tensor1, tensor2, value)
