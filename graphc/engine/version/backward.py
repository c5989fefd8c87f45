"""compile(model) in an ordinary loop: a compiled forward whose backward() is compiled too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.captured import Output, TensorInput, TracedGraph
from ...frontend.context import local
from ...frontend.errors import located
from ...frontend.held import Place
from ...frontend.history import edge, requires_grad
from ...frontend.nodes import Edge, zeros
from ...frontend.recorded_tape import Layout, RecordedTape
from ...frontend.tensor import Tensor
from ...ir.graph import Graph
from ...ir.memory import DeviceArray
from ...ir.types import TensorType
from ..built import concrete_shape
from .call import Call
from .parts import Parts
from .replay import replay, replay_of
from .results import Version
from .saved import SavingNode, Stamp
from .sources import owner_of, tensor_of
from .spent import Spending

if TYPE_CHECKING:
    from ...ir.passes.partition import Split
    from .plain_history import PlainHistory

_LAYOUTS = 8  # sizes for which a tape's layout is kept


class CompiledBackwardPlan:
    """What a compiled forward's tape node needs to know; made once per version."""

    def __init__(
        self, traced: TracedGraph, split: Split, parts: Parts, joint: tuple[Graph, int, int],
        drawn: Callable[[Graph], Graph],
    ) -> None:
        """`drawn`: makes of a graph what may be run by itself."""
        backward = traced.backward
        assert backward is not None
        self.outputs: list[Output] = backward.outputs
        # (argument number or -1, tensor; see let_go()), and the number of its gradient
        arguments = traced.given()
        pairs = [
            (arguments.get(id(t), -1), t)
            for t, g in zip(backward.tensors, backward.gradients, strict=True) if g is not None
        ]
        self.sources: list[tuple[int, Any]] = pairs
        self.gradients = [g for g in backward.gradients if g is not None]
        self.all_gradients = (True,) * len(self.gradients)
        self.split = split
        self.saved: Sequence[tuple[str, int]] = split.saved
        self.parts = parts
        self.inner = backward.inner
        self.labels = backward.labels
        self.tape = backward.tape
        # which of the gradients is that of each entry of the tape
        numbers = {id(t): i for i, (_, t) in enumerate(pairs)}
        self.entries = [numbers.get(id(t)) for t in backward.tensors]
        graph, inputs, outputs = joint
        self.forward = Graph(graph.name, graph.inputs[:inputs], graph.outputs[:outputs], graph.env)
        self.drawn = drawn
        self._layouts: dict[Any, tuple[Layout, Graph]] = {}
        self._spends_all: dict[Any, int | None] = {}
        # by sizes: outputs of which no pass was found to read what is in their memory
        self._unread: dict[Any, set[int]] = {}
        self.memory = {  # inputs that may be written to
            number for number, source in enumerate(traced.inputs) if isinstance(source, TensorInput)
        }
        self.replay = replay_of(drawn(graph), inputs, outputs, traced.inputs, pairs)
        self.types: tuple[TensorType, ...] = tuple(
            o.type for o in backward.outputs if o.type is not None
        )

        self.sized = any(not isinstance(size, int) for t in self.types for size in t.shape)
        self._lying: list[tuple[int, TensorInput]] | None = None
        # the forward's inputs that some backward reads
        self.read = {i for kind, i in self.saved if kind == "input"} | self.replay.read

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        """As TracedGraph.let_go()."""
        self.sources = [(index, kept(tensor, index)) for index, tensor in self.sources]

    def history(
        self, version: Version, call: Call, before: dict[int, np.ndarray]
    ) -> History:
        """Of the results of a call. `before`: copies of what it overwrites and a backward reads."""
        inputs = call.arrays
        if before:
            inputs = [before.get(i, array) for i, array in enumerate(inputs)]
        arguments = call.arguments
        stamps: dict[int, Stamp] = {}
        for i, source in self._read_again(version):
            storage = tensor_of(source, arguments)._graphc_storage
            stamps[i] = storage, storage.version
        return History(self, arguments, inputs, stamps, call.results, call.dims)

    def _read_again(self, version: Version) -> list[tuple[int, TensorInput]]:
        """The inputs that a backward reads where they lie, as the call has not written to them."""
        if self._lying is None:
            written = version.forwarded.union(version.engine.mutated.values())
            self._lying = [
                (i, source) for i in sorted(self.read - written)
                if type(source := version.inputs[i]) is TensorInput
            ]
        return self._lying

    def layout(self, tape: RecordedTape, dims: dict[str, int]) -> tuple[Layout, Graph]:
        """How the tape is laid out at these sizes, and what computes the values for it."""
        key = tuple(dims.items())
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            layout = Layout(tape, self.forward, dims)
            found = self._layouts[key] = layout, self.drawn(layout.graph)
        return found

    def unread(self, dims: dict[str, int]) -> set[int]:
        """Outputs that writes to need not be told of."""
        return self._unread.setdefault(tuple(dims.items()), set())

    def spends_all(self, ran: tuple[tuple[bool, ...], tuple[bool, ...]]) -> int | None:
        """What a first pass with these cotangents and gradients uses up (-1: that is not known),
        where nothing that was saved is read any more; else None."""
        if ran not in self._spends_all:
            known, spent = self.spending, -1
            if known is not None:
                spent = known.runs(*ran)
            left = known is not None and known.kept(spent)
            self._spends_all[ran] = None if left else spent
        return self._spends_all[ran]

    @cached_property
    def spending(self) -> Spending | None:
        """What passes use up; None where there is no tape to ask."""
        if self.tape is None:
            return None
        return Spending(self.tape, self.entries, self.parts, self.forward.env)


