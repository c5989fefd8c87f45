"""The table of rules: how each of our operators is said in ONNX's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from graphc.ir.graph import Node
from graphc.onnx.errors import UnsupportedOperatorError

if TYPE_CHECKING:
    from .writer import Writer

# (writer, node, the names of its inputs) -> the name, or names, of its results
Rule: TypeAlias = Callable[..., str | tuple[str, ...]]
# whether the rule takes this node; a composite that it does not take is written in primitives
Takes: TypeAlias = Callable[["Writer", Node], bool]

RULES: dict[str, Rule] = {}
_TAKES: dict[str, Takes] = {}


def rule(*names: str, takes: Takes | None = None) -> Callable[[Rule], Rule]:
    """Decorator: the rule of the operators of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            add(name, function)
            if takes is not None:
                _TAKES[name] = takes
        return function

    return register


def add(name: str, function: Rule) -> None:
    """A rule. Raises ValueError where there is one."""
    if name in RULES:
        raise ValueError(f"two ONNX rules for {name}")
    RULES[name] = function


def direct(table: Mapping[str, str]) -> None:
    """Operators that ONNX has, by our name and its: the same inputs, no attributes."""

    def of(op: str) -> Rule:
        return lambda w, node, *inputs: w.emit(op, *inputs)

    for name, op in table.items():
        add(name, of(op))


def takes(writer: Writer, node: Node) -> bool:
    """Whether there is a rule that takes this node."""
    name = node.op.name
    return name in RULES and (name not in _TAKES or _TAKES[name](writer, node))


def refuse(node: Node, why: str, cure: str) -> NoReturn:
    """Raise UnsupportedOperatorError for a node of the user's."""
    where = f" at {node.place}" if node.loc is not None else ""
    raise UnsupportedOperatorError(
        f"the operator {node.op.name}{where} cannot be written as ONNX: {why}. Cure: {cure}"
    )


WHY_NOT: dict[str, tuple[str, str]] = {
    "random": (
        "it draws random numbers", "call model.eval() before the export, or pass the numbers in"
    ),
    "routine": (
        "the standard has no operator for it, nor some that make it up",
        "compute it outside of the exported part",
    ),
}
_OTHER = ("there is no rule for it", "compute it outside of the exported part")


def rule_of(writer: Writer, node: Node) -> Rule:
    """The node's rule. Raises UnsupportedOperatorError where there is none."""
    if not takes(writer, node):
        refuse(node, *WHY_NOT.get(node.op.family, _OTHER))
    return RULES[node.op.name]


def attributes(node: Node) -> Mapping[str, Any]:
    """A node's metadata, without what only concerns speed."""
    return {key: value for key, value in node.attrs.items() if key != "tf32"}
