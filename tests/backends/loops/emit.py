"""`emit(kernel)`: a kernel of loops as a Python function of flat buffers and dims. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from graphc.ir.kernel import (
    Apply,
    Carry,
    Check,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Scalar,
    Stmt,
    Store,
    Var,
)
from graphc.ir.kernel.combine import ARGUMENTS, COMBINES
from graphc.ir.kernel.text import kernel_symbol


def emit(kernel: Kernel) -> str:
    """Python. Raises NotImplementedError for a template."""
    if kernel.template is not None:
        raise NotImplementedError("this backend has code for loops alone")
    writer = _Writer()
    for stage in kernel.stages:
        writer.block(stage)
    arguments = ", ".join([*(param.name for param in kernel.params), *kernel.dims])
    lines = writer.lines or ["    pass"]
    return "\n".join([f"def {kernel_symbol(kernel)}({arguments}):", *lines, ""])


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def block(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            if isinstance(stmt, Let):
                self.line(f"{stmt.name} = {_scalar(stmt.value)}")
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, Check):
                self.line(f"if not {_scalar(stmt.ok)}:")
                self.line(f"    raise _failed({stmt.message!r}, int({_scalar(stmt.value)}))")
            elif isinstance(stmt, Local):
                self.line(f"{stmt.name} = _zeros({stmt.size}, {stmt.dtype.name!r})")
            else:
                self.loop(stmt)

    def store(self, stmt: Store) -> None:
        value, place = _scalar(stmt.value), f"{stmt.buffer}[{stmt.index}]"
        if stmt.combine:
            value = _combined(stmt.combine, place, value)
        mask = "" if stmt.mask is None else f"if {_scalar(stmt.mask)}: "
        self.line(f"{mask}{place} = {value}")

    def loop(self, loop: Loop) -> None:
        for carry in loop.carries:
            self.line(f"{carry.name} = {_scalar(carry.init)}")
        self.line(f"for {loop.var} in range({loop.extent}):")
        self.depth += 1
        self.block(loop.body)
        self.carries(loop.carries)
        if not loop.body and not loop.carries:
            self.line("pass")
        self.depth -= 1

    def carries(self, carries: Sequence[Carry]) -> None:
        """All at once: each sees the values from before."""
        values: list[str] = []
        for position, carry in enumerate(carries):
            value = _scalar(carry.next)
            if carry.combine in ARGUMENTS:
                index = carries[position + 1]
                pair = f"({carry.name}, {index.name}), ({value}, {_scalar(index.next)})"
                values.append(f"*_argument({carry.combine!r}, {pair})")
            elif carry.combine == "set":
                values.append(value)
            elif carry.combine != "index":
                values.append(_combined(carry.combine, carry.name, value))
        if carries:
            names = ", ".join(carry.name for carry in carries)
            self.line(f"{names}, = {', '.join(values)},")


def _combined(kind: str, a: str, b: str) -> str:
    return f"_call({COMBINES[kind].operator!r}, {a}, {b})"


def _scalar(value: Scalar) -> str:
    if isinstance(value, Var):
        return value.name
    if isinstance(value, Literal):
        number = value.value
        text = repr(number) if math.isfinite(number) else f"float('{number}')"
        return f"_number({text}, {value.dtype.name!r})"
    if isinstance(value, IndexValue):
        return f"_number({value.index}, 'i64')"
    if isinstance(value, Load):
        load = f"{value.buffer}[{value.index}]"
        if value.mask is None:
            return load
        assert value.other is not None
        return f"({load} if {_scalar(value.mask)} else {_scalar(value.other)})"
    assert isinstance(value, Apply)
    arguments = ", ".join(_scalar(arg) for arg in value.args)
    if value.op == "cast":
        return f"_cast({arguments}, {value.dtype.name!r})"
    return f"_call({value.op!r}, {arguments})"
