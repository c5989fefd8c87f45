"""torch's type promotion: Python numbers, 0-d tensors and tensors to one dtype before an operator.

    binary("add", a, b)            # a, b: Tensor or number; casts put in, numbers made 0-d
    binary("div", a, b, to_float=True)      # ints become the default float
    unary("exp", x)                # ints and bools become the default float
    compare("lt", a, b)
    operands(a, b, c)              # -> Tensors of one dtype (for where, clamp, concat, ...)
    operand(2.5, dtype)            # -> a 0-d Tensor
    cast(x, dtype)                 # x itself where it has that dtype
    result_type(a, b, ...)         # torch.result_type
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType
from graphc.ir.op import Op
from graphc.ir.op import get as get_op

from .context import local
from .eager import apply, apply_cast, apply_one, apply_two
from .errors import located
from .layouts import NotDense
from .numbers import is_traced_number
from .pending import is_pending
from .placement import Place
from .storage import LOOSE
from .tensor import Tensor, from_array
from .transfer import moved

Number: TypeAlias = Any  # bool, int, float, NumPy scalar, SymInt or LiftedNumber


class Defaults:
    """torch.set_default_dtype."""

    dtype: DType = dtypes.f32


def get_default_dtype() -> DType:
    """The dtype of Python floats among tensors, float32 unless set."""
    return Defaults.dtype


def set_default_dtype(dtype: DType) -> None:
    """Raises TypeError for a dtype that is not a float."""
    if not isinstance(dtype, DType) or not dtype.is_float:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def is_number(value: Any) -> bool:
    """True for Python and NumPy numbers and for the numbers of a trace."""
    plain = isinstance(value, (bool, int, float, complex, np.number, np.bool_))
    return plain or is_traced_number(value) or is_pending(value)


def number_dtype(value: Number) -> DType:
    """bool, int64 or the default float: what a number counts as among tensors."""
    kind = type(value)
    if kind is bool:
        return dtypes.bool_
    if kind is int:
        return dtypes.i64
    if kind is float:
        return Defaults.dtype
    if is_traced_number(value):
        return dtypes.i64 if value.is_integer_number else Defaults.dtype
    if is_pending(value):
        dtype: DType = value.tensor.dtype
        if dtype.is_complex:
            value.ask()
        return Defaults.dtype if dtype.is_float else dtypes.i64 if dtype.is_integer else dtype
    if isinstance(value, (bool, np.bool_)):
        return dtypes.bool_
    if isinstance(value, (int, np.integer)):
        return dtypes.i64
    if isinstance(value, (float, np.floating)):
        return Defaults.dtype
    if isinstance(value, (complex, np.complexfloating)):
        return dtypes.complex_of(Defaults.dtype)
    raise TypeError(located(f"expected a Tensor or a number, got {type(value).__name__}"))


def result_type(*values: Tensor | Number) -> DType:
    """The dtype that an operation on these tensors and numbers has."""
    ranked = []
    for value in values:
        if isinstance(value, Tensor):
            ranked.append((value.dtype, 2 if value.ndim else 1))
        else:
            ranked.append((number_dtype(value), 0))
    if len(ranked) != 2:
        return dtypes.result_type(ranked, Defaults.dtype)
    key = (*ranked, Defaults.dtype)
    found = _of_two.get(key)
    if found is None:  # as many as there are dtypes, squared
        found = _of_two[key] = dtypes.result_type(ranked, Defaults.dtype)
    return found


_of_two: dict[Any, DType] = {}


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` as `dtype`; `x` itself where it is that already."""
    if x.dtype is dtype:
        return x
    result: Tensor = apply_cast(ops.cast, x, dtype)
    return result


def converted(tensor: Tensor, dtype: DType | None, place: Place | None) -> Tensor:
    """The tensor itself, or a copy of another dtype or on another device: cast where its new
    dtype is sure to exist."""
    if dtype is None or dtype is tensor.dtype:
        return moved(tensor, place)
    if place is None:
        return cast(moved(tensor, None), dtype)
    return moved(cast(tensor, dtype), place)


_constants: dict[Any, Tensor] = {}
_CONSTANT_LIMIT = 4096


