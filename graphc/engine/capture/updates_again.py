"""An update of a parameter, recorded again for parameters like it.

What an optimizer's update comes to follows from the types of a parameter, its gradient and its
states, and from options, which are the same in a group (`PerParameter._graphc_update` says so).
So the first update of a kind is watched: the states it asks for, the operators it applies, what it
writes. For later parameters these are done again on their values, node by node, without the Python
that found them: the same nodes come in the same order. Where an update is a loop over elements
(`_graphc_counts`), parameters of another shape are like it, too.

Whatever is not as it was, memory that overlaps say, is for the update itself.
"""

from __future__ import annotations

from typing import Any

from ...frontend.context import local
from ...frontend.storage import strides_of
from ...frontend.tensor import Parameter, Tensor
from ...frontend.values import Eager
from ...ir.graph import Node, attrs_key
from ...ir.named import NamedTuple

_TENSORS = (Tensor, Parameter)
_SAME = "the parameter's"  # shape


class _Applied(NamedTuple):
    """An operator: its node, and where its operands come from: a value's number (~i: what the
    tensor number i has at first), or a tensor that is the same in every update."""

    node: Node
    attrs: Any
    sources: tuple[Any, ...]


class _Written(NamedTuple):
    """A write to a tensor, by its number."""

    tensor: int
    source: Any


class Watched:
    """An update that is recorded: where a trace tells of operators and writes, and where states
    tell what they are asked."""

    def __init__(self, trace: Any, param: Tensor, grad: Tensor) -> None:
        self.trace = trace
        self.tensors = [param, grad]  # and of its states, in the order of the questions
        self.kinds = [_kind(trace, t, param) for t in self.tensors]
        self.asked: list[tuple[Any, ...]] = []
        self.steps: list[_Applied | _Written] = []
        self.fails = False
        self.loops = True  # over elements: nothing hangs on the sizes
        self._flushes, self._inputs = trace.flushes, len(trace.inputs)
        self._values = 0  # applied so far
        self._now: dict[int, Any] = {}  # by id of a storage: the source of its present value
        self._homes: dict[int, int] = {}  # by id of a storage: the tensor's number
        self._storages: list[Any] = []  # keeps their ids taken

    def tensor(self, value: Any) -> int:
        """The number of a state's tensor."""
        for number, known in enumerate(self.tensors):
            if known is value:
                return number
        self.tensors.append(value)
        self.kinds.append(_kind(self.trace, value, self.tensors[0]))
        return len(self.tensors) - 1

    def gave(self, op: Any, inputs: tuple[Tensor, ...], found: Any) -> None:
        """An operator was applied."""
        if self._is_over():
            return
        if type(found) is tuple or op.view or op.impure or found._graphc_trace is not self.trace:
            self.fails = True
            return
        node = found._graphc_traced.value
        sources = tuple([self._source(t) for t in inputs])
        # a shape, say; that of a number is one for all sizes
        if node.graphs or any(type(v) is tuple and v for v in node.attrs.values()):
            self.loops = False
        self.fails |= bool(node.graphs)
        self.steps.append(_Applied(node, attrs_key(node.attrs), sources))
        storage = found._graphc_storage
        self._storages.append(storage)
        self._now[id(storage)] = self._values
        self._values += 1

    def wrote(self, target: Tensor, value: Tensor) -> None:
        """A tensor was written to."""
        if self._is_over():
            return
        source = self._source(value)
        self._source(target)
        state = self._state(target)
        home = self._homes.get(id(state._graphc_storage))
        if not state._graphc_traced.tracked or id(state._graphc_storage) not in self._now:
            self.fails = True
        if home is not None:
            self.steps.append(_Written(home, source))
        self._now[id(state._graphc_storage)] = source

    def _is_over(self) -> bool:
        self.fails |= self.trace.flushes != self._flushes
        return self.fails

    def _state(self, tensor: Tensor) -> Tensor:
        if tensor._graphc_trace is self.trace:
            return tensor
        found: Tensor = self.trace.shadows[id(tensor)][1]
        return found

    def _source(self, tensor: Tensor) -> Any:
        state = self._state(tensor)
        storage: Any = state._graphc_storage
        if state._graphc_traced.path or storage.parent is not None:
            self.fails = True
        concrete = state._graphc_concrete
        for number, known in enumerate(self.tensors):
            if known is tensor or (known is concrete and concrete is not None):
                home = self._homes.setdefault(id(storage), number)
                self.fails |= home != number  # two of them are one memory
                if id(storage) not in self._now:
                    self._storages.append(storage)
                    self._now[id(storage)] = ~number
                break
        if id(storage) in self._now:
            return self._now[id(storage)]
        if len(state._graphc_traced.type.shape) > 1:
            self.loops = False
        return state

    def again(self, loop: bool) -> Again | None:
        """How to do it again; None: it cannot be. `loop`: an update is a loop over elements."""
        if self._is_over() or None in self.kinds:
            return None
        loops = loop and self.loops and all(
            kind[0][2] in ((), _SAME) for kind in self.kinds if kind is not None
        )
        met = []
        for source in self.trace.inputs[self._inputs:]:
            for number, tensor in enumerate(self.tensors):
                shadow = self.trace.shadows.get(id(tensor))
                if shadow is not None and shadow[1]._graphc_storage.source is source:
                    met.append(number)
        return Again(self, loops, met)


