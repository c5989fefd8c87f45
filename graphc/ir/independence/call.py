"""What a rule of independence is given, and what it answers: where rows lie in values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from ..dim import Dim, Size
from ..graph import Graph, Node
from ..types import TensorType, TupleType, Type


@dataclass(frozen=True)
class Rows:
    """Where rows lie: dimension `dim` counts (before, row, after), row-major, where `before` has
    `outer` values and `after` has `inner`. A batch as it is given is Rows(0)."""

    dim: int
    outer: Size = 1
    inner: Size = 1

    def at(self, dim: int) -> Rows:
        """The same along another dimension."""
        return Rows(dim, self.outer, self.inner)


State: TypeAlias = Rows | None  # None: the same for all rows
Result: TypeAlias = State | tuple[State, ...]  # of several results, each


class Mixed(Exception):
    """Rows are not proven independent."""


def mixed(reason: str) -> NoReturn:
    """Raise Mixed."""
    raise Mixed(reason)


@dataclass(frozen=True)
class Call:
    """One node, and what is known of its inputs."""

    node: Node
    states: tuple[State, ...]
    batch: Dim

    @property
    def name(self) -> str:
        return self.node.op.name

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs

    def type(self, number: int = 0) -> TensorType:
        """The type of an input."""
        return self.node.inputs[number].tensor_type

    def rows(self, number: int = 0) -> Rows:
        """Where an input has its rows. Raises Mixed if it has none."""
        state = self.states[number]
        if state is None:
            mixed(f"{self.name} meets rows with something that has none")
        return state

    def same_rows(self, *numbers: int) -> Rows:
        """Where these inputs have their rows, all alike. Raises Mixed if they have not."""
        first = self.rows(numbers[0])
        if any(self.rows(number) != first for number in numbers[1:]):
            mixed(f"{self.name} meets rows that lie apart")
        return first

    def shared(self, *numbers: int) -> None:
        """Raise Mixed unless these inputs are the same for all rows."""
        if any(self.states[number] is not None for number in numbers):
            mixed(f"{self.name} has rows where only what all of them share may be")

    def across(self, dim: int) -> NoReturn:
        """Raise Mixed: the operator goes along the dimension of the rows."""
        mixed(f"{self.name} goes along dim {dim}, which holds the batch")


def element_types(type_: Type) -> tuple[TensorType, ...]:
    """The types of a node's results."""
    return type_.elements if isinstance(type_, TupleType) else (type_,)


def mentions(value: Any, name: str) -> bool:
    """Whether a size, or anything in an attribute, is computed from a named dim."""
    if isinstance(value, Dim):
        return name in value.variables()
    if isinstance(value, (tuple, list)):
        return any(mentions(v, name) for v in value)
    if isinstance(value, Mapping):
        return any(mentions(v, name) for v in value.values())
    return False


Rule: TypeAlias = Callable[[Call], Result]
Walk: TypeAlias = Callable[[Graph, Sequence[State]], tuple[State, ...]]
BodyRule: TypeAlias = Callable[[Call, Walk], Result]