class History:
    """The tape node of one call, attached to its results."""

    def __init__(
        self, plan: CompiledBackwardPlan, arguments: list[Any], inputs: list[np.ndarray],
        stamps: dict[int, Stamp], results: list[np.ndarray], dims: dict[str, int],
    ) -> None:
        """`stamps`: of the inputs that are read later where they lie."""
        edges = []
        for index, source in plan.sources:
            tensor = owner_of(source, index, arguments)
            edges.append(edge(tensor) if requires_grad(tensor) else None)
        saved = [inputs[i] if kind == "input" else results[i] for kind, i in plan.saved]
        types = plan.types
        if plan.sized:
            types = tuple([TensorType(t.dtype, concrete_shape(t, dims)) for t in types])
        self.node = CompiledBackward(plan, tuple(edges), types, saved, {
            place: stamps[i] for place, (kind, i) in enumerate(plan.saved)
            if kind == "input" and i in stamps
        }, dims)
        self.node.inputs = inputs
        read = plan.replay.read
        self.node.input_stamps = {i: stamp for i, stamp in stamps.items() if i in read}
        self.node.noted()
        self.plan = plan

    def attach(self, builder: Any) -> None:
        """Make the results' grad_fn this call's node."""
        for number, output in enumerate(self.plan.outputs):
            tensor: Tensor = builder.tensor(output)
            tensor._graphc_node, tensor._graphc_output = self.node, number

    def watch(self, builder: Any) -> None:
        """What the user holds may be written to before backward()."""
        unread = self.plan.unread(builder.call.dims)
        held = {
            o.index: (
                t._graphc_storage,
                t._graphc_storage.root.array if o.kind == "view" else t._graphc_array,
            )
            for o, t in builder.handed_out()
            if o.index >= 0 and o.index not in unread
        }
        for i in builder.version.engine.mutated:
            if i in unread:
                continue
            tensor = builder.written(i)
            held[i] = tensor._graphc_storage, builder.call.results[i]
        self.node.watch(held)


