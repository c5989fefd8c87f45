"""Control flow: a scan, while_loop or cond node -> a Repeat or a Branch over its bodies' steps.

A body is planned as a program of its own, whose steps are then written into the outer program: its
inputs and outputs become the outer program's buffers, its arena one block of the outer arena that
lives as long as the loop does (the arms of a branch share one). What a body hands on unchanged is
read where it lies; where other carried values live: `carried.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ... import dtypes, op
from ...dim import Dim, DimEnv, Size, maximum, product, unwrap
from ...dim_bounds import least
from ...graph import Graph, Node
from ...kernel import (
    Branch,
    BufferRef,
    Launch,
    Program,
    ProgramStep,
    Repeat,
    Routine,
    leaves,
    rebound,
)
from ...machine import Machine
from ...types import TensorType, TupleType
from ..lower.copy import copy_kernel
from .carried import Leaving, Place, Trail, Turns
from .over_rows import over_rows
from .step import HARMLESS, Storage, has_check, is_last_name, moved


class Planner(Protocol):
    """What plans a graph, as its loops and branches see it."""

    graph: Graph
    machine: Machine
    constants: list[Any]
    leaving: set[tuple[Node, int]]  # values that are the graph's outputs

    def inner(self, graph: Graph) -> tuple[Planner, Program]:
        """A body planned by itself."""

    def read_once(self, value: Node) -> bool:
        """Whether one step reads a value, once, and nobody else does."""


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
        self.results = [Storage.of(type_) for type_ in _types(node)]
        self.scratch: list[Storage] = []
        self.bodies: list[_Body] = []
        self.env = planner.graph.env

    @property
    def writes(self) -> list[Storage]:
        """The results that the node makes."""
        return [x for x in dict.fromkeys(self.results) if x not in self.reads]

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
        kernel = copy_kernel(storage.dtype, self.machine.copy_block)
        places = () if self.node.loc is None else (self.node.place,)
        return [Launch(kernel, (source, destination), (storage.elements,), ("copy",), places)]


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


# --- loops -----------------------------------------------------------------------------------


class _Loop(Control):
    """What scan and while_loop share: the values that are carried, in `places`. `stacked`: the
    other results that the body writes, by number."""

    def __init__(
        self, node: Node, reads: Sequence[Storage], planner: Planner, body: Graph,
        places: Mapping[int, Place], stacked: Sequence[int] = (),
    ) -> None:
        super().__init__(node, reads, planner)
        self.places, self.stacked = places, stacked
        self.carried = int(node.attrs.get("n_carried", len(body.inputs)))
        for i in range(self.carried):
            if i not in places:
                self.results[i] = self.reads[i]
        self.body = self._body(_giving(body, (*places, *stacked)), planner)
        self.scratch = [self.body.arena, *(x for place in places.values() for x in place.scratch)]

    def _name(self) -> None:
        """Fix the variable's name: no loop inside has it, nor a named dim."""
        self.var = _variable(1 + max(_depth(b.program.steps) for b in self.bodies), self.env)

    def _current(self, number: Size) -> list[BufferRef]:
        """Where the carried values are at the beginning of an iteration."""
        found = [storage.ref() for storage in self.reads[: self.carried]]
        for i, place in self.places.items():
            found[i] = place.current(number)
        return found

    def _next(self, number: Size) -> list[BufferRef]:
        """Where an iteration leaves the values that vary."""
        return [place.next(number) for place in self.places.values()]

    def _begin(self) -> list[ProgramStep]:
        """Copies of the values that the first iteration does not find where they are."""
        return [
            copy for i, place in self.places.items()
            if (first := place.first(self.reads[i])) != self.reads[i].ref()
            for copy in self._copy(self.reads[i], self.reads[i].ref(), first)
        ]

    def _end(self, number: Size) -> list[ProgramStep]:
        """Copies of the results that do not lie where `number` iterations leave them, if they are
        read."""
        return [
            copy for i, place in self.places.items()
            if isinstance(place, Turns) and self.results[i].is_read
            for copy in self._copy(self.results[i], place.current(number), self.results[i].ref())
        ]


def _varying(body: Graph, carried: int) -> list[int]:
    """The carried values that a body does not hand on as they are."""
    return [i for i in range(carried) if body.outputs[i] is not body.inputs[i]]


