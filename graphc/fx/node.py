"""torch.fx.node: one step of a Graph, and what its arguments are made of."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable
from types import FunctionType, GenericAlias
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .graph import Graph

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any
BaseArgumentTypes: TypeAlias = Any

OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`a` with fn applied to what its tuples, lists, dicts and slices hold."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(item, fn) for item in a]
    if isinstance(a, dict):
        return {key: map_aggregate(item, fn) for key, item in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with fn applied to the Nodes in it."""
    return map_aggregate(a, lambda item: fn(item) if isinstance(item, Node) else item)


def name_of(target: Target) -> str:
    """What a target is called in texts: torch's names for torch's functions."""
    if isinstance(target, str):
        return target
    name = getattr(target, "__name__", None) or type(target).__name__
    if getattr(builtins, name, None) is target:
        return name
    module = getattr(target, "__module__", None) or "torch"
    if module == "_operator":
        return f"operator.{name}"
    return f"{module.replace('graphc', 'torch', 1)}.{name}"


def text_of_type(annotation: Any) -> str:
    """What an annotation is called in texts."""
    if isinstance(annotation, type) and not isinstance(annotation, GenericAlias):
        if annotation.__module__ == "builtins":
            return annotation.__qualname__
        name, module = annotation.__qualname__, annotation.__module__
        if module.split(".")[0] == "graphc":
            known = getattr(sys.modules["graphc"], name, None) is annotation
            module = "torch" if known else module.replace("graphc", "torch", 1)
        return f"{module}.{name}"
    if isinstance(annotation, FunctionType):
        return annotation.__name__
    text = repr(annotation).replace("graphc.frontend.tensor.Tensor", "torch.Tensor")
    return text.replace("graphc.", "torch.")


def _shown(value: Argument) -> str:
    """Arguments in a line's text, in which Nodes have a sign before their names."""
    if isinstance(value, (list, tuple)):
        items = ", ".join(map(_shown, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(item)}' for key, item in value.items())}}}"
    return f"%{value}" if isinstance(value, Node) else str(value)


class Node:
    """What is done (`op`), with what (`target`, `args`, `kwargs`), and who reads it (`users`)."""

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple[Argument, ...],
        kwargs: dict[str, Argument], return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"op is one of {', '.join(OPS)}, not {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node target {target!r} is not callable, as call_function needs")
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node target {target!r} of {op} is not a str")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._erased = False
        self._set(args, kwargs)

    @property
    def args(self) -> tuple[Argument, ...]:
        """What is positional."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._set(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """What is given by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Argument]) -> None:
        self._set(self._args, dict(kwargs))

    def _set(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def all_input_nodes(self) -> list[Node]:
        """The Nodes among the arguments, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Another positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Another argument by name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True
    ) -> list[Node]:
        """Have those who read this Node read another one; gives them."""
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read another Node in the place of one."""

        def other(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, other), map_arg(self._kwargs, other))

    @property
    def next(self) -> Node:
        """The Node behind it in its Graph."""
        return self.graph._beside(self, 1)

    @property
    def prev(self) -> Node:
        """The Node before it in its Graph."""
        return self.graph._beside(self, -1)

    def append(self, x: Node) -> None:
        """Move x behind this Node."""
        self.graph._move(x, self, 1)

    def prepend(self, x: Node) -> None:
        """Move x before this Node."""
        self.graph._move(x, self, 0)

    def is_impure(self) -> bool:
        """Whether it stays though nobody reads it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in SIDE_EFFECTS
        if self.op == "call_module" and self.graph.owning_module is not None:
            module = self.graph.owning_module.get_submodule(str(self.target))
            return bool(getattr(module, "_is_impure", False))
        return False

    def format_node(self, *args: Any, **kwargs: Any) -> str:
        """One line for it."""
        if self.op == "output":
            return f"return {self._args[0]}"
        name, target = f"%{self.name}", name_of(self.target)
        kind = "" if self.type is None else f"{text_of_type(self.type)} "
        head = f"{name} : {kind}[num_users={len(self.users)}] = {self.op}[target={target}]"
        if self.op == "get_attr":
            return head
        if self.op == "placeholder":
            return head + (f"(default={self._args[0]})" if self._args else "")
        return f"{head}(args = {_shown(self._args)}, kwargs = {_shown(self._kwargs)})"

    def __repr__(self) -> str:
        return self.name


# functions that are called though nobody reads what they give
SIDE_EFFECTS: set[Any] = {operator.setitem, print}


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: calls of the function stay in a Graph though nobody reads their results."""
    SIDE_EFFECTS.add(fn)
    return fn