def operand(value: Tensor | Number, dtype: DType) -> Tensor:
    """A Tensor of `dtype`: a tensor cast, or a number as a 0-d tensor.

    An int outside the dtype's range wraps. Raises OverflowError for one beyond 64 bits, and
    RuntimeError for a float among integers.
    """
    if isinstance(value, Tensor):
        return cast(value, dtype)
    # 0.0 and -0.0 are equal
    if local.trace is None and type(value) in _AMONG_FLOATS and value:
        known = _constants.get((type(value), value, dtype))
        if known is not None:
            return known
    if is_traced_number(value):
        now = value.expression.value
        fits = -(2**63) <= now < 2**63 if value.is_integer_number else not dtype.is_integer
        if fits:
            found: Tensor = value.as_operand(dtype)
            return found
        value = value.decided()
    elif is_pending(value):
        number: Tensor = value.tensor
        if number._graphc_trace is not local.trace or (number.dtype.is_float and dtype.is_integer):
            value.ask()
        return cast(number.reshape(()), dtype)
    if local.trace is not None:
        if type(value) in _AMONG_FLOATS:
            return local.trace.number(value, dtype, _scalar)
        return local.trace.constant(_scalar(value, dtype))
    if value == 0 and isinstance(value, float) and math.copysign(1.0, value) < 0:
        negative = from_array(_scalar(value, dtype))
        negative._graphc_storage.away |= LOOSE
        return negative
    key = (type(value), value, dtype)
    constant = _constants.get(key)
    if constant is None:
        if len(_constants) >= _CONSTANT_LIMIT:
            _constants.clear()
        constant = _constants[key] = from_array(_scalar(value, dtype))
        constant._graphc_array.flags.writeable = False
        constant._graphc_storage.inference = False  # it outlives the mode
        constant._graphc_storage.away |= LOOSE
    return constant


def _scalar(value: Any, dtype: DType) -> np.ndarray:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise OverflowError(located(f"int too big to convert: {value}"))
    if dtype.is_float or dtype.kind == "bool":
        return dtypes.rounded(float(value) if dtype.is_float else bool(value), dtype)
    if dtype.is_complex:
        return np.asarray(complex(value), dtype.numpy)
    if isinstance(value, (float, np.floating, complex, np.complexfloating)):
        raise RuntimeError(located(
            f"value {value!r} cannot be converted to type {dtype} without loss"
        ))
    # an int64 that wraps, as among torch's operands (those of hashes have the sign's bit, too);
    # fills check the range themselves
    return np.asarray((int(value) + 2**63) % 2**64 - 2**63, np.int64).astype(dtype.numpy)


def operands(*values: Tensor | Number, dtype: DType | None = None) -> tuple[Tensor, ...]:
    """Tensors of one dtype: `dtype`, or the promoted one. At least one value is a Tensor."""
    if dtype is None:
        dtype = result_type(*values)
    return tuple([operand(value, dtype) for value in values])


def binary(op: str | Op, a: Tensor | Number, b: Tensor | Number, *, to_float: bool = False) -> Any:
    """A two-input operator with torch's promotion. `to_float`: integers become floats first."""
    if isinstance(op, str):
        op = get_op(op)
    if isinstance(a, Tensor):
        dtype = a.dtype
        if isinstance(b, Tensor):
            if dtype is b.dtype and (dtype.kind == "float" or not to_float):
                return apply_two(op, a, b)
            if op.name in _IN_FLOAT32 and is_beside_half(a, b):
                return cast(apply(op, cast(a, dtypes.f32), cast(b, dtypes.f32)), dtype)
        elif dtype.kind == "float" and _is_real(b):
            if dtype.bits == 16 and op.name in _IN_FLOAT32:
                return cast(apply(op, cast(a, dtypes.f32), operand(b, dtypes.f32)), dtype)
            return apply_two(op, a, operand(b, dtype))
    elif op.name == "mul" and b.dtype.bits == 16 and b.dtype.is_float and _is_real(a):
        return binary(op, b, a, to_float=to_float)
    dtype = result_type(a, b)
    if to_float and not dtype.differentiable:
        dtype = Defaults.dtype
    return apply_two(op, operand(a, dtype), operand(b, dtype))


# a number that multiplies or divides half precision is not rounded to it first, as in torch;
# nor is a tensor without dims
_IN_FLOAT32 = frozenset({"mul", "div", "floor_divide"})
# numbers that never change the dtype of a float tensor
_AMONG_FLOATS = frozenset({int, float, bool})


