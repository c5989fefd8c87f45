"""What explain() says of how a program runs on a GPU: launches, graphs, where the host waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphc.backends.cuda.graphs import LEAST
from graphc.backends.cuda.steps import Either, HostStep, KernelLaunch, Loop, Part, lines


def remarks(parts: tuple[Part, ...], choice: str) -> tuple[str, ...]:
    """Lines; `choice` is GRAPHC_CUDA_GRAPHS."""
    found = list(lines(parts))
    launches = sum(isinstance(step, KernelLaunch) for line in found for step in line.steps)
    calls = sum(len(line.steps) for line in found) - launches
    said = [_counted(launches, "launch", "launches")]
    if calls:
        said.append(_counted(calls, "library call", "library calls"))
    least = {"0": None, "1": 1}.get(choice, LEAST)
    graphs = 0 if least is None else sum(len(line.steps) >= least for line in found)
    said.append(_counted(graphs, "CUDA graph", "CUDA graphs") + f" (GRAPHC_CUDA_GRAPHS={choice})")
    waits = Counter(_waits(parts))
    cut = [f"the host waits for {name}" + f" x {n}" * (n > 1) for name, n in waits.items()]
    return (", ".join(said), *cut)


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _waits(parts: Iterable[Part]) -> Iterable[str]:
    """What cuts a program, as it is written down."""
    for part in parts:
        if isinstance(part, HostStep):
            where = f" at {part.routine.locs[0]}" if part.routine.locs else ""
            yield f"{part.routine.op} in NumPy{where}"
        elif isinstance(part, Loop):
            if part.flag is not None:
                yield "a loop's flag, at each iteration"
            yield from _waits((*part.test, *part.steps))
        elif isinstance(part, Either):
            yield "a branch's flag"
            yield from _waits((*part.then, *part.otherwise))
