"""The kernels that GPUs run while somebody profiles."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from .. import backends
from ..config import current
from ..cuda.available import gpus
from ..inspect.cost import launch_cost

_Costs: TypeAlias = dict[tuple[Any, ...], tuple[int, int]]


class Work(NamedTuple):
    """What a kernel, or several equal ones at once, has to do: bytes of the buffers that it reads
    and writes, floating-point operations; and the seconds that it took, with all its launches.
    `what`: the kernel's operators, and the user's line of the first."""

    bytes: int
    flops: int
    seconds: float
    device: int  # the GPU's number
    what: str

    def and_(self, other: Work) -> Work:
        """Both."""
        return Work(
            self.bytes + other.bytes, self.flops + other.flops, self.seconds + other.seconds,
            self.device, self.what,
        )


class Ran(NamedTuple):
    """A launch: its name, when it began, and the seconds that it took. `work`: of the whole kernel,
    at the first of its launches."""

    name: str
    began: float
    seconds: float
    work: Work | None


class Kernels:
    """Those of the current GPU, and of all that are in use, from here to `end`. A GPU that somebody
    else times is left out."""

    def __init__(self) -> None:
        current = gpus().current_index
        self._gpus = [
            found for found in gpus().devices
            if (found.begun or found.index == current) and found.timer is None
        ]
        self._began = []
        for found in self._gpus:
            found.synchronise()
            self._began.append(time.perf_counter())
            found.time()

    def end(self) -> list[Ran]:
        """All launches, in their order."""
        costs: _Costs = {}
        return [
            ran for found, began in zip(self._gpus, self._began, strict=True)
            for ran in _ran(found.times(), began, found.index, costs)
        ]


def _ran(all_timed: list[Any], began: float, device: int, costs: _Costs) -> Iterator[Ran]:
    """Each kernel's launches; the first of them says what it is."""
    begins = [n for n, timed in enumerate(all_timed) if timed.of or not n]
    for first, end in pairwise([*begins, len(all_timed)]):
        launches = all_timed[first:end]
        seconds = 1e-3 * sum(timed.taken for timed in launches)
        cost = _cost(launches[0].of, launches[0].dims, costs)
        of = launches[0].of
        work: Work | None = Work(*cost, seconds, device, _what(of[0])) if of else None
        for timed in launches:
            yield Ran(timed.name, began + 1e-3 * timed.start, 1e-3 * timed.taken, work)
            work = None


def _what(step: Any) -> str:
    return f"{step.kernel.name} {step.locs[0]}" if step.locs else str(step.kernel.name)


def _cost(of: tuple[Any, ...], dims: Mapping[str, int], costs: _Costs) -> tuple[int, int]:
    key = tuple(map(id, of)), tuple(dims.items())
    if key not in costs:
        machine = backends.get("cuda").machine
        found = [launch_cost(step, dims, machine) for step in of]
        costs[key] = (
            sum(cost.read + cost.written for cost in found), sum(cost.flops for cost in found)
        )
    return costs[key]


# --- what a table says of them -------------------------------------------------------------------

TITLES = ("CUDA bytes", "TB/s", "% of copy", "CUDA FLOP", "TFLOP/s", "% of bf16 peak")


def said(work: Work | None) -> tuple[str, ...]:
    """A row's cells: shares are of what the device was measured to do at most."""
    if work is None:
        return ("",) * len(TITLES)
    moved, flops = f"{work.bytes:.3g}", f"{work.flops:.3g}"
    if not work.seconds:  # no clock
        return moved, "", "", flops, "", ""
    speed, rate = work.bytes / work.seconds, work.flops / work.seconds
    most = ceilings(work.device)
    shares = (f"{speed / most.bytes:.1%}", f"{rate / most.flops:.1%}") if most else ("", "")
    return moved, f"{speed / 1e12:.3f}", shares[0], flops, f"{rate / 1e12:.3g}", shares[1]


def ceilings(device: int) -> Any:
    """What a GPU does at most (backends/cuda/ceilings.py), measured at the first question."""
    backend: Any = backends.get("cuda")
    return backend.on(device).ceilings(current().cache_dir)
