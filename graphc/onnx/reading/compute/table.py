"""The table of ONNX operators: a record for each version of each that graphc computes.

A function gets its Node (attributes, version, which outputs somebody wants) and its inputs, None
where one is left out. Inputs are Tensors, but for those that `numbers` lists, which are Numbers:
sizes, axes, paddings. `folded`, where an operator has one, is tried first where all inputs are
Numbers; None says that it does not know.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import refuse

ONNX = ""  # the domain of ai.onnx, however a file spells it
Function = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """One version of an operator. `settings`: inputs that describe and are not learned, so that
    an initializer there is no parameter."""

    name: str
    since: int
    compute: Function
    numbers: tuple[int, ...] = ()
    settings: tuple[int, ...] = ()
    folded: Function | None = None
    shapes: bool = False  # it asks for the shape of its input alone
    raw: bool = False  # it takes Numbers and Tensors as they come
    trains: bool = False  # it does something else while the Module is trained: it asks
    most: int | None = None  # inputs; None: any number

    def __repr__(self) -> str:
        return f"{self.name}-{self.since}"


@dataclass(eq=False)
class Node:
    """A node of a file, as an operator's function sees it."""

    op: str
    domain: str
    version: int  # of its operator set
    where: str  # what messages call it
    attributes: dict[str, Any] = field(default_factory=dict)
    wanted: tuple[bool, ...] = (True,)  # which outputs have a name
    inner: tuple[str, ...] = ()  # attributes that are subgraphs
    training: bool | None = None  # what train() or eval() said, to who asks

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def wants(self, index: int) -> bool:
        """Whether the output of this number is used, or may be."""
        return index < len(self.wanted) and self.wanted[index]

    def with_calls(self, call: Function) -> Node:
        """The node with its subgraphs as functions."""
        calls = {name: call(self.attributes[name]) for name in self.inner}
        return dataclasses.replace(self, attributes={**self.attributes, **calls}, inner=())

    def refuse(self, what: str, cure: str) -> Any:
        """Raise OnnxError naming this node."""
        refuse(f"{self.where}: {what}", cure)

    def one_of(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """An attribute that is one of some words."""
        found: str = self.get(name, default)
        if found not in choices:
            self.refuse(
                f"{name} is {found!r}, which is none of {', '.join(map(repr, choices))}",
                "export the model with one of those",
            )
        return found


TABLE: dict[tuple[str, str], list[Operator]] = {}


def operator(
    names: str, since: int = 1, *, domain: str = ONNX, numbers: tuple[int, ...] = (),
    settings: tuple[int, ...] = (), folded: Function | None = None, shapes: bool = False,
    raw: bool = False, trains: bool = False,
) -> Callable[[Function], Function]:
    """Put a function into the table, under each of `names`."""

    def put(function: Function) -> Function:
        most = _most(function)
        for name in names.split():
            rows = TABLE.setdefault((domain, name), [])
            assert all(row.since != since for row in rows), f"{name}-{since} is there twice"
            rows.append(Operator(
                name, since, function, numbers, (*numbers, *settings), folded, shapes, raw, trains,
                most,
            ))
            rows.sort(key=lambda row: row.since)
        return function

    return put


def _most(function: Function) -> int | None:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return len(parameters)


def find(domain: str, name: str, version: int) -> Operator | None:
    """The operator as its operator set of this version has it."""
    rows = [row for row in TABLE.get((domain, name), ()) if row.since <= version]
    return rows[-1] if rows else None