def _kind(trace: Any, tensor: Any, param: Tensor) -> Any:
    """What an update may depend on of a tensor, but for sizes, and with them; None: not known."""
    if type(tensor) not in _TENSORS:
        return None
    state = tensor
    if tensor._graphc_trace is None:
        known = trace.shadows.get(id(tensor))
        state = None if known is None else known[1]
    elif tensor._graphc_trace is not trace or tensor is param:
        return None
    if state is None:
        array = tensor._graphc_array
        dtype, shape, strides = array.dtype, array.shape, strides_of(array)
        rows = array.flags.c_contiguous
    else:
        traced = state._graphc_traced
        if traced.path or state._graphc_storage.parent is not None:
            return None
        dtype, shape, strides = traced.type.dtype, traced.type.shape, traced.strides
        rows = traced.is_contiguous()
    like = tensor if tensor is param else param
    sizes = like._graphc_array.shape
    if not all(type(n) is int and n for n in shape):
        return None
    where = type(tensor), tensor._graphc_trace is None, state is None
    size = () if shape == () else _SAME if shape == sizes else shape
    return (where, dtype, size, rows), (shape, strides)


class Again:
    """An update that was watched."""

    def __init__(self, watched: Watched, loops: bool, met: list[int]) -> None:
        """`loops`: of any sizes; `met`: the tensors that were new to the trace, in order."""
        self.loops, self._met = loops, met
        self._asked, self._kinds, self._steps = watched.asked, watched.kinds, watched.steps
        self._written = sorted({step.tensor for step in self._steps if isinstance(step, _Written)})
        used = set(self._written)
        for step in self._steps:
            sources = (step.source,) if isinstance(step, _Written) else step.sources
            used |= {~source for source in sources if type(source) is int and source < 0}
        self._used = sorted(used)

    def like(self, kind: Any, number: int) -> bool:
        """Whether a tensor may stand for the one of this number."""
        known = self._kinds[number]
        return bool(kind is not None and kind[0] == known[0] and (
            kind[1] == known[1] or (self.loops and kind[0][3])
        ))

    def run(self, states: Any, optimizer: Any, param: Tensor, grad: Tensor) -> bool:
        """Do it again for another parameter. False: nothing was recorded."""
        trace = states.trace
        tensors = self._tensors(states, optimizer, param, grad)
        if tensors is None or (trace.snapshots and any(map(trace.is_stale, tensors))):
            return False
        for number in self._met:
            trace.shadow(tensors[number])
        found: dict[int, Tensor] = {
            i: tensors[i] if tensors[i]._graphc_trace is trace else trace.shadow(tensors[i])
            for i in self._used
        }
        for number in self._written:
            trace.memory.settle(found[number]._graphc_storage)
        homes = {id(shadow._graphc_storage) for shadow in found.values()}
        if len(homes) < len(found) or not all(map(_is_plain, found.values())):
            return False
        self._record(trace, found)
        return True

    def _tensors(
        self, states: Any, optimizer: Any, param: Tensor, grad: Tensor
    ) -> list[Tensor] | None:
        """The parameter, its gradient and the tensors of its states; None: not alike."""
        tensors, asked = [param, grad], []
        for question, what, key, answer in self._asked:
            if question == "new":
                asked.append(states.new(optimizer, param, what, key))
                continue
            if question == "has":
                if states.has(optimizer, param, what) is not answer:
                    return None
                continue
            if question == "in":
                if (key in asked[what]) is not answer:
                    return None
                continue
            value = asked[what][key]
            if answer < len(tensors):
                if value is not tensors[answer]:
                    return None
            elif any(value is known for known in tensors) or not self.like(
                _kind(states.trace, value, param), answer
            ):
                return None
            else:
                tensors.append(value)
        return tensors

    def _record(self, trace: Any, found: dict[int, Tensor]) -> None:
        builder = trace.builder
        builder.loc = trace.here()
        values: list[Node] = []
        first = {i: trace.read(shadow) for i, shadow in found.items()}

        def node_of(source: Any) -> Node:
            if type(source) is not int:
                node: Node = trace.read(source)
                return node
            return values[source] if source >= 0 else first[~source]

        for step in self._steps:
            if isinstance(step, _Written):
                trace.write(found[step.tensor], node_of(step.source))
                continue
            inputs = tuple([node_of(source) for source in step.sources])
            node = builder.like(step.node, inputs, step.attrs)
            values.append(node)
            if trace.noted is not None:
                trace.noted.append(node)


def _is_plain(shadow: Tensor) -> bool:
    """Whether a traced tensor is all of a memory of its own, which may be written to."""
    storage: Any = shadow._graphc_storage
    traced = shadow._graphc_traced
    return not (
        traced.path or storage.parent is not None or storage.inference or not traced.tracked
    )


class Updates:
    """The updates of a group's parameters."""

    def __init__(self, states: Any, optimizer: Any, options: Any) -> None:
        self._states, self._optimizer, self._options = states, optimizer, options
        self._known: list[Again] = []

    def record(self, param: Tensor, grad: Tensor) -> None:
        """One of them."""
        trace, states = self._states.trace, self._states
        if local.grad or not trace.whole or Eager.elsewhere is not None or (
            param._graphc_trace is not None  # made by the function itself
        ):
            self._optimizer._graphc_update(self._options, param, grad)
            return
        kinds = _kind(trace, param, param), _kind(trace, grad, param)
        for known in self._known:
            if known.like(kinds[0], 0) and known.like(kinds[1], 1) and known.run(
                states, self._optimizer, param, grad
            ):
                return
        watched = trace.watch = states.watch = Watched(trace, param, grad)
        try:
            self._optimizer._graphc_update(self._options, param, grad)
        finally:
            trace.watch = states.watch = None
        again = watched.again(self._optimizer._graphc_counts is not None)
        if again is not None:
            self._known.append(again)
