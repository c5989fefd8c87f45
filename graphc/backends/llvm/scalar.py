"""The elementwise operators as LLVM instructions: one table line per operator of the graph.

Results are those of the operator table in docs/architecture.md, in every lane and for every
input: no instruction here traps or gives poison, also on lanes that a mask will discard.
"""

import math
from collections.abc import Callable, Sequence

from graphc.backends.llvm import scalar_cast
from graphc.backends.llvm.instructions import Instructions
from graphc.backends.llvm.scalar_integer import INTEGER
from graphc.ir import dtypes
from graphc.ir.dtypes import DType


class Operations(Instructions):
    """The operators on lanes, as instructions."""

    def cast(self, x: str, source: DType, target: DType) -> str:
        """The operator `cast`."""
        return scalar_cast.cast(self, x, source, target)

    def apply(self, op: str, result: DType, arg_dtypes: Sequence[DType], args: list[str]) -> str:
        """Emits operator `op`. Raises NotImplementedError for one without a line in the tables."""
        if op == "cast":
            return self.cast(args[0], arg_dtypes[0], result)
        if op == "where":
            return self.select(args[0], result, args[1], args[2])
        dtype = arg_dtypes[0]
        if dtype.is_float and dtype.bits == 16:
            if op in _SIGN_BIT:
                return self._on_sign_bit(op, args)
            return self._through_f32(op, result, dtype, args)
        table = FLOAT if dtype.is_float else INTEGER
        emit = table.get(op)
        if emit is None:
            raise NotImplementedError(f"operator {op!r} on {dtype} has no LLVM code")
        return emit(self, dtype, *args)

    def _through_f32(self, op: str, result: DType, half: DType, args: list[str]) -> str:
        """f16 and bf16 arithmetic is rounded float arithmetic, operator by operator."""
        f32 = dtypes.f32
        wide = [self.cast(arg, half, f32) for arg in args]
        computed = self.apply(op, f32 if result is half else result, [f32] * len(args), wide)
        return self.cast(computed, f32, half) if result is half else computed

    def _on_sign_bit(self, op: str, args: list[str]) -> str:
        """neg, abs and copysign of 16-bit floats."""
        i16 = dtypes.i16
        sign, rest = self.const(-0x8000, i16), self.const(0x7FFF, i16)
        if op == "neg":
            return self.binary("xor", i16, args[0], sign)
        magnitude = self.binary("and", i16, args[0], rest)
        if op == "abs":
            return magnitude
        return self.binary("or", i16, magnitude, self.binary("and", i16, args[1], sign))


Emit = Callable[..., str]

_SIGN_BIT = {"neg", "abs", "copysign"}


def _instruction(name: str) -> Emit:
    return lambda o, dtype, a, b: o.binary(name, dtype, a, b)


def _compare(predicate: str) -> Emit:
    return lambda o, dtype, a, b: o.compare(predicate, dtype, a, b)


def _intrinsic(name: str) -> Emit:
    return lambda o, dtype, *args: o.intrinsic(name, dtype, *args)


def _elementary(name: str) -> Emit:
    return lambda o, dtype, *args: getattr(o.math(dtype), name)(*args)


def maximum(o: Operations, dtype: DType, a: str, b: str) -> str:
    """The larger; NaN if either is. The first select is x86's max: b where unordered."""
    larger = o.select(o.compare("ogt", dtype, a, b), dtype, a, b)
    return o.select(o.compare("uno", dtype, a, a), dtype, a, larger)


def minimum(o: Operations, dtype: DType, a: str, b: str) -> str:
    """The smaller; NaN if either is."""
    smaller = o.select(o.compare("olt", dtype, a, b), dtype, a, b)
    return o.select(o.compare("uno", dtype, a, a), dtype, a, smaller)


def _relu(o: Operations, dtype: DType, x: str) -> str:
    zero = o.const(0.0, dtype)
    return o.select(o.compare("ogt", dtype, zero, x), dtype, zero, x)


def _clamp(o: Operations, dtype: DType, x: str, low: str, high: str) -> str:
    # the bound first: a NaN in x is then kept without a further select
    raised = o.select(o.compare("ogt", dtype, low, x), dtype, low, x)
    clamped = o.select(o.compare("olt", dtype, high, raised), dtype, high, raised)
    for bound in (low, high):
        if bound.startswith("%") or "FF8000000000000" in bound:  # a NaN, of either sign
            nan = o.compare("uno", dtype, bound, bound)
            clamped = o.select(nan, dtype, bound, clamped)
    return clamped


def _sign(o: Operations, dtype: DType, x: str) -> str:
    zero, one, minus = (o.const(v, dtype) for v in (0.0, 1.0, -1.0))
    negative = o.select(o.compare("olt", dtype, x, zero), dtype, minus, zero)
    return o.select(o.compare("ogt", dtype, x, zero), dtype, one, negative)


def _reciprocal(o: Operations, dtype: DType, x: str) -> str:
    return o.binary("fdiv", dtype, o.const(1.0, dtype), x)


