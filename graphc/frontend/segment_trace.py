"""A trace in segments: where Python demands a value, what was recorded so far is compiled and run.

A SegmentTrace starts as an ordinary Trace of a whole function (`whole`). At the first demand
(`.item()`, `bool(t)`, `print(t)`) it turns into segments: what was recorded is *flushed*, that is
run, every traced tensor that somebody still holds becomes a concrete one (the same object), and
recording starts anew. Python then goes on with the real value. What a demand cannot undo (a
lifted number that user code holds) is noted in `tainted`: such a trace raises, and the function
is called again, in segments from its first line.

Python decides everything again at each call, so a segmented trace lifts no numbers, makes no
size symbolic and leaves no guards. The flush itself is injected: `flush(trace)`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from graphc.ir.dim import DimEnv
from graphc.ir.graph import Builder, Loc, Node, get_
from graphc.ir.named import NamedTuple
from graphc.ir.op import Attrs, Op

from .captured import TensorInput
from .caught import is_caught
from .context import local
from .eager import apply, otherwise
from .eager_count import EagerCount
from .errors import unsupported_in_trace, user_location
from .functionalize import TracedStorage
from .nodes import AccumulateGrad
from .nodes import Node as GradNode
from .outside_history import goes_on, reachable
from .pending import PendingItem, number_is_kept, only_kept, only_returned
from .pending_numbers import combined
from .placement import TWO_DEVICES, TWO_DTYPES
from .scoped import InsideModule
from .segment_again import operation_again
from .segment_nodes import KnownNodes
from .tensor import Tensor
from .trace import Trace
from .unread import failure_of
from .values import Eager

_TRIED = "what may fail in a try statement that would catch it"


class SegmentEnd(NamedTuple):
    """Why and where a segment ended; `value`: Python needed a tensor's value."""

    reason: str
    loc: Loc | None
    value: bool = False


class MetModule(NamedTuple):
    """The call of a Module, as a recording met it."""

    module: weakref.ref[Any]
    between_hooks: bool  # its forward alone
    path: str
    nodes: slice  # of those that are noted
    ended: bool  # a segment ended in it


class CountedModule(InsideModule):
    """The call of a Module, to a recording that may turn into segments."""

    __slots__ = ("_between_hooks", "_flushes", "_nodes")
    _trace: SegmentTrace

    def __init__(self, trace: SegmentTrace, module: Any, between_hooks: bool = False) -> None:
        super().__init__(trace, module)
        self._between_hooks = between_hooks

    def __enter__(self) -> None:
        if not self._between_hooks:
            super().__enter__()
        self._nodes, self._flushes = len(self._trace.noted or ()), self._trace.flushes

    def __exit__(self, *error: object) -> None:
        trace = self._trace
        if trace.met is not None:
            nodes = slice(self._nodes, len(trace.noted or ()))
            trace.met.append(MetModule(
                weakref.ref(self._module), self._between_hooks, trace.module, nodes,
                trace.flushes != self._flushes,
            ))
        if not self._between_hooks:
            super().__exit__(*error)


