"""What explain() says of how a program runs on a GPU: launches, graphs and what cuts them, what
threads and blocks take, where the host waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphc.backends.cuda.driver import Driver
from graphc.backends.cuda.graphs import LEAST, captures
from graphc.backends.cuda.routines.run import would
from graphc.backends.cuda.steps import (
    Either,
    HostStep,
    KernelLaunch,
    LibraryCall,
    Line,
    Loop,
    Part,
    lines,
)

_NAMES = 4  # of functions that a line shows


def remarks(parts: tuple[Part, ...], choice: str, driver: Driver) -> tuple[str, ...]:
    """Lines; `choice` is GRAPHC_CUDA_GRAPHS."""
    runs = [run for line in lines(parts) for run in _runs(line, captures(choice))]
    launches = [step for run in runs for step in run if isinstance(step, KernelLaunch)]
    calls = sum(len(line.steps) for line in lines(parts)) - len(launches)
    said = [_counted(len(launches), "launch", "launches")]
    batches = [len(step.of) for step in launches if len(step.of) > 1]
    if batches:
        said[0] += f" ({len(batches)} of them of {sum(batches)} equal kernels)"
    if calls:
        said.append(_counted(calls, "library call", "library calls"))
    least = {"0": None, "1": 1}.get(choice, LEAST)
    graphs = 0 if least is None else sum(len(run) >= least for run in runs)
    said.append(_counted(graphs, "CUDA graph", "CUDA graphs") + f" (GRAPHC_CUDA_GRAPHS={choice})")
    found = [", ".join(said)]
    if calls and least is not None and not captures(choice):
        found.append(
            f"a library's call ends a CUDA graph, x {calls} (GRAPHC_CUDA_GRAPHS=1: is part of it)"
        )
    by_cupy = Counter(
        _placed(part) for part in _host_steps(parts) if part.routine.claimed
    )
    found += [f"CuPy runs {name}" + f" x {n}" * (n > 1) for name, n in by_cupy.items()]
    waits = Counter(_waits(parts))
    found += [f"the host waits for {name}" + f" x {n}" * (n > 1) for name, n in waits.items()]
    return (*found, *_takes(launches, driver))


def _runs(line: Line, whole: bool) -> Iterable[list[KernelLaunch | LibraryCall]]:
    """What may be a graph: `whole`, or the launches between a library's calls."""
    run: list[KernelLaunch | LibraryCall] = []
    for step in line.steps:
        if whole or isinstance(step, KernelLaunch):
            run.append(step)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _takes(launches: Iterable[KernelLaunch], driver: Driver) -> Iterable[str]:
    """The most that functions take of a multiprocessor, and those whose threads have memory of
    their own: what did not fit into registers, or is indexed by data."""
    distinct = {step.function: step for step in launches}
    if not distinct:
        return
    uses = {step.name: (driver.usage(step.function), step) for step in distinct.values()}
    registers = max(uses, key=lambda name: uses[name][0].registers)
    shared = max(uses, key=lambda name: uses[name][0].shared_bytes + uses[name][1].shared)
    use, step = uses[shared]
    yield (
        f"of a multiprocessor: at most {uses[registers][0].registers} registers a thread "
        f"({registers}), {use.shared_bytes + step.shared:,} bytes of shared memory a block "
        f"({shared})"
    )
    spilled = {name: use.local_bytes for name, (use, _) in uses.items() if use.local_bytes}
    if spilled:
        named = sorted(spilled, key=lambda name: -spilled[name])
        shown = ", ".join(f"{name} {spilled[name]} bytes" for name in named[:_NAMES])
        more = f" and {len(named) - _NAMES} more" if len(named) > _NAMES else ""
        yield f"local memory (spills) of a thread: {shown}{more}"


def _placed(part: HostStep) -> str:
    return f"{part.routine.op}{_where(part)}"


def _where(part: HostStep) -> str:
    return f" at {part.routine.locs[0]}" if part.routine.locs else ""


def _host_steps(parts: Iterable[Part]) -> Iterable[HostStep]:
    """What the host begins, or does."""
    for part in parts:
        if isinstance(part, HostStep):
            yield part
        elif isinstance(part, Loop):
            yield from _host_steps((*part.test, *part.steps))
        elif isinstance(part, Either):
            yield from _host_steps((*part.then, *part.otherwise))


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _waits(parts: Iterable[Part]) -> Iterable[str]:
    """What cuts a program, as it is written down."""
    for part in parts:
        if isinstance(part, HostStep):
            if part.routine.claimed:
                continue
            cure = " (CuPy would run it on the GPU)" if would(part.routine.op) else ""
            yield f"{part.routine.op} in NumPy{_where(part)}{cure}"
        elif isinstance(part, Loop):
            if part.flag is not None:
                yield "a loop's flag, at each iteration"
            yield from _waits((*part.test, *part.steps))
        elif isinstance(part, Either):
            yield "a branch's flag"
            yield from _waits((*part.then, *part.otherwise))
