"""Memory planning: a fused graph -> a Program of kernel launches over planned buffers.

Every value gets a place: an output's own buffer, the input that it is written back to, or the
arena. A value is computed straight into an input where that is safe: the kernel reads the old
value only at the element it writes, every other reader of the input runs before, and no check
can fail afterwards. Otherwise it goes to the arena and is copied at the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...dim import Dim, Size, product, substitute, unwrap
from ...dtypes import DType
from ...graph import Graph, Node
from ...kernel import BufferRef, Check, Kernel, Launch, Program, Routine, walk
from ...machine import Machine
from ...types import TensorType, TupleType
from ..lower import Lowered
from ..lower.copy import copy_kernel
from .arena import assign_offsets
from .in_place import merged, safe_in_place
from .schedule import schedule

_HARMLESS = frozenset({"random", "sort"})  # routines that cannot fail


@dataclass(eq=False)
class Storage:
    """One buffer: an input, a constant, or the result of a step."""

    dtype: DType
    elements: Size
    space: str = "arena"  # "input" | "output" | "const" | "arena"
    index: int = 0
    writer: Step | None = None
    readers: list[Step] = field(default_factory=list)
    offset: Size = 0

    @property
    def size(self) -> Size:
        """Bytes."""
        return unwrap(self.elements * self.dtype.itemsize)

    def ref(self) -> BufferRef:
        return BufferRef(self.space, self.index, self.offset)


@dataclass(eq=False)
class Step:
    """A launch, routine or copy in the making."""

    node: Node | None  # None: a copy
    reads: list[Storage]
    writes: list[Storage]
    scratch: list[Storage] = field(default_factory=list)
    lowered: Lowered | None = None
    can_fail: bool = False
    visible: bool = False  # writes a buffer that the user sees
    after: set[Step] = field(default_factory=set)  # must run first, beyond the writers of `reads`
    pairs: list[tuple[int, int]] = field(default_factory=list)  # (read, write) in one buffer
    last: bool = False  # a final copy


def plan(
    fused: Graph, kernels: Mapping[Node, Lowered], machine: Machine, *,
    mutated: Mapping[int, int] | None = None, claimed: Callable[[Node], bool] = lambda node: False,
) -> Program:
    """The program of a fused graph and the kernels of its fusion nodes. `mutated` maps an output's
    index to that of the input whose buffer it is written back to; `claimed` says which of the
    other nodes the backend runs, and not the host."""
    return _Planner(fused, kernels, machine, dict(mutated or {}), claimed).program()


class _Planner:
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
        elif name == "reshape":
            self.storage[node] = self.storage[node.inputs[0]]
        else:
            self._step(node)

    def _leaf(self, node: Node, space: str, index: int) -> None:
        type_ = node.tensor_type
        self.storage[node] = Storage(type_.dtype, unwrap(type_.elements), space, index)
        if space == "input":
            self.inputs.append(self.storage[node])

    def _step(self, node: Node) -> None:
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        writes = [Storage(t.dtype, unwrap(product(t.shape))) for t in types]
        self.results[node] = writes
        self.storage[node] = writes[0]
        reads = [self.storage[x] for x in node.inputs]
        step = Step(node, reads, writes)
        if node.op.name == "fusion":
            step.lowered = self.kernels.get(node)  # None: computes nothing, and is not launched
            if step.lowered is not None:
                step.can_fail = has_check(step.lowered.kernel)
                step.scratch = self._scratch(step.lowered)
        else:
            step.can_fail = node.op.family not in _HARMLESS
        self._insert(step)

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
        if source.space != "arena" or source.writer is None:
            return False
        source.space, source.index = "output", i
        return True

    def _write_in_place(self, source: Storage, destination: Storage) -> bool:
        """Let a value be computed straight into an input's buffer, if that is safe."""
        writer = source.writer
        if (
            source.space != "arena" or writer is None or writer.lowered is None or writer.can_fail
            or writer in self._before_checks or source.dtype is not destination.dtype
            or source.elements != destination.elements
        ):
            return False
        mine = [r for r, storage in enumerate(writer.reads) if storage is destination]
        result = writer.writes.index(source)
        if len(mine) > 1:
            return False
        if mine and not safe_in_place(writer.lowered.kernel, f"a{mine[0]}", f"o{result}"):
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
        # complex numbers are copied as their parts
        count = source.elements * 2 if source.dtype.is_complex else source.elements
        kernel = copy_kernel(source.dtype.real, self.machine.copy_block)
        step = Step(None, [source], [destination], lowered=Lowered(kernel, (unwrap(count),)))
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

    def program(self) -> Program:
        live = [s for s in self.steps if any(w.elements != 0 for w in s.writes)]
        order = schedule(live, self.graph.env)
        size = assign_offsets(order, self.graph.env)
        first = next((i for i, s in enumerate(order) if s.visible), len(order))
        types = tuple(n.tensor_type for n in self.graph.inputs)
        return Program(
            self.graph.name, _named(types), types,
            tuple(n.tensor_type for n in self.graph.outputs), tuple(self.constants),
            tuple(self._emit(step) for step in order), size, self.in_place, first,
        )

    def _emit(self, step: Step) -> Launch | Routine:
        if step.lowered is not None:
            return _launch(step)
        assert step.node is not None
        return _routine(step, step.node, self.claimed(step.node))


def _named(types: tuple[TensorType, ...]) -> tuple[str, ...]:
    names: set[str] = set()
    for type_ in types:
        for size in type_.shape:
            if isinstance(size, Dim):
                names |= size.variables()
    return tuple(sorted(names))


def _launch(step: Step) -> Launch:
    assert step.lowered is not None
    kernel = step.lowered.kernel
    skipped = {read for read, _ in step.pairs}
    if step.pairs:
        kernel = merged(kernel, tuple((f"a{r}", f"o{w}") for r, w in step.pairs))
    refs = [s.ref() for i, s in enumerate(step.reads) if i not in skipped]
    refs += [s.ref() for s in (*step.writes, *step.scratch)]
    ops, locs = _provenance(step.node)
    return Launch(kernel, tuple(refs), step.lowered.dims, ops, locs)


def _provenance(node: Node | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if node is None:
        return ("copy",), ()
    inside = [n for n in node.graphs[0].nodes if n.op.family not in ("structure", "create")]
    locs = dict.fromkeys(n.place for n in inside if n.loc is not None)
    return tuple(n.op.name for n in inside), tuple(locs)


def _routine(step: Step, node: Node, claimed: bool) -> Routine:
    attrs = tuple(node.attrs.items())
    if node.graphs:
        attrs += (("graphs", node.graphs),)
    results = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return Routine(
        node.op.name, attrs, tuple(s.ref() for s in step.reads),
        tuple(x.tensor_type for x in node.inputs), tuple(s.ref() for s in step.writes),
        tuple(results), () if node.loc is None else (node.place,), claimed,
    )


def has_check(kernel: Kernel) -> bool:
    """Whether a kernel can fail."""
    return any(
        isinstance(stmt, Check)
        for body in walk.bodies(kernel) for stmt in walk.statements(body)
    )