def _fma(o: Operations, dtype: DType, a: str, b: str, c: str) -> str:
    return o.intrinsic("fma" if o.target.has_fma else "fmuladd", dtype, a, b, c)


def _isinf(o: Operations, dtype: DType, x: str) -> str:
    magnitude = o.intrinsic("fabs", dtype, x)
    return o.compare("oeq", dtype, magnitude, o.const(math.inf, dtype))


def _isfinite(o: Operations, dtype: DType, x: str) -> str:
    magnitude = o.intrinsic("fabs", dtype, x)
    return o.compare("olt", dtype, magnitude, o.const(math.inf, dtype))


def _is_zero(o: Operations, dtype: DType, x: str) -> str:
    return o.compare("oeq", dtype, x, o.const(0.0, dtype))


def _truth(op: str) -> Emit:
    def emit(o: Operations, dtype: DType, a: str, b: str) -> str:
        zero = o.const(0.0, dtype)
        a, b = (o.compare("une", dtype, x, zero) for x in (a, b))
        return o.binary(op, dtypes.bool_, a, b)

    return emit


def fmod(o: Operations, dtype: DType, a: str, b: str) -> str:
    """C's fmod: exact, the sign of a."""
    return o.math(dtype).fmod(a, b)


def _remainder(o: Operations, dtype: DType, a: str, b: str) -> str:
    """a - floor(a / b) * b: fmod, moved by b where its sign is not b's."""
    rest, zero = fmod(o, dtype, a, b), o.const(0.0, dtype)
    flip = o.binary(
        "xor",
        dtypes.bool_,
        o.compare("olt", dtype, rest, zero),
        o.compare("olt", dtype, b, zero),
    )
    flip = o.binary("and", dtypes.bool_, flip, o.compare("une", dtype, rest, zero))
    return o.select(flip, dtype, o.binary("fadd", dtype, rest, b), rest)


def _floor_divide(o: Operations, dtype: DType, a: str, b: str) -> str:
    """As torch and Python: (a - remainder) / b, rounded to the nearest integer.

    A division by zero gives a / b.
    """
    rest, zero, one = fmod(o, dtype, a, b), o.const(0.0, dtype), o.const(1.0, dtype)
    quotient = o.binary("fdiv", dtype, o.binary("fsub", dtype, a, rest), b)
    flip = o.binary(
        "xor",
        dtypes.bool_,
        o.compare("olt", dtype, rest, zero),
        o.compare("olt", dtype, b, zero),
    )
    flip = o.binary("and", dtypes.bool_, flip, o.compare("une", dtype, rest, zero))
    lowered = o.binary("fsub", dtype, quotient, one)
    quotient = o.select(flip, dtype, lowered, quotient)
    whole = o.intrinsic("floor", dtype, quotient)
    above = o.compare("ogt", dtype, o.binary("fsub", dtype, quotient, whole), o.const(0.5, dtype))
    whole = o.select(above, dtype, o.binary("fadd", dtype, whole, one), whole)
    exact = o.binary("fdiv", dtype, a, b)
    signed_zero = o.intrinsic("copysign", dtype, zero, exact)
    whole = o.select(o.compare("oeq", dtype, quotient, zero), dtype, signed_zero, whole)
    return o.select(o.compare("oeq", dtype, b, zero), dtype, exact, whole)


def _trunc_divide(o: Operations, dtype: DType, a: str, b: str) -> str:
    return o.intrinsic("trunc", dtype, o.binary("fdiv", dtype, a, b))


_ELEMENTARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid pow atan2"
).split()

FLOAT: dict[str, Emit] = {
    **{name: _elementary(name) for name in _ELEMENTARY},
    "hypot": lambda o, dtype, a, b: o.math(dtype).libm("hypot", a, b),
    "neg": lambda o, dtype, x: o.fn.let(f"fneg {o.type(dtype)} {x}"),
    "abs": _intrinsic("fabs"),
    "sign": _sign,
    "square": lambda o, dtype, x: o.binary("fmul", dtype, x, x),
    "relu": _relu,
    "reciprocal": _reciprocal,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _intrinsic("roundeven"),
    "trunc": _intrinsic("trunc"),
    "isnan": lambda o, dtype, x: o.compare("uno", dtype, x, x),
    "isinf": _isinf,
    "isfinite": _isfinite,
    "logical_not": _is_zero,
    "add": _instruction("fadd"),
    "sub": _instruction("fsub"),
    "mul": _instruction("fmul"),
    "div": _instruction("fdiv"),
    "fmod": fmod,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "trunc_divide": _trunc_divide,
    "maximum": maximum,
    "minimum": minimum,
    "fmax": _intrinsic("maxnum"),
    "fmin": _intrinsic("minnum"),
    "copysign": _intrinsic("copysign"),
    "logical_and": _truth("and"),
    "logical_or": _truth("or"),
    "logical_xor": _truth("xor"),
    "eq": _compare("oeq"),
    "ne": _compare("une"),
    "lt": _compare("olt"),
    "le": _compare("ole"),
    "gt": _compare("ogt"),
    "ge": _compare("oge"),
    "clamp": _clamp,
    "fma": _fma,
}
