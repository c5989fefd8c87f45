"""Memory planning: a fused graph -> a Program of kernel launches over planned buffers.

Every value gets a place: an output's own buffer, the input that it is written back to, or the
arena. A value is computed straight into an input where that is safe: the kernel reads the old
value only at the element it writes, every other reader of the input runs before, and no check
can fail afterwards. Otherwise it goes to the arena and is copied at the very end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from ...dim import Dim, product, substitute, unwrap
from ...graph import Graph, Node
from ...kernel import Kernel, Launch, Program, ProgramStep, Routine
from ...machine import Machine
from ...types import TensorType, TupleType
from ..lower import Lowered
from ..lower.copy import copy_kernel
from .arena import assign_offsets
from .control import plan_control
from .in_place import merged, safe_in_place
from .over_rows import read_once
from .parts import start_of_part
from .pitch import pad_rows
from .rematerialise import Room, rematerialise
from .schedule import schedule
from .step import HARMLESS, Step, Storage, has_check


def plan(
    fused: Graph, kernels: Mapping[Node, Lowered], machine: Machine, *,
    mutated: Mapping[int, int] | None = None, claimed: Callable[[Node], bool] = lambda node: False,
    room: int | None = None, work: Callable[[Launch], int] = lambda launch: 1,
) -> Program:
    """The program of a fused graph and the kernels of its fusion nodes. `mutated` maps an output's
    index to that of the input whose buffer it is written back to; `claimed` says which of the
    other nodes the backend runs, and not the host. `room`: bytes that the arena should not exceed,
    for which kernels may run again; `work` says what that costs."""
    planner = Planner(fused, kernels, machine, dict(mutated or {}), claimed)
    return planner.program(None if room is None else Room(room, _work_of(work)))


def _work_of(work: Callable[[Launch], int]) -> Callable[[Step], int]:
    known: dict[int, int] = {}

    def of_step(step: Step) -> int:
        lowered = step.lowered
        assert lowered is not None
        found = known.get(id(lowered))  # steps that run again have it, too
        if found is None:
            found = known[id(lowered)] = work(_launch(step, lowered))
        return found

    return of_step


# what is another name of a value: of complex numbers the parts lie side by side
_SAME_BYTES = ("reshape", "view_as_real", "view_as_complex")


class Planner:
    """Plans one graph; a body of control flow is planned by a Planner of its own."""

    def __init__(
        self, graph: Graph, kernels: Mapping[Node, Lowered], machine: Machine,
        mutated: dict[int, int], claimed: Callable[[Node], bool],
    ) -> None:
        self.claimed = claimed
        self.graph = graph
        self.kernels = kernels
        self.machine = machine
        self.mutated = mutated
        self.steps: list[Step] = []
        self.constants: list[Any] = []
        self.storage: dict[Node, Storage] = {}
        self.results: dict[Node, list[Storage]] = {}
        self.inputs: list[Storage] = []
        self.in_place: dict[int, int] = {}
        self.leaving = {_made(node) for node in graph.outputs}
        self._known_safe: dict[tuple[int, int, int], tuple[Kernel, bool]] = {}
        for node in graph.nodes:
            self._add(node)
        self._before_checks = self._ancestors_of_checks()
        self._outputs()

    # --- steps ----------------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        name = node.op.name
        if name == "input":
            self._leaf(node, "input", node.attrs["index"])
        elif name == "const":
            self._leaf(node, "const", len(self.constants))
            self.constants.append(node.attrs["value"].array)
        elif name == "get":
            self.storage[node] = self.results[node.inputs[0]][node.attrs["index"]]
        elif name in _SAME_BYTES:
            self.storage[node] = self.storage[node.inputs[0]]
        else:
            self._step(node)

    def _leaf(self, node: Node, space: str, index: int) -> None:
        self.storage[node] = storage = Storage.of(node.tensor_type)
        storage.space, storage.index = space, index
        if space == "input":
            self.inputs.append(self.storage[node])

    def _step(self, node: Node) -> None:
        reads = [self.storage[x] for x in node.inputs]
        if node.op.family == "control":
            self._control(node, reads)
            return
        start = start_of_part(node)
        if start is not None and self._keeps(reads[0]):
            type_ = node.tensor_type
            self.storage[node] = reads[0].part(type_.dtype, unwrap(type_.elements), start)
            self.results[node] = [self.storage[node]]
            return
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        writes = [Storage.of(t) for t in types]
        self.results[node] = writes
        self.storage[node] = writes[0]
        step = Step(node, reads, writes)
        if node.op.name == "fusion":
            step.lowered = self.kernels.get(node)  # None: computes nothing, and is not launched
            if step.lowered is not None:
                step.can_fail = has_check(step.lowered.kernel)
                step.scratch = self._scratch(step.lowered)
        else:
            step.can_fail = node.op.family not in HARMLESS
        self._insert(step)

    def _keeps(self, storage: Storage) -> bool:
        """Whether nothing is written over a value once it is there."""
        block = storage.block
        return block.space != "input" or block.index not in self.mutated.values()

    def _control(self, node: Node, reads: list[Storage]) -> None:
        control = plan_control(node, reads, self)
        self.results[node] = control.results
        self.storage[node] = control.results[0]
        step = Step(node, reads, control.writes, control.scratch, inside=control.steps)
        step.can_fail = control.can_fail
        self._insert(step)

    def inner(self, graph: Graph) -> tuple[Planner, Program]:
        """A body's planner, and its program."""
        planner = Planner(graph, self.kernels, self.machine, {}, self.claimed)
        return planner, planner.program()

    def read_once(self, value: Node) -> bool:
        """See control.Planner."""
        writer = self.storage[value].writer
        # what a loop hands on as it is lies where somebody else may read it
        own = writer is not None and writer.node is _made(value)[0]
        return own and read_once(value, self._users, self.graph.outputs)

    @functools.cached_property
    def _users(self) -> Mapping[Node, Sequence[Node]]:
        return self.graph.users()

    def _insert(self, step: Step) -> None:
        self.steps.append(step)
        for storage in dict.fromkeys(step.reads):
            storage.readers.append(step)
        for storage in step.writes:
            if storage.writer is None:
                storage.writer = step

    def _scratch(self, lowered: Lowered) -> list[Storage]:
        env = dict(zip(lowered.kernel.dims, lowered.dims, strict=True))
        return [
            Storage(p.dtype, substitute(p.size, env))
            for p in lowered.kernel.params if p.access == "scratch"
        ]

    # --- outputs --------------------------------------------------------------------------------

    def _outputs(self) -> None:
        # inputs that are written back to: copies out of them must come before
        final: list[tuple[Storage, Storage]] = []
        for i, node in enumerate(self.graph.outputs):
            source = self.storage[node]
            target = self.mutated.get(i)
            if target is None:
                if not self._bind_output(source, i):
                    self._copy(source, self._output(i, source))
                continue
            self.in_place[i] = target
            destination = self.inputs[target]
            if source is destination or self._write_in_place(source, destination):
                continue
            if source.space == "input" and source.index in set(self.mutated.values()):
                saved = Storage(source.dtype, source.elements)
                self._copy(source, saved)
                source = saved
            final.append((source, destination))
        self._order_readers()
        for source, destination in final:
            self._copy(source, destination, last=True)

    def _output(self, i: int, like: Storage) -> Storage:
        return Storage(like.dtype, like.elements, "output", i)

    def _bind_output(self, source: Storage, i: int) -> bool:
        """Let a value live in an output's buffer; False where it already has another place."""
        if source.space != "arena" or source.writer is None or source.whole is not None:
            return False
        source.space, source.index = "output", i
        return True

    def _write_in_place(self, source: Storage, destination: Storage) -> bool:
        """Let a value be computed straight into an input's buffer, if that is safe."""
        writer = source.writer
        if (
            source.space != "arena" or writer is None or writer.lowered is None or writer.can_fail
            or writer in self._before_checks or source.whole is not None
            or source.dtype is not destination.dtype
            or source.elements != destination.elements
        ):
            return False
        mine = [r for r, storage in enumerate(writer.reads) if storage is destination]
        result = writer.writes.index(source)
        if len(mine) > 1:
            return False
        if mine and not self._safe(writer.lowered.kernel, mine[0], result):
            return False
        others = [r for r in destination.readers if r is not writer]
        if self._reaches(writer, set(others)):
            return False
        source.space, source.index = "input", destination.index
        writer.visible = True
        writer.after.update(others)
        for reader in others:
            reader_after = self._followers.setdefault(reader, [])
            reader_after.append(writer)
        if mine:
            writer.pairs.append((mine[0], result))
        return True

    def _safe(self, kernel: Kernel, read: int, result: int) -> bool:
        """Whether a kernel may write a result over what it reads: asked once of those that are
        launched often, as an optimizer's."""
        key = id(kernel), read, result
        found = self._known_safe.get(key)
        if found is None:  # with the kernel: nothing else then has its number
            safe = safe_in_place(kernel, f"a{read}", f"o{result}")
            found = self._known_safe[key] = kernel, safe
        return found[1]

    _followers: dict[Step, list[Step]]

    def _reaches(self, start: Step, targets: set[Step]) -> bool:
        """Whether any of `targets` runs after `start`, by data or by order."""
        if not targets:
            return False
        seen: set[Step] = set()
        stack = [start]
        while stack:
            step = stack.pop()
            for follower in self._after(step):
                if follower in targets:
                    return True
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        return False

    def _after(self, step: Step) -> list[Step]:
        found = list(self._followers.get(step, ()))
        for storage in step.writes:
            found += storage.readers
        return found

    def _order_readers(self) -> None:
        """Copies out of an input that were added late also come before its writer."""
        for step in self.steps:
            for storage in step.writes:
                if storage.space == "input":
                    destination = self.inputs[storage.index]
                    step.after.update(r for r in destination.readers if r is not step)

    def _copy(self, source: Storage, destination: Storage, last: bool = False) -> None:
        if source.elements == 0:
            return
        kernel = copy_kernel(source.dtype, self.machine.copy_block)
        step = Step(None, [source], [destination], lowered=Lowered(kernel, (source.elements,)))
        step.visible = step.last = last
        if last:
            # a writer of the input itself keeps its readers in order
            source.readers.append(step)
            self.steps.append(step)
        else:
            self._insert(step)

    def _ancestors_of_checks(self) -> set[Step]:
        """Steps that some step that can fail depends on."""
        self._followers = {}
        found: set[Step] = set()
        stack = [s for s in self.steps if s.can_fail]
        while stack:
            for storage in stack.pop().reads:
                if storage.writer is not None and storage.writer not in found:
                    found.add(storage.writer)
                    stack.append(storage.writer)
        return found

    # --- the program ----------------------------------------------------------------------------

    def program(self, room: Room | None = None) -> Program:
        live = [s for s in self.steps if any(w.elements != 0 for w in s.writes)]
        pad_rows(live, self.machine)
        order = schedule(live, self.graph.env)
        once = len(order)
        if room is not None:
            order = rematerialise(order, room, self.machine)
        size = assign_offsets(order, self.machine)
        steps = [self._emit(step) for step in order]
        first = next((i for i, s in enumerate(order) if s.visible), len(order))
        first = sum(map(len, steps[:first]))
        types = tuple(n.tensor_type for n in self.graph.inputs)
        return Program(
            self.graph.name, _named(types), types,
            tuple(n.tensor_type for n in self.graph.outputs), tuple(self.constants),
            tuple(chain.from_iterable(steps)), size, self.in_place, first, len(order) - once,
        )

    def _emit(self, step: Step) -> tuple[ProgramStep, ...]:
        if step.inside is not None:
            return step.inside()
        if step.lowered is not None:
            return (_launch(step, step.lowered),)
        assert step.node is not None
        return (_routine(step, step.node, self.claimed(step.node)),)


