"""Instructions on lanes, as LLVM text."""

from graphc.backends.llvm.lanes import Dtype
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.backends.llvm.values import constant, register_type, suffix
from graphc.backends.llvm.vmath import VectorMath
from graphc.ir import dtypes
from graphc.ir.dtypes import DType


class Instructions:
    """Instructions on `lanes` lanes at the end of a function; operands are texts of one dtype."""

    def __init__(self, fn: Function, module: Module, target: Target, lanes: int) -> None:
        self.fn, self.module, self.target, self.lanes = fn, module, target, lanes
        self._math: dict[str, VectorMath] = {}

    def type(self, dtype: DType) -> str:
        """The register type of the lanes."""
        return register_type(dtype, self.lanes)

    def const(self, value: float | int | bool, dtype: DType) -> str:
        """A constant in every lane."""
        return constant(value, dtype, self.lanes)

    def math(self, dtype: DType) -> VectorMath:
        """The elementary functions on these lanes; f32 or f64."""
        found = self._math.get(dtype.name)
        if found is None:
            name: Dtype = "f32" if dtype is dtypes.f32 else "f64"
            found = VectorMath(self.fn, self.module, self.target, name, self.lanes)
            self._math[dtype.name] = found
        return found

    def binary(self, instruction: str, dtype: DType, a: str, b: str) -> str:
        """A two-operand instruction (fadd, and, ...)."""
        return self.fn.let(f"{instruction} {self.type(dtype)} {a}, {b}")

    def compare(self, predicate: str, dtype: DType, a: str, b: str) -> str:
        """icmp or fcmp by the dtype; gives i1 lanes."""
        instruction = "fcmp" if dtype.is_float else "icmp"
        return self.fn.let(f"{instruction} {predicate} {self.type(dtype)} {a}, {b}")

    def select(self, condition: str, dtype: DType, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        if a == b:
            return a
        kind = self.type(dtype)
        condition = f"{self.type(dtypes.bool_)} {condition}"
        return self.fn.let(f"select {condition}, {kind} {a}, {kind} {b}")

    def intrinsic(self, name: str, dtype: DType, *args: str, flag: str = "") -> str:
        """llvm.<name> on operands of one dtype; `flag` is a last i1 immediate."""
        kind, full = self.type(dtype), f"@llvm.{name}.{suffix(dtype, self.lanes)}"
        parameters = [kind] * len(args) + (["i1"] if flag else [])
        self.module.declare(f"declare {kind} {full}({', '.join(parameters)})")
        operands = [f"{kind} {arg}" for arg in args] + ([f"i1 {flag}"] if flag else [])
        return self.fn.let(f"call {kind} {full}({', '.join(operands)})")

    def convert(self, instruction: str, x: str, source: DType, target: DType) -> str:
        """A conversion instruction (fpext, trunc, sitofp, ...)."""
        return self.fn.let(f"{instruction} {self.type(source)} {x} to {self.type(target)}")