class CompiledBackward(SavingNode):
    """The backward of a compiled forward: one native call."""

    straight = True
    # of a plain call: what is the same for all, stamps of what is read again, and (storage,
    # version, array) of each result; what _LATER names is made of it
    facts: tuple[PlainHistory, list[Stamp], list[Any]] | None = None
    plan: CompiledBackwardPlan

    def __init__(
        self, plan: CompiledBackwardPlan, edges: Any, types: Any, saved: list[np.ndarray],
        stamps: dict[int, tuple[Any, int]], dims: dict[str, int],
    ) -> None:
        super().__init__(edges, types)
        self.plan = plan
        self.saved = saved
        self.stamps = stamps
        self.dims = dims

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER or self.facts is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        history, noted, handed = self.facts
        if name == "edges":
            self.edges = history.edges(())
        else:
            self.stamps, self.input_stamps, self.outputs = history.stamps(noted, handed)
        return self.__dict__[name]

    @property
    def places(self) -> Sequence[Place]:  # type: ignore[override]
        return self.plan.saved

    @property
    def inner(self) -> frozenset[int]:  # type: ignore[override]
        return self.plan.inner

    @property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.plan.labels

    def storages(self) -> Iterable[Any]:
        if self.facts is None or "stamps" in self.__dict__:
            return super().storages()
        _, noted, handed = self.facts
        return [stamp[0] for stamp in (*noted, *handed)]

    def lies_in(self, root: Any) -> bool:
        if self.facts is None or "stamps" in self.__dict__:
            return super().lies_in(root)
        _, noted, handed = self.facts
        for stamps in (noted, handed):
            for stamp in stamps:
                if stamp[0].root is root:
                    return True
        return False

    def forget(self) -> None:
        if self.facts is not None and "edges" not in self.__dict__:
            self.edges = self.facts[0].edges(())
        super().forget()
        self.facts = None

    def release(self) -> None:
        if self.stands_for is None and self.spent is None:
            spent = self.plan.spends_all(self._ran)
            if spent is not None:
                self.spent = spent if spent >= 0 else None
                return self.forget()
        super().release()

    def layout(self) -> tuple[Layout, Graph] | None:
        plan = self.plan
        return None if plan.tape is None else plan.layout(plan.tape, self.dims)

    def unread(self, number: int) -> None:
        self.plan.unread(self.dims).add(number)

    def read_directly(self, place: int) -> bool:
        laid = self.layout()
        return laid is None or self.places[place] in laid[0].places

    def recomputable(self, layout: Layout) -> bool:
        needed = layout.behind | {i for kind, i in layout.places if kind == "input"}
        return self.plan.replay.read.issuperset(self.plan.memory.intersection(needed))

    def spending(self, whole: bool) -> Spending | None:
        return self.plan.spending

    def entries(self) -> list[Edge | None]:
        return [None if i is None else self.edges[i] for i in self.plan.entries]

    def modified(self, number: int) -> str:
        return _MODIFIED

    def run(self, grads: list[Any], needs: Sequence[bool], world: Any) -> Sequence[Any]:
        plan = self.plan
        given = tuple([g is not None for g in grads])
        by_tape = False
        for g in grads:
            if g is not None and not isinstance(g, (np.ndarray, DeviceArray)):
                by_tape = True
        self.begin(given, needs, by_tape)
        if by_tape:
            _check_unchanged([*self.stamps.values(), *self.input_stamps.values()])
            return self._by_tape(grads, needs, world)
        found: list[Any] = [None] * len(needs)
        # where some is spent, only what is asked for may be read
        asked = plan.all_gradients if self.spent is None else tuple(needs)
        part = plan.parts.part(given, asked)
        if part.engines is None:
            return found
        if self._may_have_changed():
            _check_unchanged([self.stamps[i] for i in part.saved if i in self.stamps])
        results = part.call(self.saved or (), grads, self.dims)
        for i, value in zip(part.results, results, strict=True):
            if needs[i]:
                found[i] = value
        return found

    def _may_have_changed(self) -> bool:
        """Whether any memory was written to that was noted: without asking what is read of it."""
        if self.facts is None or "stamps" in self.__dict__:
            return True
        _, noted, handed = self.facts
        for storage, version in noted:
            if storage.version != version:
                return True
        return any(kept[0].version != kept[1] for kept in handed)

    def _by_tape(self, grads: list[Any], needs: Sequence[bool], world: Any) -> list[Any]:
        """The gradients with a history of their own, or inside vmap."""
        if local.grad and self.plan.tape is None:  # what was detached is known to the tape alone
            raise RuntimeError(located(
                "create_graph=True through a compiled function in which hooks of its own run on "
                "saved tensors, or on gradients with tensors of that call. Cure: make the hooks "
                "of what is there before, or call the function uncompiled"
            ))
        like = world.to_expr(next(g for g in grads if g is not None))
        given = [
            world.to_tensor(world.from_expr(zeros(like, t)) if g is None else g)
            for g, t in zip(grads, self.out_types, strict=True)
        ]
        found = replay(self.plan.replay, self.inputs, given, self.edges, self.dims, local.grad)
        return [
            world.from_tensor(t) if need else None for t, need in zip(found, needs, strict=True)
        ]


def _check_unchanged(stamps: Iterable[tuple[Any, int]]) -> None:
    """Raise RuntimeError if a storage was written to since."""
    for storage, version in stamps:
        if storage.version != version:
            raise RuntimeError(located(_MODIFIED))


_LATER = frozenset({"edges", "stamps", "input_stamps", "outputs"})

_MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation after the compiled forward that reads it. Hint: call backward() before the "
    "in-place operation, or clone() the tensor."
)
