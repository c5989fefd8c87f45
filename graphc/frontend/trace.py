"""The tracer: every operation of a thread is recorded into a Builder while Python runs once.

    trace = Trace("step")
    with trace:                                     # an exception inside rolls everything back
        trace.add_argument(tensor, 0, {0: "n"})     # optional: dim 0 becomes symbolic
        rate = trace.lift_number(0.1, source=("lr", 0))
        result = step(...)                          # real tensors, not replaced
        traced = trace.finish(result)               # -> TracedGraph (captured.py says what it is)

Concrete tensors are captured when an operation meets them: the Trace holds a *shadow*, a traced
Tensor with the state (value, .grad, history, requires_grad) that the tensor has during the trace.
The tensor itself is not touched, so a trace that is dropped needs no undoing; what was really
changed meanwhile (state made in `suspended()`) registers its undoing with `on_rollback`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import Dim, DimEnv
from graphc.ir.dim import Size as DimSize
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr, Node
from graphc.ir.op import Attrs, Op, OpError
from graphc.ir.op import get as get_op
from graphc.ir.types import TensorType

from . import views
from .captured import UNREAD, Input, TensorInput, TracedGraph
from .context import Suspended, local
from .eager import join_view, otherwise
from .errors import EscapedTensorError, located, raise_op_error, user_location
from .finish import finish
from .functionalize import (
    Memory,
    TracedState,
    TracedStorage,
    named_size,
    saved_value,
    symbolic_strides,
)
from .history import edge, gradient_kind, requires_grad
from .late import Late
from .layouts import strided
from .names import Names
from .nodes import Edge, records
from .nodes import Node as GradNode
from .number_expr import NumberExpr, NumberGuard, NumberTable
from .number_nodes import NumberNodes, plain_attrs
from .numbers import LiftedNumber, SymInt, TracedNumber
from .one_device import OneDevice
from .result_layouts import result_strides
from .scoped import Scoped
from .storage import contiguous_strides, strides_of
from .tensor import Tensor, alias
from .trace_history import enter, entry_edge, record


class Trace(OneDevice, Scoped):
    """A recording. Only the thread that entered it is traced."""

    def __init__(self, name: str = "graph", env: DimEnv | None = None) -> None:
        super().__init__()
        self.name = name
        self.open = True
        self.numbers = NumberTable()
        self._arguments: dict[int, tuple[int, Mapping[int, str | Dim]]] = {}
        self._argument_tensors: list[Tensor] = []  # keeps their ids taken
        self.renewed: dict[int, dict[int, str]] = {}  # symbolic dims of captured tensors, by id
        self.backwards = 0  # passes that ran while recording
        self._undo: list[Callable[[], None]] = []
        self._outer: list[Trace | None] = []
        self.inference = local.inference  # whether it has met that mode, or a tensor made in it
        self.site: Any = None  # the call that the user's rewritten code makes
        self.existed: Callable[[Any], Any] | None = None  # told of a captured leaf's hooks
        self.hashed: Callable[[Tensor], None] | None = None  # told of a tensor that is hashed
        self.deferred: list[Callable[[], None]] = []  # done at the end of each call, not traced
        self.late = Late(self)  # the steps of schedules among these
        self.written_numbers: set[tuple[int, str]] = set()  # by the call: (id of the group, key)
        self.start(env)

    def start(self, env: DimEnv | None = None) -> None:
        """Begin an empty recording."""
        self.env = env if env is not None else DimEnv()
        self.builder = self.new_builder()
        self.inputs: list[Input] = []
        self.number_guards: dict[NumberExpr, NumberGuard] = {}
        self.grad_reads: dict[int, tuple[Tensor, bool]] = {}  # whether `.grad` was None then
        self.found_none: set[int] = set()  # ids of those whose `.grad` Python saw to be None
        self.shadows: dict[int, tuple[Tensor, Tensor]] = {}  # by id: (concrete, shadow)
        self.rebound: dict[int, tuple[Tensor, Tensor]] = {}  # by id: (concrete, its new .data)
        self.overlaps: list[tuple[int, int]] = []
        self.memory = Memory(self)
        self.written = False  # whether memory was written to
        self.picks: list[Any] = []  # picks.Pick
        self.whole_memory: dict[int, Tensor] = {}  # concrete tensors that have to be all of theirs
        self.outside: set[GradNode] = set()
        self.sources: list[tuple[TensorInput, TracedStorage]] = []
        # concrete tensors that require a gradient, and where it arrives
        self.entries: list[tuple[Tensor, Edge]] = []
        self._grad_owners: dict[int, Tensor] = {}
        self._number_nodes = NumberNodes(self.builder, self.inputs, self.number_name)
        self._taken = {}

    def new_builder(self) -> Builder:
        """What makes the nodes of a recording."""
        return Builder(self.env)

    # --- life ------------------------------------------------------------------------------

    def __enter__(self) -> Trace:
        self.check_open(f"the trace of {self.name}()")
        self._outer.append(local.trace)
        local.trace = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        local.trace = self._outer.pop()
        if kind is not None:
            self.rollback()

    def suspended(self) -> Suspended:
        """Run eagerly inside: for state that is made for real (optimizer moments)."""
        return Suspended()

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call `undo` if the trace fails."""
        self._undo.append(undo)

    def rollback(self) -> None:
        """Undo what was really changed, newest first, and close the trace."""
        self.open = False
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        """The trace is over: its tensors raise by name from now on."""
        self.open = False
        self.names = Names()
        self._undo.clear()

    def check_open(self, what: str) -> None:
        """Raise EscapedTensorError once the trace is over."""
        if not self.open:
            raise EscapedTensorError(located(
                f"{what} was traced inside {self.name}() and kept after the trace. Cure: return "
                "it from the compiled function, or store it in an attribute of a Module"
            ))

    def escaped(self, tensor: Tensor) -> EscapedTensorError:
        """The error for a traced tensor that is used outside its trace."""
        loc = tensor._graphc_traced.value.loc
        where = "" if loc is None else f" at {loc}"
        if self.open:
            why = "is used where tracing is suspended or in another thread"
        else:
            why = "was kept after the trace"
        return EscapedTensorError(located(
            f"tensor traced{where} inside {self.name}() {why}. Cure: return it from the compiled "
            "function, or store it in an attribute of a Module or another root of the function"
        ))

    def materialise(self, tensor: Tensor, concrete: Tensor) -> None:
        """Make a traced tensor concrete, the same object: it gets the state of `concrete`."""
        tensor.__dict__.clear()
        tensor.__dict__.update(concrete.__dict__)

    # --- inputs ----------------------------------------------------------------------------

    def add_argument(
        self, tensor: Tensor, index: int, symbolic: Mapping[int, str | Dim] | None = None
    ) -> None:
        """Declare argument `index`. `symbolic` names the dims that are to be symbolic."""
        self._arguments.setdefault(id(tensor), (index, symbolic or {}))
        self._argument_tensors.append(tensor)

    def argument_index(self, tensor: Tensor) -> int:
        """Which argument a concrete tensor is; -1 for none."""
        found = self._arguments.get(id(tensor))
        return -1 if found is None else found[0]

    def shadow(self, tensor: Tensor) -> Tensor:
        """The traced Tensor that stands for a concrete one. Captures it the first time."""
        found = self.shadows.get(id(tensor))
        if found is not None:
            return found[1]
        if tensor._graphc_trace is not None:
            raise tensor._graphc_trace.escaped(tensor)
        storage, path = self.memory.place(tensor)
        root, full = storage.resolve(path)
        node = views.replay(full, Expr(self.builder, root.node)).node if full else root.node
        shadow: Tensor = object.__new__(Tensor)
        shadow._graphc_trace = self
        shadow._graphc_concrete = tensor
        shadow._graphc_storage = storage
        strides: Any
        if storage.source is not None and not path:
            strides = storage.source.strides
        else:
            strides = strides_of(tensor._graphc_array)
        shadow._graphc_traced = TracedState(
            node.tensor_type, node, root.writes, self, path, strides
        )
        if requires_grad(tensor):
            enter(self, tensor, shadow)
        shadow._grad = UNREAD
        self.shadows[id(tensor)] = (tensor, shadow)
        return shadow

    def begins(self, tensor: Tensor, shadow: Tensor) -> None:
        """A captured leaf requires a gradient from here on, which leaves the trace."""
        place = entry_edge(shadow, tensor)
        if all(known is not tensor for known, _ in self.entries):
            self.entries.append((tensor, place))

    def concrete_of(self, shadow: Tensor) -> Tensor:
        """The concrete tensor that a shadow stands for; the tensor itself if it is none."""
        return shadow if shadow._graphc_concrete is None else shadow._graphc_concrete

    def new_input(self, tensor: Tensor) -> TracedStorage:
        """A graph input for a concrete tensor's part of memory."""
        array = tensor._graphc_array
        self.enters(tensor)
        index, symbolic = self._arguments.get(id(tensor), (-1, self.renewed.get(id(tensor), {})))
        shape: list[DimSize] = list(array.shape)
        for dim, name in symbolic.items():
            if shape[dim] not in (0, 1):
                shape[dim] = named_size(self.env, name, array.shape[dim])
        strides = symbolic_strides(array, tuple(shape), self._gap)
        owner = self._grad_owners.get(id(tensor))
        kind = "argument" if index >= 0 else "tensor" if owner is None else "grad"
        if kind == "grad" and owner is not None:
            index = self.argument_index(owner)
        type_ = TensorType(dtypes.from_numpy(array.dtype), tuple(shape))
        node = self.graph_input(type_, self.input_name(tensor, kind, index, owner))
        source = TensorInput(
            kind, tensor if owner is None else owner, node, strides, index, len(self.inputs),
            gradient_kind(tensor), tensor._graphc_node is None,
        )
        self.inputs.append(source)
        storage = TracedStorage(node, source)
        self.inference |= storage.inference
        self.sources.append((source, storage))
        return storage

    def _gap(self, step: int) -> DimSize:
        """The step of a dimension of an input with gaps, read from its memory at each call."""
        return step if local.exporting else self.env.new(f"step{len(self.env.hints)}", step)

    def new_flat_input(self, tensor: Tensor, flat: np.ndarray) -> TracedStorage:
        """A graph input for a whole storage, under tensors that overlap."""
        type_ = TensorType(dtypes.from_numpy(flat.dtype), flat.shape)
        node = self.graph_input(type_, f"storage{len(self.inputs)}")
        source = TensorInput(
            "storage", tensor, node, (1,), self.argument_index(tensor), len(self.inputs)
        )
        self.inputs.append(source)
        storage = TracedStorage(node, source)
        self.sources.append((source, storage))
        return storage

    def forward(self, storage: TracedStorage, parent: TracedStorage, path: views.Chain) -> None:
        """Two captured storages turn out to overlap: one becomes a view of the other."""
        if storage.source is not None and storage.node is not storage.source.node:
            value = views.write_back(
                path, Expr(self.builder, parent.node), Expr(self.builder, storage.node), self.env
            )
            parent.rebind(value.node, tracked=True)
            self.written = True
        storage.forward(parent, path)
        if storage.source is not None and parent.source is not None:
            self.overlaps.append((storage.source.number, parent.source.number))

    def grad_owner(self, tensor: Tensor) -> Tensor | None:
        """Whose `.grad` a captured tensor is."""
        return self._grad_owners.get(id(tensor))

    def lift_number(self, value: float | int, source: Any) -> LiftedNumber:
        """A run-time number; `source` is the caller's name for it (hashable)."""
        if isinstance(value, TracedNumber):
            raise TypeError("the number is lifted already")
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(f"only int and float can be lifted, got {type(value).__name__}")
        return LiftedNumber(self, self.numbers.leaf("source", source, value))

    def lift_size(self, dim: Dim) -> SymInt:
        """The SymInt of a symbolic size."""
        return SymInt(dim, self)

    def decide(self, expression: NumberExpr) -> Any:
        """The example's value of an expression of run-time numbers, kept true by a guard."""
        if expression not in self.number_guards:
            self.late.forbid(expression, "a decision upon")
            guard = NumberGuard(expression, expression.value, user_location())
            self.number_guards[expression] = guard
        return expression.value

    def specialise(self, dim: Dim) -> int:
        """A symbolic size as its example's int, kept true by a guard."""
        return self.env.specialise(dim)

    def number_operand(self, expression: NumberExpr, dtype: DType) -> Tensor:
        """A 0-d Tensor of `dtype` with the value of a number expression."""
        self.check_open(f"the number {expression.value!r}")
        self.late.forbid(expression, "a tensor operation on")
        self.builder.loc = self.here()
        return self.wrap(self._number_nodes.node(expression, dtype))

    # --- values ----------------------------------------------------------------------------

    def read(self, tensor: Tensor) -> Node:
        """The node with a traced tensor's value now."""
        state = tensor._graphc_traced
        storage: Any = tensor._graphc_storage
        writes = storage.writes
        if state.stamp != writes:
            root, path = storage.resolve(state.path)
            node = views.replay(path, Expr(self.builder, root.node)).node
            state = tensor._graphc_traced = state.now(node, writes)
        return state.value

    def write(self, target: Tensor, value: Tensor | Node) -> None:
        """Rebind the memory under a traced tensor to hold `value` there."""
        if not isinstance(value, Node):
            value = self.read(value if value._graphc_trace is self else self.shadow(value))
        state = target._graphc_traced
        storage: Any = target._graphc_storage
        root, path = storage.resolve(state.path)
        if root.source is not None:
            self.memory.settle(root)
            root, path = storage.resolve(state.path)
        self.builder.loc = self.here()
        try:
            base = views.write_back(
                path, Expr(self.builder, root.node), Expr(self.builder, value), self.env
            ).node
        except OpError as error:
            raise_op_error(error)
        root.rebind(base, state.tracked)
        self.written = True
        target._graphc_traced = state.now(value, root.writes)

    def wrap(self, node: Node, strides: Any = None) -> Tensor:
        """A new traced tensor on memory of its own."""
        type_ = node.type
        if type(type_) is not TensorType:
            type_ = node.tensor_type
        result: Tensor = object.__new__(Tensor)
        result._graphc_trace = self
        result._graphc_storage = TracedStorage(node)
        result._graphc_storage.layout = strides
        result._graphc_traced = TracedState(type_, node, 0, self, (), strides)
        return result

    def emit(self, name: str, *inputs: Node, **attrs: Any) -> Node:
        """A node at the present line."""
        return self.builder.emit(get_op(name), *inputs, **attrs)

    def constant(self, array: np.ndarray) -> Tensor:
        """A traced tensor of data known now."""
        self.settles()
        self.builder.loc = self.here()
        return self.wrap(self.builder.const(array))

    def number(
        self, value: float | int, dtype: DType, make: Callable[[Any, DType], np.ndarray]
    ) -> Tensor:
        """A 0-d traced tensor of a Python number, which `make` gives as an array."""
        kind = type(value)
        # -0.0 and 0.0 are equal, and nan is not itself
        told = value if value and value == value else repr(value)
        key = "number", kind, told, dtype.name
        node = self.builder.find(key)
        if node is None:
            self.builder.loc = self.here()
            node = self.builder.keep(key, self.builder.const(make(value, dtype)))
        return self.wrap(node)

    def apply(self, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs) -> Any:
        """Record one operation."""
        try:
            states = [t if t._graphc_trace is self else self.shadow(t) for t in inputs]
        except AttributeError:
            return otherwise(op, inputs, attrs)
        nodes = tuple([self.read(t) for t in states])
        if attrs:
            attrs = plain_attrs(attrs)
        node = self.builder.known(op, nodes, attrs)
        if node is None:
            self.builder.loc = self.here()
            try:
                node = self.builder.emit(op, *nodes, **attrs)
            except OpError as error:
                raise_op_error(error)
        if op.view:
            results = [self._view(op, states[0], node)]
        else:
            parts = self.builder.results(node)
            results = [
                self.wrap(part, result_strides(op, states, part.shape, self.env)) for part in parts
            ]
        if local.grad and records(op, node):
            edges = [
                (t._graphc_node, t._graphc_output) if t._base is None and t._graphc_node is not None
                else edge(t) if requires_grad(t) else None
                for t in states
            ]
            if any(edges):
                record(self, node, nodes, states, tuple(edges), results)
        return results[0] if type(node.type) is TensorType else tuple(results)

    def _view(self, op: Op, source: Tensor, node: Node) -> Tensor:
        state = source._graphc_traced
        attrs = dict(node.attrs)
        geometry = (state.type.shape, state.strides, state.offset)
        found = views.view_geometry(op, attrs, geometry, node.shape, self.env)
        if found is None:
            return self.wrap(node)
        shape, strides, offset = found
        result: Tensor = object.__new__(Tensor)
        result._graphc_trace = self
        result._graphc_storage = source._graphc_storage
        in_rows = offset == 0 and strides == contiguous_strides(shape)
        result._graphc_traced = TracedState(
            node.tensor_type, node, state.stamp, self, (*state.path, (op, attrs)),
            None if in_rows else strides, offset,
        )
        result._graphc_traced.tracked = state.tracked
        join_view(result, source, op, attrs)
        self.adopt(result)
        return result

    def saved_node(self, saved: tuple[Any, ...]) -> Node:
        """The value that an OpNode saved, as it is now."""
        return saved_value(self.builder, saved)

    # --- state of concrete tensors ---------------------------------------------------------

    def get_grad(self, state: Tensor, asked: bool = False) -> Any:
        """`.grad` as the trace sees it; a first look at a concrete tensor's is a guard. `asked`:
        by Python, to which None and zeros are two things."""
        if state._grad is UNREAD:
            tensor = self.concrete_of(state)
            found = tensor._grad
            if found is not None and found.layout is not strided:
                self.end_segment("a sparse gradient", "make the step outside of it")
                return tensor._grad
            self.grad_reads[id(tensor)] = (tensor, found is not None)
            if found is not None:
                self._grad_owners[id(found)] = tensor
            state._grad = found
        if asked and state._grad is None:
            self.found_none.add(id(self.concrete_of(state)))
        return state._grad

    def untracked(self, state: Tensor) -> Tensor:
        """`.data`: the same memory; autograd does not see its writes."""
        result = alias(state)
        result._graphc_traced.tracked = False
        return result

    def set_data(self, tensor: Tensor, value: Tensor) -> None:
        """`tensor.data = value`: take over the value's memory."""
        state = tensor if tensor._graphc_trace is self else self.shadow(tensor)
        source = value if value._graphc_trace is self else self.shadow(value)
        if tensor._graphc_trace is not self and source._graphc_storage.root.source is not None:
            self.end_segment("assigning .data memory that was there before", "x.data.copy_(value)")
            with self.suspended():
                tensor.data = value
            return
        state._graphc_storage = source._graphc_storage
        state._graphc_traced = source._graphc_traced.copy()
        if tensor._graphc_trace is not self:
            self.rebound[id(tensor)] = (tensor, value)

    # --- backward --------------------------------------------------------------------------

    def enter_backward(self) -> Any:
        """Nodes from here on belong to a new backward call."""
        outer = self.builder.backward, self.builder.loc
        self.backwards += 1
        self.builder.backward = self.backwards
        return outer

    def leave_backward(self, outer: Any) -> None:
        """Back to what `enter_backward` found."""
        self.builder.backward, self.builder.loc = outer

    def finish(
        self, result: Any, stored: dict[Any, Any] | None = None, backward: bool = False
    ) -> TracedGraph:
        """End the recording. `result`: what the function returned; `stored`: further tensors by
        key; `backward`: also add the gradients for a backward() outside (captured.py)."""
        traced = finish(self, result, stored or {}, backward)
        self.env.final = True
        return traced
