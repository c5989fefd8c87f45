"""What one call of a program has for itself: its launches with their packed arguments, and memory
between them. From call to call the words stay that stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphc.backends.cuda.driver import Stream
from graphc.backends.cuda.graphs import Called, Ready, Run, captures
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.source import GRID_MOST
from graphc.backends.cuda.status import BYTES, Checked
from graphc.backends.cuda.steps import (
    Either,
    KernelLaunch,
    LibraryCall,
    Line,
    Loop,
    Part,
    lines,
)
from graphc.ir.device_array import DeviceArray
from graphc.ir.dim import Dim, Size, evaluate
from graphc.ir.kernel import BufferRef, Launch, Program

ALIGNMENT = 256  # of what lies behind the arena
Base = tuple[str, int]  # a space of a program, and the number of a buffer there


class Plan:
    """A program's parts, ready for leases: its constants, and words for what may fail."""

    def __init__(
        self, program: Program, parts: tuple[Part, ...], memory: CudaMemory,
        constants: Sequence[DeviceArray], graphs: str = "0",
    ) -> None:
        self.program, self.parts, self.memory = program, parts, memory
        self.constants, self.graphs = constants, graphs
        self.lines = list(lines(parts))
        self.steps = [step for line in self.lines for step in line.steps]
        checked = [s for s in self.steps if isinstance(s, KernelLaunch) and s.checked is not None]
        self._words = _status_words(memory, [s.checked for s in checked if s.checked is not None])
        first = memory.address(self._words) if checked else 0
        self.status = {id(step): first + BYTES * at for at, step in enumerate(checked)}
        self._leases: dict[Stream, list[Lease]] = {}

    def lease(self, stream: Stream) -> Lease:
        """One that no other call has, for work on a stream."""
        free = self._leases.setdefault(stream, [])
        try:
            return free.pop()  # atomic
        except IndexError:
            return Lease(self, stream)

    def give_back(self, lease: Lease) -> None:
        """The call has begun all its work."""
        self._leases[lease.stream].append(lease)


def _status_words(memory: CudaMemory, checked: Sequence[Checked]) -> DeviceArray:
    words = np.array(memory.status.words(checked), np.int64)
    made = memory.allocate(words.shape, words.dtype)
    memory.write(made, words)
    return made


