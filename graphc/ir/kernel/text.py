"""The kernel IR as text: `print_kernel` and `parse_kernel` are exact inverses.

    kernel row_sum(a0: f32[512] in, o0: f32[8] out) dims () {
      stage {
        parallel p in [8] chunk [4] {
          vector v in [64] carry c0: f32 = 0.0:f32 {
            t0 = a0[64*p + v]
            next c0 add t0
          }
          store o0[p] = c0
        }
      }
    }

Loads are `buffer[index]`, with `if mask else other`; literals carry their dtype; operators are
`name.result_dtype(arguments)`. Index expressions are spelled as `Dim` prints them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from .. import dim, dtypes
from ..dim import Size
from ..dtypes import DType
from .nest import (
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
    Param,
    Partial,
    Scalar,
    Stmt,
    Store,
    Var,
)
from .templates import KEYWORDS

# --- printing ---------------------------------------------------------------------------------


def kernel_symbol(kernel: Kernel) -> str:
    """A name for code: a digest of the kernel's text without its name."""
    return symbol_of(print_kernel(kernel, name=False))


def symbol_of(text: str) -> str:
    """That of a kernel whose text, without its name, is known."""
    return "k_" + hashlib.sha256(text.encode()).hexdigest()[:24]


def print_kernel(kernel: Kernel, name: bool = True) -> str:
    """The kernel as text. `name=False` leaves the name out: equal bodies give equal text."""
    params = ", ".join(f"{p.name}: {p.dtype.name}[{p.size}] {p.access}" for p in kernel.params)
    title = kernel.name if name else "_"
    lines = [f"kernel {title}({params}) dims ({', '.join(kernel.dims)}) {{"]
    for stage in kernel.stages:
        lines.append("  stage {")
        _statements(stage, "    ", lines)
        lines.append("  }")
    if kernel.template is not None:
        lines += [f"  {line}" for line in kernel.template.lines()]
        if kernel.template.epilogue:
            lines.append("    epilogue {")
            _statements(kernel.template.epilogue, "      ", lines)
            lines += ["    }", "  }"]
    lines.append("}")
    return "\n".join(lines) + "\n"


def scalar_text(value: Scalar) -> str:
    """One scalar expression as text."""
    if isinstance(value, Var):
        return value.name
    if isinstance(value, Literal):
        spelled = str(value.value).lower() if isinstance(value.value, bool) else repr(value.value)
        return f"{spelled}:{value.dtype.name}"
    if isinstance(value, IndexValue):
        return f"index[{value.index}]"
    if isinstance(value, Load):
        text = f"{value.buffer}[{value.index}]"
        if value.mask is None:
            return text
        if value.other is None:
            raise ValueError(f"masked load of {value.buffer} lacks its other value")
        return f"({text} if {scalar_text(value.mask)} else {scalar_text(value.other)})"
    return f"{value.op}.{value.dtype.name}({', '.join(scalar_text(a) for a in value.args)})"


def _statements(body: Iterable[Stmt], indent: str, lines: list[str]) -> None:
    for stmt in body:
        if isinstance(stmt, Let):
            lines.append(f"{indent}{stmt.name} = {scalar_text(stmt.value)}")
        elif isinstance(stmt, Store):
            mask = "" if stmt.mask is None else f" if {scalar_text(stmt.mask)}"
            sign = f"{stmt.combine}=" if stmt.combine else "="
            lines.append(
                f"{indent}store {stmt.buffer}[{stmt.index}] {sign} {scalar_text(stmt.value)}{mask}"
            )
        elif isinstance(stmt, Partial):
            value = scalar_text(stmt.value)
            lines.append(f"{indent}partial {stmt.buffer} = {stmt.kind} of {value} rows {stmt.rows}")
        elif isinstance(stmt, Check):
            lines.append(
                f"{indent}check {scalar_text(stmt.ok)}, {json.dumps(stmt.message)}, "
                f"{scalar_text(stmt.value)}"
            )
        elif isinstance(stmt, Local):
            lines.append(f"{indent}local {stmt.name}: {stmt.dtype.name}[{stmt.size}]")
        else:
            _loop(stmt, indent, lines)


