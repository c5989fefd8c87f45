"""An Explanation: what a compiled function became, as a report and texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphc.engine.built import Built
from graphc.inspect.assumptions import folded
from graphc.inspect.footprint import Footprint
from graphc.inspect.observer import kernels_of
from graphc.inspect.parts import Explained, Part
from graphc.inspect.report import Step, kernel_uses, without_folder
from graphc.inspect.tiles import tile_lines
from graphc.inspect.units import bytes_text, si
from graphc.ir.kernel.text import print_kernel

if TYPE_CHECKING:
    # compile.py imports the pipeline, which is watched by this package
    from graphc.engine.version.frozen import Constants
    from graphc.engine.version.guards import Guard


_NAMES = 6  # of tensors that a step's line shows


class Explanation(Explained):
    """What `explain` found. str() is the report; figures are those of the example's sizes."""

    def __init__(
        self, name: str, builts: Iterable[Built], guards: Sequence[Guard] = (),
        seconds: float | None = None, versions: int = 1, memory: Footprint | None = None,
        constants: Constants | None = None,
    ) -> None:
        super().__init__(name, builts)
        self._constants = None if constants is None else _constants_line(constants)
        self.memory = memory  # of a call and its backward pass; None: of an exported program
        # all that the version relies on, in the order in which it is asked, and what asking takes
        # in steps of Python, some 30 ns each
        self.guards = [without_folder(guard.text()) for guard in guards]
        self.guard_costs = [guard.cost for guard in guards]
        self.folded = list(folded(guards))  # the same, a line per object
        self._counted = sum(guard.cost for guard in guards if guard.counted)
        self.versions = versions
        self.times = _times(self.parts, seconds)

    @property
    def headline(self) -> str:
        """What it is, in a line."""
        kind = "forward and backward" if len(self.parts) > 1 else "one graph"
        return f"{kind}, {self.versions} compiled version{'s' if self.versions != 1 else ''}"

    @property
    def said(self) -> list[str]:
        """Remarks of the backend, what NumPy runs, what is computed once."""
        lines = [line for part in self.parts for line in _remarks(part)]
        return lines + ([self._constants] if self._constants is not None else [])

    @property
    def graph_text(self) -> str:
        """The traced graphs."""
        return "\n".join(str(part.built.graph) for part in self.parts)

    @property
    def fused_text(self) -> str:
        """The graphs after fusion."""
        return "\n".join(str(part.built.fused) for part in self.parts)

    @property
    def kernels_text(self) -> str:
        """Every distinct kernel, under the steps that run it and what its buffers are there."""
        texts: list[str] = []
        for part in self.parts:
            uses = kernel_uses(
                part.built.program, part.built.fused, part.built.backend.machine
            )
            for kernel in kernels_of(part.built.program):
                texts += [f"# {use}" for use in uses[id(kernel)]]
                texts.append(print_kernel(kernel))
        return "\n".join(texts)

    @property
    def guards_text(self) -> str:
        """Every guard, with what asking takes."""
        pairs = zip(self.guard_costs, self.guards, strict=True)
        return "\n".join(f"{cost:5} {text}" for cost, text in pairs)

    def save_svg(self, path: str | os.PathLike[str]) -> None:
        """Draw the fused graph; a forward and a backward are two pictures, .backward before .svg
        in the second one's name."""
        target = Path(path)
        for number, part in enumerate(self.parts):
            name = target if number == 0 else target.with_suffix(f".backward{target.suffix}")
            name.write_text(part.fused_svg(), encoding="utf-8")

    def __repr__(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.headline}"
        for part in self.parts:
            yield ""
            yield from _part_lines(part)
        if self.memory is not None:
            yield ""
            yield f"memory of a call: peak {bytes_text(self.memory.peak)}"
            yield from self.memory.lines()
        if self._constants is not None:
            yield self._constants
        yield ""
        yield "compile time, ms: " + ", ".join(f"{k} {1e3 * v:.1f}" for k, v in self.times.items())
        kernels = {s.symbol: s.cached for s in self.steps if s.cached is not None}
        if kernels:
            hits = sum(cached is True for cached in kernels.values())
            yield f"kernels from the cache: {hits} of {len(kernels)}"
        if self.guards:
            yield "compiled again when one of these no longer holds:"
            yield from (f"  {line}" for line in self.folded)
            always = sum(self.guard_costs) - self._counted
            more = f", {self._counted} more after a write" if self._counted else ""
            yield (
                f"  (each of the {len(self.guards)} by itself: the explanation's .guards; asking "
                f"takes {always} steps of Python{more})"
            )