class Lease:
    """See the module. `env`: the values of the program's dims and of its loops' variables."""

    def __init__(self, plan: Plan, stream: Stream) -> None:
        self.plan, self.stream = plan, stream
        memory, self._driver = plan.memory, plan.memory.driver
        self._ready: dict[int, tuple[KernelLaunch, Ready]] = {}  # by the step's id
        self._runs = {id(line): self._runs_of(line) for line in plan.lines}
        self.env: dict[str, int] = {}
        self._dims: tuple[int, ...] | None = None
        self._arena: DeviceArray | None = None
        self._scratch = 0  # where it begins
        self._bases: dict[Base, int] = {
            ("const", at): memory.address(constant) for at, constant in enumerate(plan.constants)
        }
        self._users: dict[Base, list[tuple[Ready, int, int]]] = {}
        self._variables = _variables(plan)
        self._moving = {
            name: [
                pair for pair in self._ready.values() if name in _names(_sizes(pair[0]))
            ]
            for name in self._variables
        }

    def _runs_of(self, line: Line) -> list[Run]:
        """A line's launches, prepared; and the calls of libraries, with them or between them."""
        device, choice = self.plan.memory.device, self.plan.graphs
        found: list[Run] = []
        called: Called | None = None
        for step in line.steps:
            apart = called is not None or not isinstance(step, KernelLaunch)
            if not found or (apart and not captures(choice)):
                found.append(Run(device, choice))
            run = found[-1]
            if not isinstance(step, KernelLaunch):
                called = self._called(step)
                run.launches.append(called)
                continue
            of = step.of
            if called is not None:  # what it computes, and what takes the sums: one kernel
                called.of, of, called = of, (), None
            ready = self._prepared(step, run, of)
            run.launches.append(ready)
            self._ready[id(step)] = step, ready
        return found

    def _called(self, call: LibraryCall) -> Called:
        def addresses() -> list[int]:
            return [self.address(ref) for ref in call.buffers]

        def send(stream: Stream) -> None:
            call.begin(self._driver, addresses(), self.env, self._scratch, stream)

        def place() -> list[int]:
            return [*addresses(), self._scratch, *self.env.values()]

        return Called(send, place, type(call).__name__, ())

    def _prepared(self, step: KernelLaunch, run: Run, of: tuple[Launch, ...]) -> Ready:
        count = len(step.buffers) + len(step.dims) + 1 + (step.scratch != 0)
        ready = Ready(run, self._driver.prepare(
            step.function, (1, 1, 1), (step.threads, 1, 1), bytes(8 * count), step.shared
        ), step.name, of)
        device = self.plan.memory.status.device
        ready.words[len(step.buffers) + len(step.dims)] = self.plan.status.get(id(step), device)
        return ready

    def place(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], dims: Sequence[int]
    ) -> None:
        """Everything as a call with these buffers wants it."""
        address = self.plan.memory.address
        bases = {
            **{("input", at): address(buffer) for at, buffer in enumerate(inputs)},
            **{("output", at): address(buffer) for at, buffer in enumerate(outputs)},
        }
        sizes = tuple(dims)
        if sizes != self._dims:
            self._bases.update(bases)
            self._lay_out(sizes)
            return
        for base, place in bases.items():
            if self._bases[base] != place:
                self._bases[base] = place
                for ready, at, offset in self._users.get(base, ()):
                    ready.words[at] = place + offset
                    ready.change()

    def address(self, ref: BufferRef) -> int:
        """Where a buffer lies now."""
        return self._bases[ref.space, ref.index] + _value(ref.offset, self.env)

    def moved(self, variable: str) -> None:
        """A loop's variable has another value."""
        for step, ready in self._moving[variable]:
            for at, ref in enumerate(step.buffers):
                ready.words[at] = self.address(ref)
            self._resize(step, ready)

    def begin(self, line: Line) -> None:
        """Sends a line's steps to the stream."""
        for run in self._runs[id(line)]:
            run.begin(self.env, self.stream)

    def end(self) -> None:
        """Its memory is free for others; nothing is begun behind that."""
        self._arena = None

    def _lay_out(self, dims: tuple[int, ...]) -> None:
        self.env = {
            **dict(zip(self.plan.program.dims, dims, strict=True)),
            **dict.fromkeys(self._variables, 0),
        }
        arena = -(-_value(self.plan.program.arena_bytes, self.env) // ALIGNMENT) * ALIGNMENT
        scratch = (_value(_scratch(step), self.env) for step in self.plan.steps)
        size = arena + max(scratch, default=0)
        if size and (self._arena is None or self._arena.size < size):
            self._arena = None  # before there are two
            self._dims = None
            self._arena = self.plan.memory.allocate((size,), np.dtype(np.uint8))
        start = self.plan.memory.address(self._arena) if self._arena is not None else 0
        self._bases["arena", 0], self._scratch = start, start + arena
        self._users = {}
        for step, ready in self._ready.values():
            self._fill(step, ready)
        self._dims = dims

    def _fill(self, step: KernelLaunch, ready: Ready) -> None:
        for at, ref in enumerate(step.buffers):
            base, offset = (ref.space, ref.index), _value(ref.offset, self.env)
            ready.words[at] = self._bases[base] + offset
            self._users.setdefault(base, []).append((ready, at, offset))
        if step.scratch != 0:
            ready.words[-1] = self._scratch
        self._resize(step, ready)

    def _resize(self, step: KernelLaunch, ready: Ready) -> None:
        """Numbers of blocks, and dims, for the sizes of now."""
        for at, size in enumerate(step.dims, len(step.buffers)):
            ready.words[at] = _value(size, self.env)
        blocks = _value(step.blocks, self.env)
        ready.launch.resize((min(max(1, blocks), GRID_MOST), 1, 1))
        ready.change()


def _value(size: Size, env: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else evaluate(size, env)


def _scratch(step: KernelLaunch | LibraryCall) -> Size:
    return step.scratch if isinstance(step, KernelLaunch) else step.workspace


def _sizes(step: KernelLaunch | LibraryCall) -> Iterable[Size]:
    yield from (ref.offset for ref in step.buffers)
    if isinstance(step, KernelLaunch):
        yield from (*step.dims, step.blocks)


def _names(sizes: Iterable[Size]) -> frozenset[str]:
    return frozenset().union(*(s.variables() for s in sizes if isinstance(s, Dim)))


def _variables(plan: Plan) -> list[str]:
    """Of the loops, in their order."""
    found: dict[str, None] = {}

    def search(parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Loop):
                found[part.var] = None
                search((*part.test, *part.steps))
            elif isinstance(part, Either):
                search((*part.then, *part.otherwise))

    search(plan.parts)
    return list(found)