def _loop(loop: Loop, indent: str, lines: list[str]) -> None:
    chunk = f" chunk [{loop.chunk}]" if loop.kind == "parallel" else ""
    carries = ", ".join(
        f"{c.name}: {c.dtype.name} = {scalar_text(c.init)}" for c in loop.carries
    )
    carry = f" carry {carries}" if carries else ""
    lines.append(f"{indent}{loop.kind} {loop.var} in [{loop.extent}]{chunk}{carry} {{")
    _statements(loop.body, indent + "  ", lines)
    for c in loop.carries:
        lines.append(f"{indent}  next {c.name} {c.combine} {scalar_text(c.next)}")
    lines.append(f"{indent}}}")


# --- parsing ----------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<number>-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)\b)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>[-+*/%\[\](){}:,.=;])|(?P<end>$))"
)


class Reader:
    """Reads kernel text token by token; templates read their own part with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.dtypes: dict[str, DType] = {}  # of buffers, Lets and carries

    def error(self, message: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        shown = self.text.splitlines()[line - 1].strip() if self.text else ""
        return ValueError(f"kernel text, line {line}: {message} in {shown!r}")

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.error("cannot read")
        return match.group().strip()

    def take(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.error("cannot read")
        self.at = match.end()
        return match.group().strip()

    def expect(self, *tokens: str) -> None:
        for token in tokens:
            found = self.take()
            if found != token:
                raise self.error(f"expected {token!r}, found {found!r}")

    def bracket(self) -> str:
        """The text between `[` and its matching `]`."""
        self.expect("[")
        depth, start = 1, self.at
        while depth:
            if self.at >= len(self.text):
                raise self.error("unclosed [")
            depth += {"[": 1, "]": -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[start : self.at - 1]

    def size(self) -> Size:
        return dim.parse(self.bracket())

    def sizes(self) -> tuple[Size, ...]:
        text = self.bracket()
        return tuple(dim.parse(part) for part in text.split(";")) if text.strip() else ()

    def ints(self) -> tuple[int, ...]:
        values = self.sizes()
        if not all(isinstance(v, int) for v in values):
            raise self.error("expected plain integers")
        return tuple(int(v) for v in values)  # type: ignore[arg-type]

    def dtype(self) -> DType:
        return dtypes.by_name(self.take())

    def bound(self, name: str) -> DType:
        if name not in self.dtypes:
            raise self.error(f"{name!r} is not bound")
        return self.dtypes[name]

    # scalars

    def scalar(self) -> Scalar:
        token = self.take()
        if token == "(":
            return self.masked_load()
        if re.match(r"-?(\d|inf$|nan$)", token) or token in ("true", "false"):
            self.expect(":")
            return self.literal(token, self.dtype())
        following = self.peek()
        if token == "index" and following == "[":
            return IndexValue(self.size(), dtypes.i64)
        if following == "[":
            return Load(token, self.size(), self.bound(token))
        if following == ".":
            self.take()
            dtype = self.dtype()
            return Apply(token, self.arguments(), dtype)
        return Var(token, self.bound(token))

    def literal(self, token: str, dtype: DType) -> Literal:
        if token in ("true", "false"):
            return Literal(token == "true", dtype)
        if re.fullmatch(r"-?\d+", token):
            return Literal(int(token), dtype)
        return Literal(float(token), dtype)

    def masked_load(self) -> Load:
        buffer = self.take()
        index = self.size()
        self.expect("if")
        mask = self.scalar()
        self.expect("else")
        other = self.scalar()
        self.expect(")")
        return Load(buffer, index, self.bound(buffer), mask, other)

    def arguments(self) -> tuple[Scalar, ...]:
        self.expect("(")
        args: list[Scalar] = []
        while self.peek() != ")":
            args.append(self.scalar())
            if self.peek() == ",":
                self.take()
        self.take()
        return tuple(args)

    # statements

    def statements(self) -> tuple[tuple[Stmt, ...], list[tuple[str, str, Scalar]]]:
        """Statements up to the closing brace, and the `next` lines of the loop around them."""
        body: list[Stmt] = []
        nexts: list[tuple[str, str, Scalar]] = []
        self.expect("{")
        while True:
            word = self.take()
            if word == "}":
                return tuple(body), nexts
            if word == "next":
                name, combine = self.take(), self.take()
                nexts.append((name, combine, self.scalar()))
            else:
                body.append(self.statement(word))

    def statement(self, word: str) -> Stmt:
        if word == "store":
            return self.store()
        if word == "partial":
            buffer = self.take()
            self.expect("=")
            kind = self.take()
            self.expect("of")
            value = self.scalar()
            self.expect("rows")
            return Partial(buffer, value, int(self.take()), kind)
        if word == "check":
            ok = self.scalar()
            self.expect(",")
            message = json.loads(self.take())
            self.expect(",")
            return Check(ok, message, self.scalar())
        if word == "local":
            name = self.take()
            self.expect(":")
            self.dtypes[name] = self.dtype()
            return Local(name, self.dtypes[name], self.ints()[0])
        if word in ("parallel", "vector", "serial"):
            return self.loop(word)
        self.expect("=")
        value = self.scalar()
        self.dtypes[word] = value.dtype
        return Let(word, value)

    def store(self) -> Store:
        buffer, index = self.take(), self.size()
        combine = ""
        if self.peek() != "=":
            combine = self.take()
        self.expect("=")
        value = self.scalar()
        mask = None
        if self.peek() == "if":
            self.take()
            mask = self.scalar()
        return Store(buffer, index, value, mask, combine)

    def loop(self, kind: str) -> Loop:
        var = self.take()
        self.expect("in")
        extent = self.size()
        chunk: Size = 1
        carried: list[tuple[str, DType, Scalar]] = []
        if self.peek() == "chunk":
            self.take()
            chunk = self.size()
        if self.peek() == "carry":
            while self.peek() in ("carry", ","):
                self.take()
                name = self.take()
                self.expect(":")
                dtype = self.dtype()
                self.expect("=")
                carried.append((name, dtype, self.scalar()))
        for name, dtype, _ in carried:
            self.dtypes[name] = dtype
        body, nexts = self.statements()
        if [n[0] for n in nexts] != [c[0] for c in carried]:
            raise self.error(f"loop {var}: carries and `next` lines differ")
        carries = tuple(
            Carry(name, dtype, init, combine, value)
            for (name, dtype, init), (_, combine, value) in zip(carried, nexts, strict=True)
        )
        return Loop(kind, var, extent, body, carries, chunk)

    # kernels

    def epilogue(self, acc: DType) -> tuple[Stmt, ...]:
        """The rest of a template, behind its operands."""
        self.expect("epilogue")
        self.dtypes["acc"] = acc
        body, _ = self.statements()
        self.expect("}")
        return body

    def params(self) -> tuple[Param, ...]:
        params: list[Param] = []
        self.expect("(")
        while self.peek() != ")":
            name = self.take()
            self.expect(":")
            self.dtypes[name] = self.dtype()
            size = self.size()
            params.append(Param(name, self.dtypes[name], size, self.take()))
            if self.peek() == ",":
                self.take()
        self.take()
        return tuple(params)

    def kernel(self) -> Kernel:
        self.expect("kernel")
        name = self.take()
        params = self.params()
        self.expect("dims", "(")
        dims: list[str] = []
        while self.peek() != ")":
            dims.append(self.take())
            if self.peek() == ",":
                self.take()
        self.expect(")", "{")
        stages: list[tuple[Stmt, ...]] = []
        template = None
        while (word := self.take()) != "}":
            if word == "stage":
                stages.append(self.statements()[0])
            elif word in KEYWORDS:
                template = KEYWORDS[word].read(self, word)
            else:
                raise self.error(f"expected stage or one of {', '.join(KEYWORDS)}, found {word!r}")
        return Kernel(name, params, tuple(dims), tuple(stages), template)


def parse_kernel(text: str) -> Kernel:
    """Read back `print_kernel(kernel)`. Raises ValueError naming the line."""
    return Reader(text).kernel()
