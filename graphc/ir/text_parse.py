"""Reading the text form of a Graph (see ir/text.py)."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from . import dim as dims_module
from . import dtypes
from .dim import DimEnv, Guard, Size
from .graph import Builder, Constant, Graph, Loc, Node, input_
from .op import OpError
from .op import get as get_op
from .types import TensorType, TupleType, Type

# Attributes that an operator got later: what texts written before mean.
_LATER: dict[str, dict[str, Any]] = {"scan": {"reverse": False}}


class ParseError(ValueError):
    """Bad graph text; the message gives the line's number and the line."""


class _Token(NamedTuple):
    kind: str  # "id" "value" "number" "string" "comment" "punct" "end"
    text: str
    line: int


_TOKENS = re.compile(
    r"""(?P<space>[ \t\r]+|\n)|(?P<comment>\#[^\n]*)|(?P<value>%\d+)
    |(?P<raw>b64"[A-Za-z0-9+/=]*")|(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<id>[A-Za-z_][\w.]*)
    |(?P<punct>==|<=|//|[-+*%(){}\[\],:=])""",
    re.VERBOSE,
)


_LOC = re.compile(
    r"(?P<file>.*):(?P<line>\d+)(?: in (?P<function>(?:[^,\\]|\\.)*))?"
    r"(?:, module (?P<module>(?:[^,\\]|\\.)*))?(?P<optimizer>, optimizer)?"
)


