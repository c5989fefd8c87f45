"""The text form of a Graph: what tests, goldens and exported files hold. Printing and parsing
are exact inverses: structure, attributes, constants to the bit, source lines, backward numbers.

    graph step(%0 x: f32[n,8], %1 w: f32[8,4]) {
      dims n=32
      guard n <= 512
      %2 = const, value=[0.5] : f32[]
      %3 = dot_general %0, %1, batch_a=(), ..., contract_b=(0,) : f32[n,4]  # net.py:9, module 0
      %4 = cond %2, %3 : f32[n,4] {
        graph then(%0: f32[n,4]) {
          return %0
        }
        ...
      }
      return %3, %4
    }

Values are numbered from the inputs on, anew in each sub-graph. A constant of more than 16
elements is the base64 of its bytes (little endian).
"""

from __future__ import annotations

import base64
import json
import math
import operator
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import dtypes
from .dim import Dim, DimEnv
from .dtypes import DType
from .graph import Constant, Graph, Loc, Node, input_
from .text_parse import ParseError, parse_graph
from .types import Type

__all__ = ["ParseError", "node_texts", "parse_graph", "print_graph", "print_lines"]

_LITERAL_ELEMENTS = 16
_RESERVED = frozenset(
    {d.name for d in (*dtypes.ALL, *dtypes.COMPLEX)} | {"nan", "inf", "True", "False", "None"}
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.]*\Z")

# --- printing --------------------------------------------------------------------------------


def print_graph(graph: Graph, places: bool = True) -> str:
    """The graph as text, sub-graphs included; `parse_graph` reads it back. Without `places`
    (source lines and Modules) the texts of equal graphs are equal."""
    return "\n".join(_graph_lines(graph, "", None, places=places)) + "\n"


def print_lines(graph: Graph) -> tuple[list[str], dict[Node, int]]:
    """The text by line, and the line index at which each of the graph's own nodes starts."""
    where: dict[Node, int] = {}
    lines = list(_graph_lines(graph, "", None, where))
    return lines, where


