"""What a program comes to on a GPU, as data: launches, library calls, what the host does, and the
loops and branches around them. Made once for a program; a lease of it is `prepared.py`.

Launches of one kernel in a batch (`plan/together.py`) become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from graphc.backends.cuda import batches
from graphc.backends.cuda.driver import Driver, Function, Stream
from graphc.backends.cuda.source import Source, Stage
from graphc.backends.cuda.status import Checked
from graphc.ir.dim import Dim, Size, substitute
from graphc.ir.kernel import (
    Branch,
    BufferRef,
    Check,
    Kernel,
    Launch,
    Program,
    Repeat,
    Routine,
    leaves,
)
from graphc.ir.kernel.program import ProgramStep
from graphc.ir.passes.plan.together import Batch


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch. Its arguments are words of 8 bytes: the buffers' addresses, `dims` (and sizes
    that the text leaves open) over the program's, the status words, and, where `scratch` is not 0,
    the address of so many bytes. `blocks` are over the program's dims. `checked`: what it may say
    has failed. `of`: what of the program it, and those behind it that have none, are."""

    name: str
    function: Function
    blocks: Size
    threads: int
    shared: int
    buffers: tuple[BufferRef, ...]
    dims: tuple[Size, ...] = ()
    scratch: Size = 0
    checked: Checked | None = None
    of: tuple[Launch, ...] = ()


@runtime_checkable
class LibraryCall(Protocol):
    """What a library does on a stream. It is never guarded, so what it writes lies in the arena;
    `workspace`: bytes that it may use, over the program's dims. The launch behind it is
    of the same kernel."""

    @property
    def buffers(self) -> tuple[BufferRef, ...]: ...
    @property
    def workspace(self) -> Size: ...

    def begin(
        self, driver: Driver, addresses: Sequence[int], dims: Mapping[str, int], workspace: int,
        stream: Stream,
    ) -> None:
        """Begins it, at addresses in the order of `buffers`."""


@dataclass(frozen=True, slots=True)
class HostStep:
    """What NumPy computes, between reads and writes of the device's memory: the host waits."""

    number: int  # of the leaf
    routine: Routine