def parse_graph(text: str) -> Graph:
    """The graph of a text that `print_graph` wrote. Raises ParseError."""
    parser = _Parser(text)
    graph = parser.graph(None)
    parser.expect_end()
    return graph


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.tokens = list(self._tokenize(text))
        self.at = 0

    def _tokenize(self, text: str) -> Iterator[_Token]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKENS.match(text, position)
            if match is None:
                self._fail(line, f"unexpected character {text[position]!r}")
            kind = match.lastgroup or ""
            if kind != "space":
                yield _Token(kind, match.group(), line)
            line += match.group() == "\n"
            position = match.end()
        yield _Token("end", "end of text", line)

    def _fail(self, line: int, message: str) -> NoReturn:
        shown = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        raise ParseError(f"line {line}: {message}\n  {shown}")

    def fail(self, message: str) -> NoReturn:
        self._fail(self.tokens[self.at].line, message)

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, kind: str) -> str:
        token = self.next
        if token.kind != kind:
            self.fail(f"expected {_KINDS[kind]}, found {token.text!r}")
        self.at += 1
        return token.text

    def punct(self, text: str) -> None:
        if self.next.text != text:
            self.fail(f"expected {text!r}, found {self.next.text!r}")
        self.at += 1

    def accept(self, text: str) -> bool:
        if self.next.text == text and self.next.kind in ("punct", "id"):
            self.at += 1
            return True
        return False

    def comment(self) -> Loc | None:
        """The source line in a comment on the current line."""
        token = self.next
        if token.kind != "comment" or token.line != self.tokens[self.at - 1].line:
            return None
        self.at += 1
        return _parse_loc(token.text)

    def expect_end(self) -> None:
        while self.next.kind == "comment":
            self.at += 1
        if self.next.kind != "end":
            self.fail(f"expected the end of the text, found {self.next.text!r}")

    # --- grammar

    def graph(self, outer: DimEnv | None) -> Graph:
        while self.next.kind == "comment":
            self.at += 1
        if not self.accept("graph"):
            self.fail(f"expected 'graph', found {self.next.text!r}")
        name = json.loads(self.take("string")) if self.next.kind == "string" else self.take("id")
        values: dict[str, Node] = {}
        self.punct("(")
        made: dict[str, Callable[[DimEnv], Node]] = {}
        while not self.accept(")"):
            label, make = self.input(len(made))
            if label in made:
                self.fail(f"{label} is defined twice")
            made[label] = make
        self.punct("{")
        env = self.declarations(outer)
        inputs = [values.setdefault(label, make(env)) for label, make in made.items()]
        while not self.accept("return"):
            if self.next.kind == "comment":
                self.at += 1
            else:
                self.node(values, env)
        outputs: list[Node] = []
        while self.next.kind == "value":
            outputs.append(self.operand(values))
            if not self.accept(","):
                break
        self.punct("}")
        return Graph(name, tuple(inputs), tuple(outputs), env)

    def declarations(self, outer: DimEnv | None) -> DimEnv:
        own = DimEnv()
        if self.accept("dims"):
            while True:
                name = self.take("id")
                self.punct("=")
                own.hints[name] = int(self.take("number"))
                if not self.accept(","):
                    break
        while self.accept("guard"):
            holds = not self.accept("not")
            left = self.size(("==", "<=", "divides"))
            relation = {"==": "eq", "<=": "le", "divides": "divides"}[self.next.text]
            self.at += 1
            line = self.tokens[self.at - 1].line
            right = self.size((), line)
            own.guards[Guard(relation, left, right, holds)] = None
        return own if outer is None or own.hints or own.guards else outer

    def input(self, position: int) -> tuple[str, Callable[[DimEnv], Node]]:
        """An input's label, and what makes it when the dims are known."""
        label = self.take("value")
        name = ""
        if self.next.kind == "string":
            name = json.loads(self.take("string"))
        elif self.next.kind == "id" and self.next.text != "at":
            name = self.take("id")
        index = int(self.take("number")) if self.accept("at") else position
        self.punct(":")
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.fail("an input is one tensor, not a tuple")
        backward = int(self.take("number")) if self.accept("backward") else 0
        if not self.accept(",") and self.next.text != ")":
            self.fail(f"expected ',' or ')', found {self.next.text!r}")
        loc = self.comment()

        def make(env: DimEnv) -> Node:
            builder = Builder(env)
            builder.backward, builder.loc = backward, loc
            return builder.emit(input_, index=index, name=name, type=type_)

        return label, make

    def operand(self, values: dict[str, Node]) -> Node:
        label = self.take("value")
        try:
            return values[label]
        except KeyError:
            self.at -= 1
            self.fail(f"{label} is used before it is defined")

    def node(self, values: dict[str, Node], env: DimEnv) -> None:
        start = self.next.line
        label = self.take("value")
        if label in values:
            self._fail(start, f"{label} is defined twice")
        self.punct("=")
        try:
            op = get_op(self.take("id"))
        except KeyError as error:
            self._fail(start, error.args[0])
        sources: list[Node] = []
        attrs: dict[str, Any] = {}
        self.accept(",")
        while self.next.text != ":":
            if self.next.kind == "value":
                sources.append(self.operand(values))
            else:
                name = self.take("id")
                self.punct("=")
                attrs[name] = self.value()
            if not self.accept(","):
                break
        self.punct(":")
        type_ = self.type()
        if isinstance(attrs.get("value"), _RawConstant):
            attrs["value"] = self.constant(attrs["value"], type_, start)
        builder = Builder(env)  # one for each node, so that equal nodes stay apart
        builder.backward = int(self.take("number")) if self.accept("backward") else 0
        graphs: list[Graph] = []
        if self.accept("{"):
            builder.loc = self.comment()
            while not self.accept("}"):
                graphs.append(self.graph(env))
        else:
            builder.loc = self.comment()
        try:
            attrs = {**_LATER.get(op.name, {}), **attrs}
            node = builder.emit(op, *sources, graphs=tuple(graphs), **attrs)
        except (OpError, TypeError, KeyError, ValueError, AttributeError) as error:
            self._fail(start, f"{op.name}: {error}")
        if node.type != type_:
            self._fail(start, f"{op.name} gives {node.type} here, the text says {type_}")
        values[label] = node

    def type(self) -> Type:
        if self.accept("("):
            elements: list[TensorType] = []
            while not self.accept(")"):
                element = self.type()
                if not isinstance(element, TensorType):
                    self.fail("a tuple type holds tensors only")
                elements.append(element)
                self.accept(",")
            return TupleType(tuple(elements))
        name = self.take("id")
        try:
            dtype = dtypes.by_name(name)
        except KeyError as error:
            self.at -= 1
            self.fail(error.args[0])
        self.punct("[")
        shape: list[Size] = []
        while not self.accept("]"):
            shape.append(self.size((",", "]")))
            self.accept(",")
        return TensorType(dtype, tuple(shape))

    def size(self, stops: tuple[str, ...], line: int | None = None) -> Size:
        """A size expression: tokens up to a stop outside brackets, or to the line's end."""
        depth, parts = 0, []
        while self.next.kind != "end":
            token = self.next
            if depth == 0 and (token.text in stops or (line is not None and token.line != line)):
                break
            depth += (token.text == "(") - (token.text == ")")
            if depth < 0:
                break
            parts.append(token.text)
            self.at += 1
        text = " ".join(parts)
        try:
            return _parse_size(text)
        except (ValueError, SyntaxError, KeyError, RecursionError, MemoryError):
            self.fail(f"not a size expression: {text!r}")

    def value(self) -> Any:
        token = self.next
        if token.kind == "string":
            self.at += 1
            return json.loads(token.text)
        if token.kind == "raw":
            self.at += 1
            return _RawConstant(None, base64.b64decode(token.text[4:-1]))
        if self.accept("["):
            return _RawConstant(self.numbers(), b"")
        if token.text == "(" and self.is_tuple():
            self.at += 1
            items: list[Any] = []
            while not self.accept(")"):
                items.append(self.value())
                if not self.accept(",") and self.next.text != ")":
                    self.fail(f"expected ',' or ')', found {self.next.text!r}")
            return tuple(items)
        return self.scalar()

    def is_tuple(self) -> bool:
        """Whether the bracket here holds a tuple; otherwise it opens a size expression."""
        if self.tokens[self.at + 1].text == ")":
            return True
        depth = 0
        for token in self.tokens[self.at :]:
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                return False
            if depth == 1 and token.text == ",":
                return True
        return False

    def scalar(self) -> Any:
        if self.next.kind == "id" and self.next.text in _WORDS:
            return _WORDS[self.take("id")]
        negative = self.next.text == "-"
        number = self.tokens[self.at + negative]
        after = self.tokens[self.at + negative + 1].text
        literal = number.kind == "number" and after in (",", ")", "]", ":")
        if literal or number.text in ("inf", "nan"):
            self.at += negative + 1
            found = _number(number.text)
            return -found if negative else found
        return self.size((",", ":"))

    def numbers(self) -> list[Any]:
        found: list[Any] = []
        while not self.accept("]"):
            found.append(self.scalar())
            if not self.accept(",") and self.next.text != "]":
                self.fail(f"expected ',' or ']', found {self.next.text!r}")
        return found

    def constant(self, raw: _RawConstant, type_: Type, line: int) -> Constant:
        if not isinstance(type_, TensorType):
            self._fail(line, "a constant is one tensor")
        try:
            if raw.numbers is not None:
                array = np.array(raw.numbers, dtype=type_.dtype.numpy)
            else:
                array = np.frombuffer(raw.data, type_.dtype.numpy)
                if sys.byteorder == "big":
                    array = array.byteswap()
            return Constant(array.reshape(type_.static_shape))
        except (ValueError, TypeError, OverflowError) as error:
            self._fail(line, f"the constant does not fit {type_}: {error}")


class _RawConstant(NamedTuple):
    numbers: list[Any] | None
    data: bytes


_KINDS = {"id": "a name", "value": "a value such as %1", "number": "a number",
          "string": "a string"}
_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None, "nan": math.nan}
_WORDS.update({d.name: d for d in (*dtypes.ALL, *dtypes.COMPLEX)})


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)


@lru_cache(maxsize=4096)
def _parse_size(text: str) -> Size:
    return int(text) if text.isdigit() else dims_module.parse(text)


def _parse_loc(comment: str) -> Loc | None:
    match = _LOC.fullmatch(comment[1:].strip(" "))
    if match is None:
        return None
    file, function, module = (
        re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), match[name] or "")
        for name in ("file", "function", "module")
    )
    return Loc(file, int(match["line"]), function, module, match["optimizer"] is not None)