def node_texts(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Each node with its text, without source lines, names of inputs, and inputs without use."""
    used = {*graph.outputs, *(source for node in graph.nodes for source in node.inputs)}
    nodes = [node for node in graph.nodes if node.op is not input_ or node in used]
    number = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        if node.op is input_:
            yield node, f"%{number[node]}: {type_text(node.type)}"
        else:
            yield node, "\n".join(_node_lines(node, number, "", graph.env, False))


def _graph_lines(
    graph: Graph, indent: str, outer: DimEnv | None, where: dict[Node, int] | None = None,
    places: bool = True,
) -> Iterator[str]:
    number = {node: i for i, node in enumerate(graph.nodes)}
    inputs = [_input_text(node, number[node]) for node in graph.inputs]
    name = graph.name if _PLAIN_NAME.match(graph.name) else json.dumps(graph.name)
    head = f"{indent}graph {name}({', '.join(inputs)}) {{"
    count = 1
    if len(head) <= 100 and not (places and any(node.loc for node in graph.inputs)):
        yield head
    else:
        yield f"{indent}graph {name}("
        for node, text in zip(graph.inputs, inputs, strict=True):
            if where is not None:
                where[node] = count
            yield f"{indent}  {text}," + (_loc_text(node.loc) if places else "")
            count += 1
        yield f"{indent}) {{"
        count += 1
    if graph.env is not outer:
        if graph.env.hints:
            yield f"{indent}  dims " + ", ".join(
                f"{_dim_name(name)}={hint}" for name, hint in graph.env.hints.items()
            )
            count += 1
        for guard in graph.env.guards:
            yield f"{indent}  guard {guard.text()}"
            count += 1
    for node in graph.nodes:
        if node.op is input_:
            if node not in graph.inputs:
                yield f"{indent}  # {_input_text(node, number[node])} is not among the inputs"
                count += 1
            continue
        if where is not None:
            where[node] = count
        for line in _node_lines(node, number, indent + "  ", graph.env, places):
            yield line
            count += 1
    yield f"{indent}  return {', '.join(f'%{number[n]}' for n in graph.outputs)}".rstrip()
    yield f"{indent}}}"


def _input_text(node: Node, number: int) -> str:
    name = node.attrs.get("name", "")
    if name and not (_PLAIN_NAME.match(name) and name not in ("at", "backward")):
        name = json.dumps(name)
    index = node.attrs.get("index", number)
    at = "" if index == number else f" at {index}"
    back = f" backward {node.backward}" if node.backward else ""
    return f"%{number}{' ' + name if name else ''}{at}: {type_text(node.type)}{back}"


def _node_lines(
    node: Node, number: dict[Node, int], indent: str, env: DimEnv, places: bool
) -> Iterator[str]:
    names = [name for name in node.op.attrs if name in node.attrs]
    names += [name for name in node.attrs if name not in node.op.attrs]
    parts = [f"%{number[source]}" for source in node.inputs]
    parts += [f"{name}={_value_text(node.attrs[name])}" for name in names]
    operands = (" " if node.inputs else ", " if parts else "") + ", ".join(parts)
    text = f"{indent}%{number[node]} = {node.op.name}{operands} : {type_text(node.type)}"
    if node.backward:
        text += f" backward {node.backward}"
    place = _loc_text(node.loc) if places else ""
    if not node.graphs:
        yield text + place
        return
    yield text + " {" + place
    for graph in node.graphs:
        yield from _graph_lines(graph, indent + "  ", env, places=places)
    yield f"{indent}}}"


def type_text(type_: Type) -> str:
    """A type as the text form spells it: f32[n,4], or (f32[2], i64[2])."""
    return str(type_)


def _loc_text(loc: Loc | None) -> str:
    if loc is None:
        return ""
    text = f"{_escaped(loc.file)}:{loc.line}"
    if loc.function:
        text += f" in {_escaped(loc.function, commas=True)}"
    if loc.module:
        text += f", module {_escaped(loc.module, commas=True)}"
    return f"  # {text}, optimizer" if loc.optimizer else f"  # {text}"


def _escaped(text: str, commas: bool = False) -> str:
    """Text that fits a line."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace(",", "\\,") if commas else text


def _dim_name(name: str) -> str:
    if name in _RESERVED or not name.isidentifier():
        raise ValueError(f"a dim may not be named {name!r}")
    return name


def _value_text(value: Any) -> str:
    """An attribute's value; raises TypeError for what the text form cannot hold."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, float):
        return float.__repr__(value)
    if value is None:
        return "None"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Dim):
        for name in value.variables():
            _dim_name(name)
        return str(value)
    if isinstance(value, tuple):
        inner = ", ".join(_value_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Constant):
        return _constant_text(value.array)
    if isinstance(value, np.floating):
        return float.__repr__(float(value))
    try:
        return str(operator.index(value))
    except TypeError:
        raise TypeError(f"an attribute cannot be {value!r} ({type(value).__name__})") from None


def _constant_text(array: np.ndarray) -> str:
    if array.size <= _LITERAL_ELEMENTS and array.dtype.kind != "c":
        texts = [_element_text(v) for v in array.reshape(-1)]
        if None not in texts:
            return f"[{', '.join(t for t in texts if t is not None)}]"
    if sys.byteorder == "big":
        array = array.byteswap()
    return f'b64"{base64.b64encode(array.tobytes()).decode()}"'


def _element_text(value: Any) -> str | None:
    """A number that reads back to the same bits; None for a NaN with a payload or a sign."""
    if isinstance(value, np.bool_):
        return str(bool(value))
    if isinstance(value, np.integer):
        return str(int(value))
    wide = float(value)
    if math.isnan(wide):
        return "nan" if value.tobytes() == type(value)(math.nan).tobytes() else None
    text = float.__repr__(wide)
    if isinstance(value, np.float32):
        short = str(value)
        if np.float32(float(short)) == value and len(short) < len(text):
            text = short if any(c in short for c in ".enif") else short + ".0"
    return text
