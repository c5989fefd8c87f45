"""Scalars of a kernel as C expressions, and what is done with them: Lets and Stores."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.backends.cuda.scalar import apply, c_type, combine, literal
from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.lines import Lines
from graphc.ir import dtypes
from graphc.ir.dim import Size
from graphc.ir.kernel import (
    Apply,
    Carry,
    IndexValue,
    Let,
    Literal,
    Load,
    Scalar,
    Store,
    Var,
)
from graphc.ir.kernel.combine import ARGUMENTS
from graphc.ir.kernel.walk import children


class Expressions:
    """Written into lines, where they are computed. `sizes`: of buffers, where the text may know
    them; `kept`: elements of a thread's registers, by the Local that they stand for; `loaded`:
    loads that are made already, by their ids."""

    def __init__(self, lines: Lines, indices: Indices, sizes: Mapping[str, Size]) -> None:
        self.lines, self.indices, self.sizes = lines, indices, sizes
        self.kept: dict[str, str] = {}
        self.loaded: dict[int, str] = {}

    def place(self, buffer: str, index: Size) -> str:
        """An element."""
        if buffer in self.kept:
            return self.kept[buffer]
        return f"{buffer}[{self.indices.place(index, self.sizes.get(buffer))}]"

    def scalar(self, root: Scalar) -> str:
        """An expression; operators shared within it are named by a line of their own."""
        texts: dict[int, str] = {}
        stack = [root]
        while stack:
            scalar = stack[-1]
            pending = [part for part in children(scalar) if id(part) not in texts]
            if pending:
                stack += pending
                continue
            stack.pop()
            if id(scalar) not in texts:
                text = self._scalar(scalar, texts)
                if isinstance(scalar, Apply) and scalar is not root:
                    name = self.lines.fresh("x")
                    self.lines.emit(f"const {c_type(scalar.dtype)} {name} = {text};")
                    text = name
                texts[id(scalar)] = text
        return texts[id(root)]

    def _scalar(self, scalar: Scalar, texts: dict[int, str]) -> str:
        if isinstance(scalar, Literal):
            return literal(scalar.value, scalar.dtype)
        if isinstance(scalar, Var):
            if scalar.dtype is dtypes.i64:
                return self.indices.name(scalar.name, "i64")
            return self.indices.spelled.get(scalar.name, scalar.name)
        if isinstance(scalar, IndexValue):
            text, kind = self.indices.value(scalar.index)
            return text if kind == "i64" else f"(i64){text}"
        if isinstance(scalar, Load):
            return self.loaded.get(id(scalar)) or self._load(scalar, texts)
        args = [texts[id(arg)] for arg in scalar.args]
        return apply(scalar.op, scalar.dtype, [arg.dtype for arg in scalar.args], args)

    def _load(self, scalar: Load, texts: dict[int, str]) -> str:
        load = self.place(scalar.buffer, scalar.index)
        if scalar.mask is None:
            return load
        other = literal(0, scalar.dtype) if scalar.other is None else texts[id(scalar.other)]
        return f"({texts[id(scalar.mask)]} ? {load} : {other})"

    def bind(self, stmt: Let) -> None:
        """A Let, which is in scope from here on."""
        text, kind = self.scalar(stmt.value), c_type(stmt.value.dtype)
        if stmt.value.dtype is dtypes.i64:
            kind = self.indices.let(stmt)
            if kind == "int":
                text = self.indices.text(stmt.value.index, kind)  # type: ignore[union-attr]
        self.lines.emit(f"const {kind} {stmt.name} = {text};")

    def put(self, stmt: Store) -> None:
        """A thread's own store."""
        place = self.place(stmt.buffer, stmt.index)
        value = self.scalar(stmt.value)
        if stmt.combine:
            value = combine(stmt.combine, stmt.value.dtype, value, place)
        guard = "" if stmt.mask is None else f"if ({self.scalar(stmt.mask)}) "
        self.lines.emit(f"{guard}{place} = {value};")

    def update(self, carries: tuple[Carry, ...]) -> None:
        """The carried values after an iteration: all read before any is written."""
        lines = self.lines
        new = {c.name: lines.fresh("next") for c in carries}
        for carry in carries:
            text = self.scalar(carry.next)
            lines.emit(f"const {c_type(carry.dtype)} {new[carry.name]} = {text};")
        taken = ""
        for carry in carries:
            name, value = self.indices.spelled.get(carry.name, carry.name), new[carry.name]
            if carry.combine in ARGUMENTS:
                taken = lines.fresh("taken")
                lines.emit(f"const bool {taken} = better_{carry.combine[3:]}({value}, {name});")
                lines.emit(f"if ({taken}) {name} = {value};")
            elif carry.combine == "index":
                lines.emit(f"if ({taken}) {name} = {value};")
            else:
                first, second = (value, name) if carry.combine != "set" else (name, value)
                lines.emit(f"{name} = {combine(carry.combine, carry.dtype, first, second)};")