class SegmentTrace(Trace):
    """A recording that can be run in parts. `flush` runs what was recorded and fills tensors."""

    otherwise = ""
    strict = False  # whether the user asks for one graph

    def __init__(
        self, name: str, flush: Callable[[SegmentTrace], None], whole: bool,
        nodes: KnownNodes | None = None,
    ) -> None:
        self.whole = whole
        self.nodes = KnownNodes() if nodes is None else nodes
        super().__init__(name)
        self.tainted = ""
        self.handles: list[weakref.ref[Tensor]] = []
        self.ends: list[SegmentEnd] = []
        self.entry: CodeType | None = None  # the code that calls the user's function
        self.stepping = 0  # optimizer steps that are running
        self.flushes = 0
        # told of the demand at which the whole turns into segments
        self.turned: Callable[[SegmentTrace], None] | None = None
        self.counted: EagerCount | None = None  # what ran in eager mode from there on
        self.noted: list[Node] | None = [] if whole else None  # recorded, where somebody asks
        self.met: list[MetModule] | None = [] if whole else None
        # memory that NumPy code may write to as well: its values when it was captured
        self.snapshots: dict[int, np.ndarray] = {}
        self.walking = 0  # backward passes that run: their gradients are nodes of this recording
        self.exposed_write = False  # one of them has written to memory that NumPy sees
        # told of operators and writes while it is set (engine/capture/updates_again.py)
        self.watch: Any = None
        self._flush = flush
        self._flushing = False

    def start(self, env: DimEnv | None = None) -> None:
        Trace.start(self, env)
        # what tells the tape, the same in every recording: each operation that was known, and of
        # its edges ("": none) the positions of their nodes, and which result
        self.script: list[Any] = []
        self.taped = 0  # operations in it
        self.told = True  # whether it tells all: no other history was met, nothing was freed
        self.failing: list[Node] = []  # what may refuse its operands' values

    def new_builder(self) -> Builder:
        return Builder(self.env) if self.whole else self.nodes.builder(self.env)

    # --- the end of a segment ----------------------------------------------------------------

    def demand(self, tensor: Tensor, what: str, cure: str) -> np.ndarray:
        """The array of a tensor whose value Python needs now."""
        turns = self.whole and local.trace is self and not self.stepping
        self.end_segment(what, cure, value=True)
        if turns and self.turned is not None:
            self.turned(self)
        found: np.ndarray = tensor._graphc_array
        return found

    def pending_item(self, tensor: Tensor) -> Any:
        late = tensor.device.type != "cpu"
        if not self.whole or self.strict:
            return None
        asked = None
        if not only_returned(self.entry, self.site, late):
            if late or not number_is_kept(self.site):
                return None
            asked = self._when_asked("a number that item() gives")
        state = tensor if tensor._graphc_trace is self else self.shadow(tensor)
        number = self.wrap(self.read(state))
        return PendingItem(number, "item", asked, None if asked is None else combined)

    def pending_array(self, tensor: Tensor) -> Any:
        if not self.whole or self.strict or tensor._graphc_trace is not self or (
            tensor.device.type != "cpu" or not only_kept(self.site)
        ):
            return None
        return PendingItem(tensor, "numpy", self._when_asked("a value that numpy() gives"))

    def _when_asked(self, what: str) -> Callable[[], NoReturn]:
        """What happens where Python does more with something than to keep it."""
        self.tainted = self.tainted or what

        def asked() -> NoReturn:
            self.end_segment(f"{what}, asked for more than to be kept", value=True)
            raise AssertionError("a recording that is tainted goes on")

        return asked

    def end_segment(self, what: str, cure: str = "", value: bool = False) -> None:
        """Run what was recorded. Raises TraceError where that cannot be done seamlessly."""
        if self._flushing or (self.whole and self.tainted):
            self.refused = unsupported_in_trace(what, cure)
            self.refused.end = SegmentEnd(what, user_location(), value)
            raise self.refused
        self.whole = False
        self.note_end(what, value)
        self.flush()

    def note_end(self, what: str, value: bool = False) -> None:
        """Remember why a segment ends."""
        self.ends.append(SegmentEnd(what, user_location(), value))

    def flush(self) -> None:
        """Run what was recorded; traced tensors become concrete; record anew."""
        self.whole = False
        self.flushes += 1
        if not (
            self.handles or self.inputs or self.deferred or self._undo
            or self.grad_reads or self.found_none
        ):
            self.place = False
            return  # nothing was recorded since the last one
        self._flushing = True
        actions = list(self.deferred)
        self.deferred.clear()
        self.late.clear()
        try:
            try:
                self._flush(self)
            finally:
                if actions:
                    with self.suspended():
                        for action in actions:
                            action()
        finally:
            self._flushing = False
            self.handles.clear()
            self.snapshots.clear()
            self._undo.clear()
            self.place = False
            self.start()

    def close(self) -> None:
        Trace.close(self)
        self.noted = self.met = None

    @property
    def may_end(self) -> bool:
        """Whether a segment can end here though no value is needed."""
        return not (self.whole or self._flushing or self.stepping or self.builder.backward)

    def living(self) -> list[Tensor]:
        """The traced tensors that somebody holds, oldest first."""
        found = [reference() for reference in self.handles]
        return [t for t in found if t is not None and t._graphc_trace is self]

    @contextmanager
    def eager(self, what: str, cure: str = "") -> Iterator[None]:
        """Run what was recorded, and what is inside without recording."""
        self.end_segment(what, cure)
        with self.suspended():
            yield

    @contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        self.stepping += 1
        try:
            with Trace.optimizer_step(self, optimizer):
                yield
        finally:
            self.stepping -= 1

    def runs_eagerly(self, what: str) -> bool:
        """Whether `what` is to be done eagerly; if not, the trace can no longer be cut."""
        if self._flushing:
            return False
        if self.whole:
            self.tainted = self.tainted or what
        return not self.whole

    # --- recording ---------------------------------------------------------------------------

    def inside(self, module: Any) -> InsideModule:
        return InsideModule(self, module) if self.met is None else CountedModule(self, module)

    def between_hooks(self, module: Any) -> Any:
        if self.met is None:
            return Trace.between_hooks(self, module)
        return CountedModule(self, module, between_hooks=True)

    def adopt(self, tensor: Tensor) -> None:
        """Note a traced tensor that may be handed out."""
        self.handles.append(weakref.ref(tensor))

    def wrap(self, node: Node, strides: Any = None) -> Tensor:
        result = Trace.wrap(self, node, strides)
        self.handles.append(weakref.ref(result))
        return result

    def lift_number(self, value: float | int, source: Any) -> Any:
        if self.stepping == 0:
            if not self.whole:
                return value
            self.tainted = self.tainted or "a number that is a run-time input"
        return Trace.lift_number(self, value, source)

    def check_open(self, what: str) -> None:
        if self.whole:
            Trace.check_open(self, what)

    def apply(self, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs) -> Any:
        if self.snapshots and not self._flushing and any(self.is_stale(t) for t in inputs):
            self.end_segment("a write by NumPy to a tensor's memory")
        if self.written and any(self.is_mixed(t) for t in inputs):
            self.end_segment(TWO_DTYPES)
        if Eager.elsewhere is not None and not self._flushing and self.apart(inputs):
            with self.eager(TWO_DEVICES):
                return apply(op, *inputs, **attrs)
        failure = None if self.builder.backward else failure_of(op, inputs)
        if failure is not None and not self._flushing and (
            attrs.get("check", True) and is_caught(failure) and self.runs_eagerly(_TRIED)
        ):
            with self.eager(_TRIED):
                return apply(op, *inputs, **attrs)
        if self.whole:
            found = Trace.apply(self, op, inputs, attrs)
        else:
            try:
                found = operation_again(self, op, inputs, attrs)
            except AttributeError:
                return otherwise(op, inputs, attrs)
        first = found[0] if type(found) is tuple else found
        if self.noted is not None and first._graphc_trace is self:  # else eager mode made it
            self.noted.append(first._graphc_traced.value)
        if (failure is not None or op.divides) and first._graphc_trace is self:
            node = first._graphc_traced.value
            self.failing.append(node.inputs[0] if node.op is get_ else node)
        if self.watch is not None:
            self.watch.gave(op, inputs, found)
        return found

    def apply_new(self, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs) -> Any:
        """Record an operation that is not known."""
        return Trace.apply(self, op, inputs, attrs)

    def is_stale(self, tensor: Tensor) -> bool:
        """Whether NumPy code has written to a captured tensor's memory since."""
        found = self.shadows.get(id(tensor))
        if found is None:
            return False
        source = found[1]._graphc_storage.source
        snapshot = None if source is None else self.snapshots.get(source.number)
        return snapshot is not None and snapshot.tobytes() != source.array.tobytes()

    def is_mixed(self, tensor: Tensor, write: bool = False) -> bool:
        """Whether a tensor's memory is captured as another dtype, and written to: no graph's
        value is both."""
        if self._flushing or self.walking or self.stepping:
            return False
        if tensor._graphc_trace is not None:
            source = tensor._graphc_storage.root.source if write else None
            return source is not None and self.memory.is_mixed(source.owner, write)
        if not write and id(tensor) in self.shadows:
            return False
        return self.memory.is_mixed(tensor, write)

    def new_input(self, tensor: Tensor) -> TracedStorage:
        storage = Trace.new_input(self, tensor)
        source = storage.source
        if tensor._graphc_storage.root.exposed and source is not None:
            self._keep(source)
        return storage

    def exposed(self, tensor: Tensor) -> None:
        root = tensor._graphc_storage.root
        for source in self.inputs:  # what was captured before NumPy's code got the memory
            if isinstance(source, TensorInput) and source.owner._graphc_storage.root is root:
                self._keep(source)

    def _keep(self, source: TensorInput) -> None:
        """Take the values of memory that NumPy's code may write to."""
        self.snapshots.setdefault(source.number, source.array.copy())

    def shadow(self, tensor: Tensor) -> Tensor:
        found = self.shadows.get(id(tensor))
        if found is not None:
            return found[1]
        if tensor._graphc_trace is None and not self._flushing and self.is_foreign(tensor):
            self.end_segment(TWO_DEVICES)
        if self.written and self.is_mixed(tensor):
            self.end_segment(TWO_DTYPES)
        base = tensor._base
        if base is not None and self.whole and not self._flushing and self._has_another(base):
            self.end_segment(_VIEW)
        shadow = Trace.shadow(self, tensor)
        if not self.whole:  # a hook is registered at once
            if tensor._graphc_hooks is not None:
                shadow._graphc_hooks = tensor._graphc_hooks
            if tensor._graphc_post_hooks is not None:
                shadow._graphc_post_hooks = tensor._graphc_post_hooks
        return shadow

    def write(self, target: Tensor, value: Tensor | Node) -> None:
        Trace.write(self, target, value)
        if self.watch is not None:
            self.watch.wrote(target, value)
        source = target._graphc_storage.root.source
        if source is None or self.whole:
            return
        if source.owner._graphc_storage.root.exposed:
            if self.walking:
                self.exposed_write = True
            else:
                self.end_segment(_EXPOSED)

    def writes_outside(self, target: Tensor) -> bool:
        """Whether an in-place write with a history is to captured memory that others may see, or
        gives one to what captured memory is a view of."""
        base = target._base
        concrete = target._graphc_concrete
        if concrete is None and base is not None:
            concrete = base._graphc_concrete
        return concrete is not None and (
            not self.whole or concrete._base is not None
            or any(tensor._base is concrete for tensor, _ in self.shadows.values())
        )

    def _has_another(self, captured: Tensor) -> bool:
        """Whether writes gave a captured tensor another history, which its views follow."""
        found = self.shadows.get(id(captured))
        node = None if found is None else found[1]._graphc_node
        return node is not None and node not in self.outside

    # --- backward ----------------------------------------------------------------------------

    def enter_backward(self) -> Any:
        # a hook that demands a value would leave the gradients under way in a recording that is
        # over: the function is called again, in segments
        known, self.tainted = self.tainted, self.tainted or "a value that a hook needs"
        self.walking += 1
        return known, Trace.enter_backward(self)

    def leave_backward(self, outer: Any) -> None:
        self.tainted = outer[0]
        Trace.leave_backward(self, outer[1])
        self.walking -= 1
        if self.exposed_write and not self.walking:
            self.exposed_write = False
            if not self._flushing:
                self.end_segment(_EXPOSED)

    def crosses(self, roots: list[GradNode], wanted: set[GradNode]) -> bool:
        """Whether a backward pass leaves what was recorded, or runs hooks."""
        if self._flushing:
            return False
        if goes_on(roots, wanted) or (not self.whole and _has_hooks(roots)):
            return True
        self.note_pass(roots, wanted)
        return False


_EXPOSED = "a write to memory that NumPy sees"
_VIEW = "a view of a tensor that was written to with a history"


def _has_hooks(roots: list[GradNode]) -> bool:
    """Whether a backward pass from `roots` runs hooks."""
    for node in reachable(roots):
        if node.tensor_hooks or node.pre_hooks or node.post_hooks or node.retained:
            return True
        if isinstance(node, AccumulateGrad):
            variable = node.variable
            if variable._graphc_hooks or variable._graphc_post_hooks:
                return True
    return False