class _Scan(_Loop):
    """A loop over the rows of sequences, which writes rows of its stacked results."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        n: int = node.attrs["n_carried"]
        self.graph = body = node.graphs[0]
        self.length = node.inputs[n].tensor_type.shape[0]
        self.reverse: bool = node.attrs["reverse"]
        self.parts: dict[int, Storage] = {}  # results that lie where a value is carried
        self.rows = range(n, len(body.outputs))  # the results that are stacked
        self.leaving = {j for j in self.rows if (node, j) in planner.leaving}
        varying = _varying(body, n)
        self.apart = self._stands_apart(varying)
        places = {i: self._place(i) for i in varying}
        own = [j for j in self.rows if j not in self.parts]
        super().__init__(node, reads, planner, body, places, own)
        for j, storage in self.parts.items():
            self.results[j] = storage
        self._overwrite(own, planner)
        self._name()

    def _overwrite(self, own: Sequence[int], planner: Planner) -> None:
        """Let results lie where sequences do that nobody reads after this loop."""
        n, first = self.carried, len(self.places)
        free = [
            k for k in range(n, len(self.reads))
            if is_last_name(self.reads[k]) and planner.read_once(self.node.inputs[k])
        ]
        for number, j in enumerate(own, first):
            for k in free if j not in self.leaving else ():
                mine, row = self.results[j], self.reads[k]
                if (mine.dtype, mine.elements) != (row.dtype, row.elements):
                    continue
                program = over_rows(self.body.program, k, number)
                if program is not None:
                    self.body.program = program
                    self.results[j] = row.renamed()
                    free.remove(k)
                    break

    def _stacked(self, i: int, free: Iterable[int]) -> tuple[list[int], list[int]]:
        """Of a carried value, which results are what steps begin with, and what they end with."""
        body = self.graph
        began = [j for j in free if body.outputs[j] is body.inputs[i]]
        return began, [j for j in free if body.outputs[j] is body.outputs[i]]

    def _stands_apart(self, varying: Sequence[int]) -> str:
        """Which iteration is written out beside the loop, for the sake of results that leave the
        graph: the "last" (of what steps begin with), the "first" or none (""). It has to be there,
        also where an exported program runs at a size of 1, and to be short."""
        long = any(node.op.family == "control" for node in self.graph.nodes)
        if long or least(self.length, named=1) < 1:
            return ""
        found = [self._stacked(i, self.leaving) for i in varying]
        if any(began for began, _ in found):
            return "last"
        return "first" if any(ended for _, ended in found) else ""

    def _place(self, i: int) -> Place:
        """Where a carried value lies: among the rows that are stacked of it, if there are."""
        value = self.graph.inputs[i]
        began, ended = self._stacked(i, [j for j in self.rows if j not in self.parts])
        inner = [j for j in (*began, *ended) if j not in self.leaving]
        if inner:
            trail = Trail(value, self.length, self.reverse)
            self.parts |= {j: trail.began if j in began else trail.ended for j in inner}
            self.parts[i] = trail.last
            return trail
        rows = {"last": began, "first": ended, "": []}[self.apart]
        if not rows:
            return Turns.of(value)
        place = Leaving(value, self.length, self.reverse, self.apart == "last")
        self.parts |= {rows[0]: place.rows, i: place.last}
        return place

    def steps(self) -> tuple[ProgramStep, ...]:
        first, last = int(self.apart == "first"), int(self.apart == "last")
        found = self._begin()
        if first:
            found += self._iteration(0)
        count = unwrap(self.length - first - last)
        if count != 0:
            number = unwrap(Dim.var(self.var) + first)
            found.append(Repeat(self.var, self._iteration(number), count))
        if last:
            found += self._iteration(unwrap(self.length - 1))
        return (*found, *self._end(self.length))

    def _iteration(self, number: Size) -> tuple[ProgramStep, ...]:
        """The body's steps, on the buffers of one iteration."""
        n, graph = self.carried, self.graph
        rows = [
            self._row(storage, like, number)
            for storage, like in zip(self.reads[n:], graph.inputs[n:], strict=True)
        ]
        stacked = [self._row(self.results[j], graph.outputs[j], number) for j in self.stacked]
        return self.body.steps(
            [*self._current(number), *rows], [*self._next(number), *stacked], self.body.arena
        )

    def _row(self, storage: Storage, like: Node, number: Size) -> BufferRef:
        """An iteration's row of a sequence."""
        row = self.length - 1 - number if self.reverse else number
        return moved(storage.ref(), unwrap(row * product(like.shape) * like.dtype.itemsize))


