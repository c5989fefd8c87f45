"""Scalar expressions to registers: every subexpression once, at the outermost level it allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from graphc.backends.llvm import halves, patterns, scalar_cast
from graphc.backends.llvm.emit_memory import Memory
from graphc.backends.llvm.values import Value, constant
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, IndexValue, Literal, Load, Scalar, Var
from graphc.ir.kernel.walk import children


class Scalars(Memory):
    """Emits scalar expressions in the current scope."""

    def value(self, root: Scalar) -> Value:
        """The value of an expression. Iterative: chains may be thousands of operators deep."""
        found = self._known(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            scalar = stack[-1]
            if self._known(scalar) is not None:
                stack.pop()
                continue
            missing = [child for child in self._operands(scalar) if self._known(child) is None]
            if missing:
                stack += missing
                continue
            stack.pop()
            self.remember(id(scalar), self._emit(scalar))
        result = self._known(root)
        assert result is not None
        return result

    def _known(self, scalar: Scalar) -> Value | None:
        if isinstance(scalar, Literal):
            return Value(constant(scalar.value, scalar.dtype), scalar.dtype, 1, 0)
        if isinstance(scalar, Var):
            return self._variable(scalar)
        return self.recall(id(scalar))

    def _operands(self, scalar: Scalar) -> Iterable[Scalar]:
        """What is emitted before it."""
        bits = halves.by_bits(scalar, self.lets) if isinstance(scalar, Apply) else None
        if bits is not None:
            return (bits[1],)
        inner = patterns.erf_plus_one(scalar)
        return children(scalar) if inner is None else (inner,)

    def _variable(self, scalar: Var) -> Value:
        found = self.lookup(scalar.name)
        if found.lanes == 1 and scalar.name == self.vector_var and self.lanes > 1:
            return self.index_value(Dim.var(scalar.name))
        return found

    def _emit(self, scalar: Scalar) -> Value:
        if isinstance(scalar, IndexValue):
            return self.index_value(scalar.index)
        if isinstance(scalar, Load):
            mask = None if scalar.mask is None else self.value(scalar.mask)
            other = None if scalar.other is None else self.value(scalar.other)
            return self.load(scalar.buffer, scalar.index, mask, other)
        assert isinstance(scalar, Apply)
        bits = halves.by_bits(scalar, self.lets)
        if bits is not None:
            return self._by_bits(scalar.dtype, *bits)
        if scalar.op == "cast" and halves.is_half(scalar.dtype) and (
            halves.fits(scalar.args[0], scalar.dtype, self.lets)
        ):
            return self._cut(scalar)
        inner = patterns.erf_plus_one(scalar)
        if inner is not None:
            return self._function(patterns.ERF_PLUS_ONE, inner)
        return self._apply(scalar)

    def index_value(self, index: Size) -> Value:
        """An index expression as an i64 scalar."""
        text, lanes, level = self.index_lanes(index)
        return Value(text, dtypes.i64, lanes, level)

    def _apply(self, scalar: Apply) -> Value:
        args = [self.value(arg) for arg in scalar.args]
        lanes = max((arg.lanes for arg in args), default=1)
        level = max((arg.level for arg in args), default=0)
        texts = [self._in_lanes(arg, lanes) for arg in args]
        key = (scalar.op, scalar.dtype.name, lanes, *texts, args[0].dtype.name)
        arg_dtypes = [arg.dtype for arg in args]
        text = self.compute(
            level,
            key,
            lambda: self.operations(lanes).apply(scalar.op, scalar.dtype, arg_dtypes, texts),
        )
        # what the memo of this scope may drop, everything computed from it must drop
        return Value(text, scalar.dtype, lanes, level, all(arg.stable for arg in args))

    def _by_bits(self, half: DType, names: list[str], source: Var) -> Value:
        """neg and abs of a half as it lies in memory."""
        x = self.value(source)
        text = x.text
        for name in reversed(names):
            emit = partial(self.operations(x.lanes).apply, name, half, [half], [text])
            text = self.compute(x.level, (name, half.name, x.lanes, text), emit)
        return Value(text, half, x.lanes, x.level, x.stable)

    def _function(self, name: str, scalar: Scalar) -> Value:
        """A function of VectorMath that is no operator."""
        x = self.value(scalar)
        emit = partial(getattr(self.operations(x.lanes).math(x.dtype), name), x.text)
        text = self.compute(x.level, (name, x.dtype.name, x.lanes, x.text), emit)
        return Value(text, x.dtype, x.lanes, x.level, x.stable)

    def _cut(self, scalar: Apply) -> Value:
        """A float32 that is a half, as one."""
        x = self.value(scalar.args[0])
        emit = partial(scalar_cast.cut, self.operations(x.lanes), x.text, scalar.dtype)
        text = self.compute(x.level, ("cut", scalar.dtype.name, x.lanes, x.text), emit)
        return Value(text, scalar.dtype, x.lanes, x.level, x.stable)

    def _in_lanes(self, value: Value, lanes: int) -> str:
        return value.text if value.lanes == lanes else self.splat(value, lanes)