def is_beside_half(a: Tensor, b: Tensor) -> bool:
    """Whether `b`, a tensor without dims, counts as a number beside `a`, of half precision."""
    half = a.dtype.kind == "float" and a.dtype.bits == 16
    return half and not b.ndim and a.ndim > 0 and not b.dtype.is_complex


def _is_real(value: Number) -> bool:
    """Whether it is a number that never changes the dtype of a float tensor."""
    if type(value) in _AMONG_FLOATS:
        return True
    return is_traced_number(value) or (is_pending(value) and not value.tensor.dtype.is_complex)


def compare(op: str | Op, a: Tensor | Number, b: Tensor | Number) -> Any:
    """A comparison in the promoted dtype; the result is bool."""
    return binary(op, a, b)


def unary(op: str | Op, x: Tensor, *, to_float: bool = True, **attrs: Any) -> Any:
    """A one-input operator. `to_float`: integers and bools become the default float first."""
    if isinstance(op, str):
        op = get_op(op)
    if not isinstance(x, Tensor):
        raise TypeError(located(
            f"{op.name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}"
        ))
    if to_float and not x.dtype.differentiable:
        x = cast(x, Defaults.dtype)
    return apply(op, x, **attrs) if attrs else apply_one(op, x)


def float_unary(op: Op, x: Tensor) -> Tensor | None:
    """A one-input operator of float32 or float64 in eager mode; None: something else is at hand."""
    try:
        if (
            local.trace is not None
            or x._graphc_trace is not None
            or x._graphc_array.dtype.char not in "fd"
        ):
            return None
    except NotDense:
        return None
    result: Tensor = apply_one(op, x)
    return result


def check_inplace(target: Tensor, value: Tensor) -> Tensor:
    """The value, if an arithmetic in-place operation may store it in `target`.

    Raises RuntimeError where the result's kind of number is higher than the target's.
    """
    have, want = value.dtype, target.dtype
    rank = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
    if rank[have.kind] > rank[want.kind]:
        raise RuntimeError(located(
            f"result type {_name(have)} can't be cast to the desired output type {_name(want)}"
        ))
    return value


def _name(dtype: DType) -> str:
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
             "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
             "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
             "complex32": "ComplexHalf"}
    return names[dtype.torch_name]


def checked_alpha(input: Any, other: Any, alpha: Any) -> DType:
    """The dtype of input +- alpha * other. Raises RuntimeError for an alpha of a higher kind."""
    dtype = result_type(input, other)
    factor = alpha.dtype if isinstance(alpha, Tensor) else result_type(alpha)
    if factor is dtypes.bool_ and dtype is not dtypes.bool_:
        raise RuntimeError(located("Boolean alpha only supported for Boolean results."))
    if not dtype.differentiable and factor.differentiable:
        raise RuntimeError(located(
            "For integral input tensors, argument alpha must not be a floating point number."
        ))
    if factor.is_complex and not dtype.is_complex:
        raise RuntimeError(located(
            "For non-complex input tensors, argument alpha must not be a complex number."
        ))
    return dtype


def scaled_sum(function: Any, input: Any, other: Any, alpha: Any) -> Tensor | None:
    """input +- alpha * other in the result's dtype; None where there is nothing to see to.

    In half precision alpha is rounded to it, and then the sum alone.
    """
    plain = type(alpha) is int and alpha == 1
    if plain or not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return None
    dtype = checked_alpha(input, other, alpha)
    half = dtype.is_float and dtype.bits == 16
    if not half and (other.dtype is dtype or not dtype.is_float):
        return None
    wide = dtypes.f32 if half else dtype
    a, b = operands(input, other, dtype=wide)
    factor = cast(operand(alpha, dtype), wide)
    return cast(function(a, binary("mul", b, factor)), dtype)


def refuse_bools(input: Any, other: Any) -> None:
    """Raise RuntimeError where an operand of a subtraction is a bool."""
    bools = [
        type(value) is bool or (isinstance(value, Tensor) and value.dtype is dtypes.bool_)
        for value in (input, other)
    ]
    if all(bools):
        raise RuntimeError(located(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the "
            "`^` or `logical_xor()` operator instead."
        ))
    if any(bools):
        raise RuntimeError(located(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        ))
