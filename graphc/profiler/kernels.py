"""The kernels that run while somebody profiles, on the CPU and on GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from .. import backends
from ..config import current
from ..cuda.available import gpus
from ..engine.pipeline import host
from ..inspect.cost import Cost, launch_cost, routine_cost
from ..ir.kernel import Launch, Leaf

_Costs: TypeAlias = dict[tuple[Any, ...], tuple[int, int]]


class Work(NamedTuple):
    """What a kernel, or several equal ones at once, has to do: bytes of the buffers that it reads
    and writes, floating-point operations; and the seconds that it took, with all its launches.
    `what`: the kernel's operators, and the user's line of the first."""

    bytes: int
    flops: int
    seconds: float
    device: int | None  # the GPU's number; None: the CPU
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


def cost_of(step: Leaf, dims: Mapping[str, int]) -> Cost:
    """Of a step on the CPU; the work of what the host runs is not known."""
    if isinstance(step, Launch):
        return launch_cost(step, dims, backends.get("llvm").machine)
    return routine_cost(step, dims)


# --- what a table says of them -------------------------------------------------------------------

TITLES = ("Bytes", "GB/s", "% of copy", "FLOP", "GFLOP/s", "% of peak")


def said(work: Work | None) -> tuple[str, ...]:
    """A row's cells: shares are of what the device was measured to do at most, in copies beyond
    the caches and in multiply-adds: f32 on the CPU, bf16 on a GPU."""
    if work is None:
        return ("",) * len(TITLES)
    moved, flops = f"{work.bytes:.3g}", f"{work.flops:.3g}"
    if not work.seconds:  # no clock
        return moved, "", "", flops, "", ""
    speed, rate = work.bytes / work.seconds, work.flops / work.seconds
    most = ceilings(work.device)
    shares = (f"{speed / most.bytes:.1%}", f"{rate / most.flops:.1%}") if most else ("", "")
    return moved, f"{speed / 1e9:.4g}", shares[0], flops, f"{rate / 1e9:.4g}", shares[1]


def ceilings(device: int | None) -> Any:
    """What a device does at most (backends/*/ceilings.py), measured at the first question."""
    backend: Any = backends.get("llvm" if device is None else "cuda")
    if device is not None:
        backend = backend.on(device)
    return backend.ceilings(host(current()))
