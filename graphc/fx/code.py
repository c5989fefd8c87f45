"""A Graph of torch.fx as the text of a Python function."""

from __future__ import annotations

import builtins
import keyword
import math
import operator
import re
import sys
import typing
from collections.abc import Iterable
from types import GenericAlias, NoneType, UnionType
from typing import Any

from .node import Node, name_of, text_of_type

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>",
}
_PREFIX = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_GENERIC = {list: typing.List, dict: typing.Dict, set: typing.Set, tuple: typing.Tuple,  # noqa: UP006
            frozenset: typing.FrozenSet}  # noqa: UP006
_LITERALS = (int, bool, str, bytes, type(None), type(...))


class _Objects:
    """The objects that a text names, by their names in it."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.names: dict[str, Any] = {}
        self._taken = set(taken)

    def name(self, wanted: str, value: Any) -> str:
        """A name for an object."""
        base = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        name, count = base, 0
        while name in self._taken or self.names.get(name, value) is not value:
            count += 1
            name = f"{base}_{count}"
        self.names[name] = value
        return name

    def object(self, path: str, value: Any) -> str:
        """An object of torch's by its path there, another one by a name."""
        if path.startswith("torch.") and "torch" not in self._taken:
            root: Any = sys.modules["graphc"]
            found = root
            for part in path.split(".")[1:]:
                found = getattr(found, part, None)
            if found is value:
                self.names["torch"] = root
                return path
        return self.name(path, value)

    def annotation(self, value: Any) -> str:
        """What stands behind a parameter's name and a colon."""
        if isinstance(value, UnionType):
            return "|".join(map(self.annotation, value.__args__))
        if value is NoneType:
            return self.name("NoneType", value)
        origin = getattr(value, "__origin__", None)
        inside = getattr(value, "__args__", ())
        if origin is None or not inside:
            text = text_of_type(value)
            return text if getattr(builtins, text, None) is value else self.object(text, value)
        own = origin if isinstance(value, GenericAlias) else _GENERIC.get(origin, origin)
        said = str(getattr(own, "__name__", own))
        name = said if getattr(builtins, said, None) is own else self.name(str(own), own)
        items = (self.text(each) if each is ... else self.annotation(each) for each in inside)
        return f"{name}[{','.join(items)}]"

    def text(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple):
            if hasattr(value, "_fields"):
                kind = self.name(type(value).__name__, type(value))
                return f"{kind}({', '.join(map(self.text, value))})"
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            items = (f"{self.text(key)}: {self.text(item)}" for key, item in value.items())
            literal = f"{{{', '.join(items)}}}"
            own = type(value)
            return literal if own is dict else f"{self.name(own.__name__, own)}({literal})"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        if type(value) in _LITERALS or (type(value) is float and math.isfinite(value)):
            return repr(value)
        shown = str(value)
        if re.fullmatch(r"torch\.\w+", shown):  # a dtype, a layout
            return self.object(shown, value)
        return self.name(getattr(value, "__name__", type(value).__name__), value)

    def arguments(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        """What stands between the parentheses of a call."""
        named = (f"{key} = {self.text(item)}" for key, item in kwargs.items())
        return ", ".join([*map(self.text, args), *named])


def _attribute(root: str, path: str) -> str:
    """`root.a.b`, where a part that is no name of Python's is asked for by getattr."""
    text = root
    for part in path.split("."):
        if part.isidentifier() and not keyword.iskeyword(part):
            text = f"{text}.{part}"
        else:
            text = f"getattr({text}, {part!r})"
    return text


def _expression(node: Node, objects: _Objects, root: str) -> str:
    args, kwargs = node.args, node.kwargs
    if node.op == "get_attr":
        return _attribute(root, str(node.target))
    if node.op == "call_module":
        return f"{_attribute(root, str(node.target))}({objects.arguments(args, kwargs)})"
    if node.op == "call_method":
        return f"{objects.text(args[0])}.{node.target}({objects.arguments(args[1:], kwargs)})"
    if node.target in _INFIX and len(args) == 2 and not kwargs:
        left, right = map(objects.text, args)
        return f"{left} {_INFIX[node.target]} {right}"
    if node.target in _PREFIX and len(args) == 1 and not kwargs:
        return f"{_PREFIX[node.target]}{objects.text(args[0])}"
    if node.target is operator.getitem and len(args) == 2 and not kwargs:
        return f"{objects.text(args[0])}[{objects.text(args[1])}]"
    if node.target is getattr and len(args) == 2 and str(args[1]).isidentifier():
        return f"{objects.text(args[0])}.{args[1]}"
    function = objects.object(name_of(node.target), node.target)
    return f"{function}({objects.arguments(args, kwargs)})"


def source_of(nodes: list[Node], root: str) -> tuple[str, dict[str, Any]]:
    """The text of a function `forward(root, ...)`, and the objects that it names.

    A value that nobody reads any more is let go, so that its memory is free.
    """
    objects = _Objects([root, "forward", "getattr", "slice", *(node.name for node in nodes)])
    last: dict[Node, Node] = {}
    for node in nodes:
        last.update(dict.fromkeys(node.all_input_nodes, node))
    parameters, lines, result, kind = [root], [], "None", ""
    for node in nodes:
        if node.op == "placeholder":
            parameter = str(node.target)
            name = parameter.lstrip("*")
            said = "" if node.type is None else f" : {objects.annotation(node.type)}"
            default = f" = {objects.text(node.args[0])}" if node.args else ""
            parameters.append(f"{parameter}{said}{default}")
            if name != node.name:
                free = "" if parameter.startswith("*") else f";  {name} = None"
                lines.append(f"{node.name} = {name}{free}")
            continue
        if node.op == "output":
            result = objects.text(node.args[0])
            kind = "" if node.type is None else f" -> {objects.annotation(node.type)}"
            continue
        done = [read.name for read in node.all_input_nodes if last[read] is node]
        free = f";  {' = '.join(done)} = None" if done else ""
        lines.append(f"{node.name} = {_expression(node, objects, root)}{free}")
    body = "\n    ".join([*lines, f"return {result}"])
    return f"\n\n\ndef forward({', '.join(parameters)}){kind}:\n    {body}\n    ", objects.names
