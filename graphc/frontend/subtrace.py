"""A trace of a part of a program: the body of vmap, or a branch or loop body of control flow.

A SubTrace may run in eager mode or inside another trace. Tensors from outside become its inputs,
one each (`captured`), and keep their place on the outside tape: autograd.grad() inside may go on
through the history that outside tensors have, whose saved values become inputs, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from graphc.ir.graph import Graph, Node
from graphc.ir.memory import may_share
from graphc.ir.types import TensorType

from .captured import UNREAD
from .context import local
from .errors import located
from .functionalize import TracedState, TracedStorage
from .history import edge, requires_grad
from .nodes import Edge
from .placement import place_at
from .tensor import Tensor, alias, current, from_array
from .trace import Trace
from .values import Eager
from .views import Chain


class SubTrace(Trace):
    """A trace whose outside is eager mode, or another trace (`parent`)."""

    accumulates = False  # backward() would add to `.grad` of tensors outside

    def __init__(self, name: str, given: Sequence[Tensor] = ()) -> None:
        parent = local.trace
        super().__init__(name, None if parent is None else parent.env)
        self.parent = parent
        if parent is not None:
            self.builder.loc = parent.builder.loc
            self.names = parent.names
            self.module, self.in_optimizer = parent.module, parent.in_optimizer
        if Eager.elsewhere is not None:
            places = (place_at(tensor) for tensor in given)
            outside = None if parent is None else parent.lies()
            self.home = next((place for place in places if place is not None), outside)
        # outside tensors that were read, and the graph input and shadow of each
        self.captured: list[tuple[Tensor, Node, Tensor]] = []
        self.tapes: list[Edge] = []  # keeps accumulators alive
        self._recalled: dict[Any, tuple[Any, Tensor]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @contextmanager
    def enclosing(self) -> Iterator[None]:
        """Compute where the SubTrace was started."""
        saved = local.trace
        local.trace = self.parent
        try:
            yield
        finally:
            local.trace = saved

    def own_input(self, type_: TensorType, name: str) -> Tensor:
        """A traced tensor that is a graph input of its own."""
        return self.wrap(self.builder.input(type_, name))

    def shadow(self, tensor: Tensor) -> Tensor:
        """The traced Tensor that stands for one from outside."""
        found = self.shadows.get(id(tensor))
        if found is not None:
            return found[1]
        with self.enclosing():
            state = current(tensor)
            type_ = state._graphc_type
            place = edge(state) if requires_grad(state) else None
            strides: Any = (
                state._graphc_traced.strides if state._graphc_trace is not None
                else tuple(s // state._graphc_array.itemsize for s in state._graphc_array.strides)
            )
            leaf = state._graphc_node is None
        node = self.builder.input(type_, f"outside{len(self.captured)}")
        shadow: Tensor = object.__new__(Tensor)
        shadow._graphc_trace = self
        shadow._graphc_concrete = tensor
        shadow._graphc_storage = TracedStorage(node)
        path: Chain = ()
        shadow._graphc_traced = TracedState(type_, node, 0, self, path, strides)
        if place is not None:
            self.tapes.append(place)
            if leaf:
                shadow._graphc_requires_grad = True
                shadow._graphc_accumulator = state._graphc_accumulator
            else:
                shadow._graphc_node, shadow._graphc_output = place
        shadow._grad = UNREAD
        self.shadows[id(tensor)] = (tensor, shadow)
        self.captured.append((tensor, node, shadow))
        return shadow

    def recall(self, value: Any, owner: Trace | None, place: Edge | None) -> Tensor:
        """A value that a tape node of `owner` saved, with its place on the tape."""
        identity = value[0] if isinstance(value, tuple) else value
        key = (id(identity), None if place is None else (id(place[0]), place[1]))
        found = self._recalled.get(key)
        if found is None:
            with self.enclosing():
                if owner is None:
                    tensor = from_array(value)
                elif isinstance(self.parent, SubTrace) and owner is not self.parent:
                    tensor = alias(self.parent.recall(value, owner, None))
                else:
                    tensor = owner.wrap(owner.saved_node(value))
                if place is not None:
                    tensor._graphc_node, tensor._graphc_output = place
            found = self._recalled[key] = (value, tensor)
        return self.shadow(found[1])

    def get_grad(self, state: Tensor, asked: bool = False) -> Any:
        """`.grad` of an outside tensor is the outside's."""
        if state._grad is UNREAD:
            with self.enclosing():
                return self.concrete_of(state).grad
        return state._grad

    def writes(self) -> list[tuple[Tensor, Node]]:
        """Outside tensors that were written to, with their new values."""
        found: list[tuple[Tensor, Node]] = []
        for tensor, node, shadow in self.captured:
            root = shadow._graphc_storage.root
            if shadow._grad is not UNREAD:
                raise RuntimeError(located(
                    "setting .grad of an outside tensor inside vmap or control flow is not "
                    "supported. Cure: return the gradient"
                ))
            if root.node is not node:
                found.append((tensor, root.node))
        self._check_shared([tensor for tensor, _ in found])
        return found

    def _check_shared(self, written: list[Tensor]) -> None:
        """A write must not be missed by another captured tensor on the same memory."""
        for tensor in written:
            for other, _, _ in self.captured:
                if other is not tensor and self._one_memory(other, tensor):
                    raise RuntimeError(located(
                        "an in-place write inside vmap or control flow reaches memory that "
                        "another tensor used there shares. Cure: clone() one of them first"
                    ))

    def _one_memory(self, a: Tensor, b: Tensor) -> bool:
        with self.enclosing():
            first, second = current(a), current(b)
            if first._graphc_trace is not None or second._graphc_trace is not None:
                return first._graphc_storage is second._graphc_storage
            return bool(may_share(first._graphc_array, second._graphc_array))

    def graph(self, outputs: list[Node]) -> Graph:
        """What was recorded, with these outputs."""
        return self.builder.build(outputs, self.name)
