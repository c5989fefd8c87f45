"""Control flow: a scan, while_loop or cond node -> a Repeat or a Branch over its bodies' steps.

A body is planned as a program of its own, whose steps are then written into the outer program: its
inputs and outputs become the outer program's buffers, its arena one block of the outer arena that
lives as long as the loop does (the arms of a branch share one). A value that is carried from
iteration to iteration has two buffers that take turns: iteration i reads number i % 2 and writes
the other. What a body hands on unchanged is read where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import dtypes, op
from ...dim import Dim, DimEnv, Size, maximum, mod, product, unwrap
from ...graph import Graph, Node
from ...kernel import (
    Branch,
    BufferRef,
    Launch,
    ProgramStep,
    Repeat,
    Routine,
    leaves,
    rebound,
)
from ...types import TensorType, TupleType
from ..lower.copy import copy_kernel
from .step import HARMLESS, Storage, has_check

if TYPE_CHECKING:
    from . import Planner


def plan_control(node: Node, reads: Sequence[Storage], planner: Planner) -> Control:
    """The steps of a node with bodies; `reads` are where its operands lie."""
    return _PLANNED[node.op.name](node, reads, planner)


class Control:
    """A node with bodies in the making. Its results lie in `results`: in `writes`, which it makes,
    or where an operand lies. `scratch` it needs while it runs."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        self.node = node
        self.reads = list(reads)
        self.machine = planner.machine
        self.results = [_storage(type_) for type_ in _types(node)]
        self.scratch: list[Storage] = []
        self.bodies: list[_Body] = []
        self.env = planner.graph.env

    @property
    def writes(self) -> list[Storage]:
        """The results that the node makes."""
        return [x for x in self.results if x not in self.reads]

    @property
    def can_fail(self) -> bool:
        """Whether a step inside can."""
        return any(body.can_fail for body in self.bodies)

    def steps(self) -> tuple[ProgramStep, ...]:
        """What runs; offsets in the arena are known by now."""
        raise NotImplementedError

    def _body(self, graph: Graph, planner: Planner) -> _Body:
        body = _Body(graph, planner)
        self.bodies.append(body)
        return body

    def _copy(self, storage: Storage, source: BufferRef, destination: BufferRef) -> list[Launch]:
        """A copy of all of a value."""
        if storage.elements == 0:
            return []
        dtype, count = storage.dtype, storage.elements
        if dtype.is_complex:  # complex numbers are copied as their parts
            dtype, count = dtype.real, unwrap(count * 2)
        kernel = copy_kernel(dtype, self.machine.copy_block)
        return [Launch(kernel, (source, destination), (count,), ("copy",))]


class _Body:
    """A body's own program, and what stands for its buffers in the outer one."""

    def __init__(self, graph: Graph, planner: Planner) -> None:
        inner, self.program = planner.inner(graph)
        self.first_constant = len(planner.constants)
        planner.constants += inner.constants
        self.arena = Storage(dtypes.u8, self.program.arena_bytes)

    @property
    def can_fail(self) -> bool:
        for leaf in leaves(self.program.steps):
            if isinstance(leaf, Routine):
                if op.get(leaf.op).family not in HARMLESS:
                    return True
            elif has_check(leaf.kernel):
                return True
        return False

    def steps(
        self, inputs: Sequence[BufferRef], outputs: Sequence[BufferRef], arena: Storage
    ) -> tuple[ProgramStep, ...]:
        """The body's steps on these buffers."""
        spaces = {"input": inputs, "output": outputs}

        def bind(ref: BufferRef) -> BufferRef:
            if ref.space == "arena":
                return moved(arena.ref(), ref.offset)
            if ref.space == "const":
                return BufferRef("const", self.first_constant + ref.index, ref.offset)
            return moved(spaces[ref.space][ref.index], ref.offset)

        return rebound(self.program.steps, bind)


def moved(ref: BufferRef, by: Size) -> BufferRef:
    """The buffer from `by` bytes on."""
    return BufferRef(ref.space, ref.index, unwrap(ref.offset + by))


# --- loops -----------------------------------------------------------------------------------