def _made(node: Node) -> tuple[Node, int]:
    """The node that computes a value, and which of its results it is."""
    while node.op.name in _SAME_BYTES:
        (node,) = node.inputs
    return (node.inputs[0], node.attrs["index"]) if node.op.name == "get" else (node, 0)


def _named(types: tuple[TensorType, ...]) -> tuple[str, ...]:
    names: set[str] = set()
    for type_ in types:
        for size in type_.shape:
            if isinstance(size, Dim):
                names |= size.variables()
    return tuple(sorted(names))


def _launch(step: Step, lowered: Lowered) -> Launch:
    kernel = lowered.kernel
    skipped = {read for read, _ in step.pairs}
    if step.pairs:
        kernel = merged(kernel, tuple((f"a{r}", f"o{w}") for r, w in step.pairs))
    refs = [s.ref() for i, s in enumerate(step.reads) if i not in skipped]
    refs += [s.ref() for s in (*step.writes, *step.scratch)]
    ops, locs = (("copy",), _copied(step.reads[0])) if step.node is None else (
        _provenance(step.node)
    )
    return Launch(kernel, tuple(refs), lowered.dims, ops, locs)


def _copied(source: Storage) -> tuple[str, ...]:
    """Where a value was made that is copied."""
    node = source.writer.node if source.writer is not None else None
    if node is None or node.op.name == "fusion":
        return () if node is None else _provenance(node)[1][:1]
    return () if node.loc is None else (node.place,)


def _provenance(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inside = [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]
    locs = dict.fromkeys(n.place for n in inside if n.loc is not None)
    return tuple(n.op.name for n in inside), tuple(locs)


def _routine(step: Step, node: Node, claimed: bool) -> Routine:
    attrs = tuple(node.attrs.items())
    results = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return Routine(
        node.op.name, attrs, tuple(s.ref() for s in step.reads),
        tuple(x.tensor_type for x in node.inputs), tuple(s.ref() for s in step.writes),
        tuple(results), () if node.loc is None else (node.place,), claimed,
    )