@dataclass(frozen=True, slots=True)
class Line:
    """Steps that the device does one after another, without the host; `number`: of the first
    leaf."""

    number: int
    steps: tuple[KernelLaunch | LibraryCall, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """See Repeat. The host waits for a flag, once an iteration."""

    var: str
    steps: tuple[Part, ...]
    count: Size | None
    test: tuple[Part, ...] = ()
    flag: BufferRef | None = None


@dataclass(frozen=True, slots=True)
class Either:
    """See Branch. The host waits for the flag."""

    flag: BufferRef
    then: tuple[Part, ...]
    otherwise: tuple[Part, ...]


Part: TypeAlias = Line | HostStep | Loop | Either
Step: TypeAlias = KernelLaunch | LibraryCall | HostStep | Loop | Either


class Kernels(Protocol):
    """What is known of the kernels of a program."""

    def source(self, kernel: Kernel) -> Source:
        """Guarded CUDA C."""

    def functions(self, kernel: Kernel) -> Sequence[Function]:
        """Those of the source's stages."""

    def checked(self, kernel: Kernel, stage: Stage) -> tuple[Check, ...]:
        """What a stage may say was false, by number; empty: nothing."""

    def call(self, step: Launch) -> LibraryCall | None:
        """What a library computes in front of the kernel."""

    def most(self, kernel: Kernel) -> int:
        """How many launches of a kernel may be one."""

    def together(self, kernel: Kernel, count: int) -> tuple[Source, Sequence[Function]]:
        """So many launches of it at once: guarded CUDA C, and its functions."""


def launches_of(step: Launch, kernels: Kernels) -> list[KernelLaunch | LibraryCall]:
    """A kernel's launches, in order, behind what a library does for it."""
    dims = dict(zip(step.kernel.dims, step.dims, strict=True))

    def here(size: Size) -> Size:
        return substitute(size, dims) if isinstance(size, Dim) else size

    call, source = kernels.call(step), kernels.source(step.kernel)
    found: list[KernelLaunch | LibraryCall] = [] if call is None else [call]
    numbers = (*step.dims, *map(here, source.sizes))
    for stage, function in zip(source.stages, kernels.functions(step.kernel), strict=True):
        checks = kernels.checked(step.kernel, stage)
        found.append(KernelLaunch(
            stage.name, function, here(stage.blocks), stage.threads, stage.shared, step.buffers,
            numbers, here(source.scratch), Checked(checks, step.locs) if checks else None,
            (step,) if stage is source.stages[0] else (),
        ))
    return found


def launches_together(
    batch: Sequence[Launch], kernels: Kernels
) -> list[KernelLaunch | LibraryCall]:
    """Independent launches of one kernel, in as few as there have to be."""
    kernel = batch[0].kernel
    found: list[KernelLaunch | LibraryCall] = []
    for part in shares(batch, kernels.most(kernel)):
        if len(part) == 1:
            found += launches_of(part[0], kernels)
            continue
        source, functions = kernels.together(kernel, len(part))
        buffers = tuple(ref for launch in part for ref in launch.buffers)
        for stage, function in zip(source.stages, functions, strict=True):
            words, blocks = batches.words(stage, part)
            found.append(KernelLaunch(
                stage.name, function, blocks, stage.threads, stage.shared, buffers, words,
                of=tuple(part) if stage is source.stages[0] else (),
            ))
    return found


def shares(batch: Sequence[Launch], most: int) -> list[Sequence[Launch]]:
    """A batch in parts of at most so many launches, all of about one size."""
    parts = -(-len(batch) // most)
    size = -(-len(batch) // parts)
    return [batch[start : start + size] for start in range(0, len(batch), size)]


def parts_of(
    program: Program, kernels: Kernels, gathered: Sequence[Batch] | None = None,
    single: bool = False,
) -> tuple[Part, ...]:
    """A whole program; `gathered`: its steps in batches. `single`: a Line for each Launch, in
    their order."""
    if gathered is None or single:
        gathered = [(step,) for step in program.steps]
    return _Parts(kernels, single).of(gathered, 0)


class _Parts:
    def __init__(self, kernels: Kernels, single: bool) -> None:
        self.kernels, self.single = kernels, single

    def of_steps(self, steps: Iterable[ProgramStep], first: int) -> tuple[Part, ...]:
        return self.of([(step,) for step in steps], first)

    def of(self, gathered: Iterable[Batch], first: int) -> tuple[Part, ...]:
        """Steps of which the first leaf has a number."""
        parts: list[Part] = []
        line: list[KernelLaunch | LibraryCall] = []
        begin = first
        for batch in gathered:
            step = batch[0]
            if isinstance(step, Launch):
                if not line:
                    begin = first
                line += launches_together([x for x in batch if isinstance(x, Launch)], self.kernels)
            if line and (self.single or not isinstance(step, Launch)):
                parts.append(Line(begin, tuple(line)))
                line = []
            if not isinstance(step, Launch):
                parts.append(self.part(step, first))
            first += _count(batch)
        return (*parts, Line(begin, tuple(line))) if line else tuple(parts)

    def part(self, step: Routine | Repeat | Branch, first: int) -> Part:
        """What is no launch."""
        if isinstance(step, Routine):
            return HostStep(first, step)
        if isinstance(step, Branch):
            otherwise = self.of_steps(step.otherwise, first + _count(step.then))
            return Either(step.flag, self.of_steps(step.then, first), otherwise)
        body = self.of_steps(step.steps, first + _count(step.test))
        return Loop(step.var, body, step.count, self.of_steps(step.test, first), step.flag)


def _count(steps: Iterable[ProgramStep]) -> int:
    return sum(1 for _ in leaves(steps))


def lines(parts: Iterable[Part]) -> Iterator[Line]:
    """All of them, as they are written down."""
    for part in parts:
        if isinstance(part, Line):
            yield part
        elif isinstance(part, Loop):
            yield from lines(part.test)
            yield from lines(part.steps)
        elif isinstance(part, Either):
            yield from lines(part.then)
            yield from lines(part.otherwise)