class _Loop(Control):
    """What scan and while_loop share: the values that are carried."""

    def __init__(
        self, node: Node, reads: Sequence[Storage], planner: Planner, body: Graph, carried: int
    ) -> None:
        super().__init__(node, reads, planner)
        self.carried = carried
        self.varying = [i for i in range(carried) if body.outputs[i] is not body.inputs[i]]
        for i in range(carried):
            if i not in self.varying:
                self.results[i] = self.reads[i]
        kept = [*self.varying, *range(carried, len(body.outputs))]
        outputs = tuple(body.outputs[i] for i in kept)
        self.body = self._body(Graph(body.name, body.inputs, outputs, body.env), planner)
        self.pairs = {
            i: (_storage(body.inputs[i].tensor_type), _storage(body.inputs[i].tensor_type))
            for i in self.varying
        }
        self.scratch = [self.body.arena, *(x for pair in self.pairs.values() for x in pair)]

    def _name(self) -> None:
        """Fix the variable's name: no loop inside has it, nor a named dim."""
        self.var = _variable(1 + max(_depth(b.program.steps) for b in self.bodies), self.env)
        self.parity = mod(Dim.var(self.var), 2)

    def _current(self) -> list[BufferRef]:
        """Where the carried values are at the beginning of an iteration, and behind the loop."""
        found = [storage.ref() for storage in self.reads[: self.carried]]
        for i, (even, odd) in self.pairs.items():
            found[i] = moved(even.ref(), self.parity * (odd.offset - even.offset))
        return found

    def _next(self) -> list[BufferRef]:
        """Where an iteration leaves the values that vary."""
        return [
            moved(odd.ref(), self.parity * (even.offset - odd.offset))
            for even, odd in self.pairs.values()
        ]

    def _begin(self) -> list[ProgramStep]:
        return [
            copy for i, (even, _) in self.pairs.items()
            for copy in self._copy(even, self.reads[i].ref(), even.ref())
        ]

    def _end(self) -> list[ProgramStep]:
        current = self._current()
        return [
            copy for i in self.varying
            for copy in self._copy(self.results[i], current[i], self.results[i].ref())
        ]


class _Scan(_Loop):
    """A loop over the rows of sequences, which writes rows of its stacked results."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        count: int = node.attrs["n_carried"]
        self.graph = node.graphs[0]
        super().__init__(node, reads, planner, self.graph, count)
        self._name()
        self.length = node.inputs[count].tensor_type.shape[0]
        self.reverse: bool = node.attrs["reverse"]

    def steps(self) -> tuple[ProgramStep, ...]:
        n = self.carried
        rows = [self._row(*x) for x in zip(self.reads[n:], self.graph.inputs[n:], strict=True)]
        stacked = [
            self._row(*x) for x in zip(self.results[n:], self.graph.outputs[n:], strict=True)
        ]
        steps = self.body.steps(
            [*self._current(), *rows], [*self._next(), *stacked], self.body.arena
        )
        return (*self._begin(), Repeat(self.var, steps, self.length), *self._end())

    def _row(self, storage: Storage, like: Node) -> BufferRef:
        """This iteration's row of a sequence."""
        number: Size = Dim.var(self.var)
        if self.reverse:
            number = self.length - 1 - number
        return moved(storage.ref(), unwrap(number * product(like.shape) * like.dtype.itemsize))


class _While(_Loop):
    """A loop that goes on while its condition's program says so."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        condition, body = node.graphs
        super().__init__(node, reads, planner, body, len(body.inputs))
        self.condition = self._body(condition, planner)
        self._name()
        self.flag = Storage(dtypes.bool_, 1)
        self.scratch += [self.condition.arena, self.flag]

    def steps(self) -> tuple[ProgramStep, ...]:
        current, flag = self._current(), self.flag.ref()
        test = self.condition.steps(current, [flag], self.condition.arena)
        steps = self.body.steps(current, self._next(), self.body.arena)
        repeat = Repeat(self.var, steps, None, test, flag)
        return (*self._begin(), repeat, *self._end())


# --- branches --------------------------------------------------------------------------------


class _Cond(Control):
    """One of two bodies."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        super().__init__(node, reads, planner)
        self.arms = [self._body(graph, planner) for graph in node.graphs]
        first, second = (arm.program.arena_bytes for arm in self.arms)
        self.arena = Storage(dtypes.u8, maximum(first, second))
        self.scratch = [self.arena]

    def steps(self) -> tuple[ProgramStep, ...]:
        flag, *operands = [storage.ref() for storage in self.reads]
        results = [storage.ref() for storage in self.results]
        then, otherwise = (arm.steps(operands, results, self.arena) for arm in self.arms)
        return (Branch(flag, then, otherwise),)


_PLANNED = {"scan": _Scan, "while_loop": _While, "cond": _Cond}


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.tensor_type,)


def _storage(type_: TensorType) -> Storage:
    return Storage(type_.dtype, unwrap(type_.elements))


def _depth(steps: Sequence[ProgramStep]) -> int:
    """How many loops stand inside each other, at most."""
    found = 0
    for step in steps:
        if isinstance(step, Repeat):
            found = max(found, 1 + _depth((*step.test, *step.steps)))
        elif isinstance(step, Branch):
            found = max(found, _depth((*step.then, *step.otherwise)))
    return found


def _variable(depth: int, env: DimEnv) -> str:
    """The name of a loop's variable. Loops that follow each other share it."""
    name = f"i{depth}"
    while name in env.hints:
        name = f"_{name}"
    return name
