"""A Graph of torch.fx as the text of a Python function."""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Iterable
from typing import Any

from .node import Node, name_of

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>",
}
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
    if node.target is operator.getitem and len(args) == 2 and not kwargs:
        return f"{objects.text(args[0])}[{objects.text(args[1])}]"
    if node.target is getattr and len(args) == 2 and str(args[1]).isidentifier():
        return f"{objects.text(args[0])}.{args[1]}"
    function = objects.name(name_of(node.target), node.target)
    return f"{function}({objects.arguments(args, kwargs)})"


def source_of(nodes: list[Node], root: str) -> tuple[str, dict[str, Any]]:
    """The text of a function `forward(root, ...)`, and the objects that it names.

    A value that nobody reads any more is let go, so that its memory is free.
    """
    objects = _Objects([root, "forward", "getattr", "slice", *(node.name for node in nodes)])
    last: dict[Node, Node] = {}
    for node in nodes:
        last.update(dict.fromkeys(node.all_input_nodes, node))
    parameters, lines, result = [root], [], "None"
    for node in nodes:
        if node.op == "placeholder":
            parameter = str(node.target)
            name = parameter.lstrip("*")
            parameters.append(
                f"{parameter} = {objects.text(node.args[0])}" if node.args else parameter
            )
            if name != node.name:
                lines.append(f"{node.name} = {name};  {name} = None")
            continue
        if node.op == "output":
            result = objects.text(node.args[0])
            continue
        done = [read.name for read in node.all_input_nodes if last[read] is node]
        free = f";  {' = '.join(done)} = None" if done else ""
        lines.append(f"{node.name} = {_expression(node, objects, root)}{free}")
    body = "\n    ".join([*lines, f"return {result}"])
    return f"def forward({', '.join(parameters)}):\n    {body}\n", objects.names