class _While(_Loop):
    """A loop that goes on while its condition's program says so."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        condition, body = node.graphs
        places = {i: Turns.of(body.inputs[i]) for i in _varying(body, len(body.inputs))}
        super().__init__(node, reads, planner, body, places)
        self.condition = self._body(condition, planner)
        self._name()
        self.flag = Storage(dtypes.bool_, 1)
        self.scratch += [self.condition.arena, self.flag]

    def steps(self) -> tuple[ProgramStep, ...]:
        number = Dim.var(self.var)
        current, flag = self._current(number), self.flag.ref()
        test = self.condition.steps(current, [flag], self.condition.arena)
        steps = self.body.steps(current, self._next(number), self.body.arena)
        repeat = Repeat(self.var, steps, None, test, flag)
        return (*self._begin(), repeat, *self._end(number))


class _Unwind(Control):
    """A loop that keeps what each step begins with, in rows, and one back over them."""

    def __init__(self, node: Node, reads: Sequence[Storage], planner: Planner) -> None:
        super().__init__(node, reads, planner)
        condition, step, back = node.graphs
        self.n: int = node.attrs["n_state"]
        self.most: int = node.attrs["most"]
        self.rows = {i: Trail(step.inputs[i], self.most, False) for i in _varying(step, self.n)}
        self.turns = {
            i: Turns.of(back.inputs[i]) for i in _varying(back, len(self.results))
        }
        for i, storage in enumerate(self.reads[self.n :]):
            if i not in self.turns:
                self.results[i] = storage
        self.condition = self._body(condition, planner)
        self.step = self._body(_giving(step, self.rows), planner)
        self.back = self._body(_giving(back, self.turns), planner)
        steps = [step for body in self.bodies for step in body.program.steps]
        deepest = _depth(steps)
        self.var, self.back_var = (_variable(deepest + i, self.env) for i in (1, 2))
        self.flag = Storage(dtypes.bool_, 1)
        self.scratch += [self.flag, *(body.arena for body in self.bodies)]
        self.scratch += [trail.whole for trail in self.rows.values()]
        self.scratch += [x for turns in self.turns.values() for x in turns.scratch]

    def _state(self, number: Size) -> list[BufferRef]:
        """Where the values are that a step begins with."""
        found = [storage.ref() for storage in self.reads[: self.n]]
        for i, trail in self.rows.items():
            found[i] = trail.current(number)
        return found

    def steps(self) -> tuple[ProgramStep, ...]:
        number, gone = Dim.var(self.var), Dim.var(self.back_var)
        slopes = self.reads[self.n :]
        begin = [
            copy for given, places in ((self.reads, self.rows), (slopes, self.turns))
            for i, place in places.items()
            for copy in self._copy(given[i], given[i].ref(), place.first(given[i]))
        ]
        test = self.condition.steps(self._state(number), [self.flag.ref()], self.condition.arena)
        there = self.step.steps(
            self._state(number), [trail.next(number) for trail in self.rows.values()],
            self.step.arena,
        )
        current = [storage.ref() for storage in slopes]
        for i, turns in self.turns.items():
            current[i] = turns.current(gone)
        back = self.back.steps(
            [*current, *self._state(unwrap(number - 1 - gone))],
            [turns.next(gone) for turns in self.turns.values()], self.back.arena,
        )
        end = [
            copy for i, turns in self.turns.items() if self.results[i].is_read
            for copy in self._copy(self.results[i], turns.current(gone), self.results[i].ref())
        ]
        return (
            *begin, Repeat(self.var, there, self.most, test, self.flag.ref()),
            Repeat(self.back_var, back, number), *end,
        )


def _giving(body: Graph, kept: Iterable[int]) -> Graph:
    """The body with some of its outputs."""
    return Graph(body.name, body.inputs, tuple(body.outputs[i] for i in kept), body.env)


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


_PLANNED = {"scan": _Scan, "while_loop": _While, "unwind": _Unwind, "cond": _Cond}


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.tensor_type,)


def _depth(steps: Sequence[ProgramStep]) -> int:
    """The highest number in the name of a loop's variable."""
    found = 0
    for step in steps:
        if isinstance(step, Repeat):
            number = int(step.var.lstrip("_")[1:])
            found = max(found, number, _depth((*step.test, *step.steps)))
        elif isinstance(step, Branch):
            found = max(found, _depth((*step.then, *step.otherwise)))
    return found


def _variable(depth: int, env: DimEnv) -> str:
    """The name of a loop's variable. Loops that follow each other share it."""
    name = f"i{depth}"
    while name in env.hints:
        name = f"_{name}"
    return name
