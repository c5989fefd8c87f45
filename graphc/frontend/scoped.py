"""Where in a model a trace is: the Module that is called, and whether an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from graphc.ir.graph import Builder, Loc, Node
from graphc.ir.types import TensorType

from .cuts import OneGraph
from .errors import user_location
from .names import Names

if TYPE_CHECKING:
    from .tensor import Tensor


class InsideModule:
    """The call of a Module, to the trace that it is recorded in."""

    __slots__ = ("_module", "_outer", "_trace")

    def __init__(self, trace: Scoped, module: Any) -> None:
        self._trace, self._module = trace, module

    def __enter__(self) -> None:
        trace = self._trace
        self._outer = trace.module, trace.in_optimizer
        trace.module, trace.in_optimizer = trace.names.module(self._module, trace.module), False

    def __exit__(self, *error: object) -> None:
        self._trace.module, self._trace.in_optimizer = self._outer


class Uncounted:
    """Where a trace does not ask what a Module records."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Scoped(OneGraph):
    """The part of a trace that knows names. They are for people: nothing is decided by them."""

    builder: Builder
    inputs: list[Any]  # of the graph so far

    def __init__(self) -> None:
        self.names = Names()
        self.module = ""
        # by whom an optimizer reads its state while a recording updates parameters
        self.states: Any = None
        self.in_optimizer = False
        self.line: Loc | None = None  # the user's, where it is known
        self.argument_names: list[str] = []
        self._taken: dict[str, int] = {}  # names of graph inputs

    def here(self) -> Loc | None:
        """The user's line that is running."""
        if self.line is not None:
            return self.line
        return user_location(self.module, self.in_optimizer)

    def inside(self, module: Any) -> InsideModule:
        """A context: what is recorded in it carries the path of a Module that is called."""
        return InsideModule(self, module)

    def between_hooks(self, module: Any) -> Any:
        """A context: what is recorded in it is the forward of a Module that has hooks."""
        return Uncounted()

    @contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        """Inside, an optimizer makes a step: it reads the numbers of its param groups."""
        for parameter, state in optimizer.state.items():
            self.names.state(parameter, state)
        outer, self.in_optimizer = self.in_optimizer, True
        try:
            yield
        finally:
            self.in_optimizer = outer

    @contextmanager
    def forward_again(self) -> Iterator[None]:
        """Inside, an optimizer runs the user's closure."""
        outer, self.in_optimizer = self.in_optimizer, False
        try:
            yield
        finally:
            self.in_optimizer = outer

    def graph_input(self, type_: TensorType, name: str) -> Node:
        """A graph input; it has no line, the nodes that read it have."""
        builder = self.builder
        loc, builder.loc = builder.loc, None
        try:
            return builder.input(type_, name)
        finally:
            builder.loc = loc

    def input_name(self, tensor: Tensor, kind: str, index: int, owner: Tensor | None) -> str:
        """What a graph input for a tensor is called. `index`: of an argument; `owner`: whose
        .grad it is."""
        if index >= 0:
            return self._argument_name(index)
        name = self.names.tensor(tensor if owner is None else owner)
        if not name:
            return self._unique(f"{kind}{len(self.inputs)}")
        return self._unique(name if owner is None else f"grad of {name}")

    def number_name(self, source: Any) -> str:
        """What a graph input for a number is called, by its source."""
        if type(source) is tuple and source[0] == "argument":
            return self._argument_name(source[1])
        return self._unique(getattr(source, "name", f"number{len(self.inputs)}"))

    def _argument_name(self, index: int) -> str:
        known = index < len(self.argument_names)
        return self._unique(self.argument_names[index] if known else f"argument{index}")

    def _unique(self, name: str) -> str:
        """The name, with a number where another input has it."""
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else self._unique(f"{name} {count}")
