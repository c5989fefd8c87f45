"""What one call of a program has for itself: its launches with their packed arguments, and memory
between them. From call to call the words stay that stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphc.backends.cuda.driver import Stream
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.source import GRID_MOST
from graphc.backends.cuda.status import BYTES, Checked
from graphc.backends.cuda.steps import (
    Choice,
    KernelLaunch,
    LibraryCall,
    Line,
    Loop,
    Part,
    lines,
)
from graphc.ir.device_array import DeviceArray
from graphc.ir.dim import Dim, Size, evaluate
from graphc.ir.kernel import BufferRef, Program

ALIGNMENT = 256  # of what lies behind the arena
Base = tuple[str, int]  # a space of a program, and the number of a buffer there


class Plan:
    """A program's parts, ready for leases: its constants, and words for what may fail."""

    def __init__(
        self, program: Program, parts: tuple[Part, ...], memory: CudaMemory,
        constants: Sequence[DeviceArray],
    ) -> None:
        self.program, self.parts, self.memory = program, parts, memory
        self.constants = constants
        self.steps = [step for line in lines(parts) for step in line.steps]
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


class Ready:
    """A launch of a lease. `changed`: since somebody last asked."""

    __slots__ = ("changed", "launch", "step", "words")

    def __init__(self, memory: CudaMemory, step: KernelLaunch, status: int) -> None:
        self.step = step
        count = len(step.buffers) + len(step.dims) + 1 + (step.scratch != 0)
        self.launch = memory.driver.prepare(
            step.function, (1, 1, 1), (step.threads, 1, 1), bytes(8 * count), step.shared
        )
        self.words = self.launch.arguments.cast("q")
        self.words[len(step.buffers) + len(step.dims)] = status
        self.changed = True

    def resize(self, env: Mapping[str, int]) -> None:
        """Numbers of blocks, and dims, for these sizes."""
        step = self.step
        for at, size in enumerate(step.dims, len(step.buffers)):
            self.words[at] = _value(size, env)
        self.launch.resize((min(max(1, _value(step.blocks, env)), GRID_MOST), 1, 1))
        self.changed = True


class Lease:
    """See the module. `env`: the values of the program's dims and of its loops' variables."""

    def __init__(self, plan: Plan, stream: Stream) -> None:
        self.plan, self.stream = plan, stream
        memory, self._driver = plan.memory, plan.memory.driver
        self.ready: dict[int, Ready] = {
            id(step): Ready(memory, step, plan.status.get(id(step), memory.status.device))
            for step in plan.steps if isinstance(step, KernelLaunch)
        }
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
                self.ready[id(step)] for step in plan.steps
                if isinstance(step, KernelLaunch) and name in _names(_sizes(step))
            ]
            for name in self._variables
        }

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
                    ready.changed = True

    def address(self, ref: BufferRef) -> int:
        """Where a buffer lies now."""
        return self._bases[ref.space, ref.index] + _value(ref.offset, self.env)

    def moved(self, variable: str) -> None:
        """A loop's variable has another value."""
        for ready in self._moving[variable]:
            for at, ref in enumerate(ready.step.buffers):
                ready.words[at] = self.address(ref)
            ready.resize(self.env)

    def begin(self, line: Line) -> None:
        """Sends a line's steps to the stream."""
        for step in line.steps:
            if isinstance(step, KernelLaunch):
                self._driver.launch(self.ready[id(step)].launch, self.stream)
            else:
                addresses = [self.address(ref) for ref in step.buffers]
                step.begin(self._driver, addresses, self.env, self._scratch, self.stream)

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
        for ready in self.ready.values():
            self._fill(ready)
        self._dims = dims

    def _fill(self, ready: Ready) -> None:
        for at, ref in enumerate(ready.step.buffers):
            base, offset = (ref.space, ref.index), _value(ref.offset, self.env)
            ready.words[at] = self._bases[base] + offset
            self._users.setdefault(base, []).append((ready, at, offset))
        if ready.step.scratch != 0:
            ready.words[-1] = self._scratch
        ready.resize(self.env)


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
            elif isinstance(part, Choice):
                search((*part.then, *part.otherwise))

    search(plan.parts)
    return list(found)