def _constants_line(constants: Constants) -> str:
    """What is kept beside weights: computed of them, or the same numbers in another order."""
    size = bytes_text(sum(tensor._graphc_array.nbytes for tensor in constants.made))
    runs = f"{constants.runs} time{'s' if constants.runs != 1 else ''}"
    return (
        f"computed or laid out of {len(constants.sources)} captured tensors, and kept beside them: "
        f"{len(constants.made)} values, {size}; done {runs}, whenever these were written to "
        "(with max_memory=, at every call)"
    )


def _part_lines(part: Part) -> Iterator[str]:
    dims = part.built.graph.env.hints
    sizes = f" at {', '.join(f'{k} = {v}' for k, v in dims.items())}" if dims else ""
    yield (
        f"graph {part.built.fused.name}{sizes}: {len(part.built.graph.nodes)} nodes, "
        f"{len(part.steps)} steps{_on_host(part)}, {si(part.flops)}FLOP"
    )
    memory = part.memory
    yield (
        f"memory: peak {bytes_text(memory.peak)} = inputs {bytes_text(memory.inputs)} + outputs "
        f"{bytes_text(memory.outputs)} + arena {bytes_text(memory.arena)} + constants "
        f"{bytes_text(memory.constants)}"
    )
    yield from _remarks(part)
    yield from tile_lines(part.built)
    for number, step in enumerate(part.steps):
        yield _step_line(number, step)
        for loc, ops in step.lines:
            if step.kind != "NumPy":
                yield f"        {' '.join(ops)}" + (f"  {loc}" if loc else "")
        for verb, names in (("reads", step.reads), ("writes", step.writes)):
            if names:
                more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
                yield f"        {verb} {', '.join(names[:_NAMES])}{more}"


def _remarks(part: Part) -> Iterator[str]:
    """What NumPy runs, and what the backend says."""
    for step in part.steps:
        if step.kind == "NumPy":
            where = f" at {step.lines[0][0]}" if step.lines[0][0] else ""
            yield f"NumPy runs {step.name}{where}: there is no native code for it"
    yield from part.built.executable.stats.remarks


def _on_host(part: Part) -> str:
    """How many steps the backend leaves to the host."""
    count = sum(step.kind == "NumPy" for step in part.steps)
    return f" ({count} on the host)" if count else ""


def _step_line(number: int, step: Step) -> str:
    cost = step.cost
    chunks = f"{cost.chunks} chunks" if cost.chunks > 1 else "1 thread"
    if step.kind == "contraction" and cost.chunks > 1:
        chunks = f"up to {chunks}"
    origin = {True: ", cached", False: ", compiled", None: ""}[step.cached]
    return (
        f"  {number:4} {step.kind:<11} {step.name}: reads {bytes_text(cost.read)}, writes "
        f"{bytes_text(cost.written)}, {si(cost.flops)}FLOP, {chunks}{origin}{_times_of(step)}"
    )


def _times_of(step: Step) -> str:
    if step.times == 1:
        return ""
    return ", as often as data say" if step.times is None else f", {step.times:,} times"


def _times(parts: list[Part], seconds: float | None) -> dict[str, float]:
    """Seconds by stage, tracing first if the whole is known."""
    stages: dict[str, float] = {}
    for part in parts:
        for stage, spent in part.built.times.items():
            stages[stage] = stages.get(stage, 0.0) + spent
    if seconds is None:
        return stages
    return {"trace and guards": max(seconds - sum(stages.values()), 0.0), **stages}
