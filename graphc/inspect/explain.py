"""`explain(fn, *args)`: what a compiled function became, as a report, texts and pictures."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import graphc
from graphc.engine.built import Built
from graphc.engine.capture.survey import NoGraph
from graphc.inspect.assumptions import folded
from graphc.inspect.explain_segments import (
    SegmentsExplanation,
    explain_segments,
    open_lines,
)
from graphc.inspect.footprint import Footprint, footprint_of
from graphc.inspect.memory import Memory, memory_of
from graphc.inspect.observer import kernels_of
from graphc.inspect.picture import graph_svg
from graphc.inspect.report import (
    Step,
    kernel_uses,
    steps_of,
    without_folder,
)
from graphc.inspect.tiles import tile_lines
from graphc.inspect.units import bytes_text, si
from graphc.ir.kernel.text import print_kernel

if TYPE_CHECKING:
    # compile.py imports the pipeline, which is watched by this package
    from graphc.engine.version.frozen import Constants
    from graphc.engine.version.guards import Guard
    from graphc.engine.version.version import Specialisation


_NAMES = 6  # of tensors that a step's line shows


@dataclass(frozen=True)
class Part:
    """One compiled graph of a function: all of it, or its forward or its backward."""

    built: Built
    steps: list[Step]
    memory: Memory


class Explanation:
    """What `explain` found. str() is the report; figures are those of the example's sizes."""

    def __init__(
        self, name: str, builts: Iterable[Built], guards: Sequence[Guard] = (),
        seconds: float | None = None, versions: int = 1, memory: Footprint | None = None,
        constants: Constants | None = None,
    ) -> None:
        self.name = name
        self._constants = None if constants is None else _constants_line(constants)
        self.memory = memory  # of a call and its backward pass; None: of an exported program
        self.parts = [
            Part(b, steps_of(b), memory_of(b, b.graph.env.hints)) for b in builts
        ]
        # all that the version relies on, in the order in which it is asked, and what asking takes
        # in steps of Python, some 30 ns each
        self.guards = [without_folder(guard.text()) for guard in guards]
        self.guard_costs = [guard.cost for guard in guards]
        self._folded = list(folded(guards))
        self._counted = sum(guard.cost for guard in guards if guard.counted)
        self.versions = versions
        self.times = _times(self.parts, seconds)

    @property
    def steps(self) -> list[Step]:
        """Every step of every part: kernels and NumPy callbacks, in the order they run."""
        return [step for part in self.parts for step in part.steps]

    @property
    def callbacks(self) -> list[Step]:
        """The steps that NumPy runs, because there is no native code for their operator."""
        return [step for step in self.steps if step.kind == "NumPy"]

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
            name.write_text(_picture(part), encoding="utf-8")

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """One page: the report, the pictures, and the texts folded away."""
        sections = [f"<h1>{escape(self.name)}</h1>", f"<pre>{escape(str(self))}</pre>"]
        for part in self.parts:
            sections.append(f"<h2>{escape(part.built.fused.name)}</h2>")
            sections.append(f'<div style="overflow:auto">{_picture(part)}</div>')
        for title, text in (("Guards", self.guards_text), ("Traced graph", self.graph_text),
                            ("Fused graph", self.fused_text), ("Kernels", self.kernels_text)):
            sections.append(
                f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"
            )
        page = (
            f'<!doctype html><html><head><meta charset="utf-8"><title>{escape(self.name)}</title>'
            f"</head><body>\n{chr(10).join(sections)}\n</body></html>\n"
        )
        Path(path).write_text(page, encoding="utf-8")

    def __repr__(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: " + (
            "forward and backward" if len(self.parts) > 1 else "one graph"
        ) + f", {self.versions} compiled version{'s' if self.versions != 1 else ''}"
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
            yield from (f"  {line}" for line in self._folded)
            always = sum(self.guard_costs) - self._counted
            more = f", {self._counted} more after a write" if self._counted else ""
            yield (
                f"  (each of the {len(self.guards)} by itself: the explanation's .guards; asking "
                f"takes {always} steps of Python{more})"
            )


def _constants_line(constants: Constants) -> str:
    """What is kept beside weights: computed of them, or the same numbers in another order."""
    size = bytes_text(sum(tensor._array.nbytes for tensor in constants.made))
    runs = f"{constants.runs} time{'s' if constants.runs != 1 else ''}"
    return (
        f"computed or laid out of {len(constants.sources)} captured tensors, and kept beside them: "
        f"{len(constants.made)} values, {size}; done {runs}, whenever these were written to "
        "(with max_memory=, at every call)"
    )


def _picture(part: Part) -> str:
    steps = [step.node for step in part.steps]
    return graph_svg(part.built.fused, {n: i for i, n in enumerate(steps) if n is not None})


def _part_lines(part: Part) -> Iterator[str]:
    dims = part.built.graph.env.hints
    sizes = f" at {', '.join(f'{k} = {v}' for k, v in dims.items())}" if dims else ""
    flops = sum(step.cost.flops * (step.times or 1) for step in part.steps)
    yield (
        f"graph {part.built.fused.name}{sizes}: {len(part.built.graph.nodes)} nodes, "
        f"{len(part.steps)} steps{_on_host(part)}, {si(flops)}FLOP"
    )
    memory = part.memory
    yield (
        f"memory: peak {bytes_text(memory.peak)} = inputs {bytes_text(memory.inputs)} + outputs "
        f"{bytes_text(memory.outputs)} + arena {bytes_text(memory.arena)} + constants "
        f"{bytes_text(memory.constants)}"
    )
    callbacks = [step for step in part.steps if step.kind == "NumPy"]
    for step in callbacks:
        where = f" at {step.lines[0][0]}" if step.lines[0][0] else ""
        yield f"NumPy runs {step.name}{where}: there is no native code for it"
    yield from part.built.executable.stats.remarks
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


# --- what is explained -----------------------------------------------------------------------


def explain(
    function: Any, *args: Any, **kwargs: Any
) -> Explanation | SegmentsExplanation:
    """What `function(*args, **kwargs)` compiles to. It is compiled if it is not yet, never run.
    Of a function that runs in segments: what its calls so far came to, and every place that is
    open for these arguments (SegmentsExplanation). To find those, open Python runs once (a file
    that it writes is written); tensors and all other state stay as they are.

    `function`: compiled or not, a Module, or an exported program. Without the arguments that it
    needs: the version that was compiled last.
    """
    compiled = _compiled(function)
    if not hasattr(compiled, "version"):
        if hasattr(function, "lower"):
            built = function.lower(*args, **kwargs)
            return Explanation(built.name, [built])
        compiled = _compiled(graphc.compile(function))
    if compiled.segments is not None:
        places = compiled.open_places(*args, **kwargs) if args or kwargs else []
        return explain_segments(compiled.segments, places)
    called = bool(args or kwargs) or _binds(function)
    version = None if called else compiled.newest
    if version is None and not called:
        raise TypeError(
            f"explain() of {compiled.name}(), which was not called yet and takes arguments. "
            f"Cure: explain({compiled.name}, ...) with such arguments, or call it first"
        )
    if version is None:
        version = compiled.look_at(args, kwargs)
    if isinstance(version, NoGraph):
        if compiled.fullgraph:
            raise version.error
        places = version.open
        lines = open_lines(places) if places else [f"runs in segments: {version.error}"]
        return SegmentsExplanation(compiled.name, [], list(lines), places)
    return Explanation(
        compiled.name, _builts(version), version.guards.records,
        version.compile_seconds, compiled.compile_count, footprint_of(version), version.constants,
    )


def _compiled(function: Any) -> Any:
    """The CompiledFunction behind a compiled Module (on its class, where it is no bound method)."""
    return getattr(type(function), "_compiled_function", function)


def _binds(function: Any) -> bool:
    """Whether a function can be called without arguments."""
    try:
        inspect.signature(getattr(function, "forward", function)).bind()
    except TypeError:
        return False
    except ValueError:  # C code without a signature
        return True
    return True


def _builts(version: Specialisation) -> list[Built]:
    plan = version.plan
    if plan is None:
        return [version.engine.built]
    parts = list(plan.parts.made.values()) or [plan.parts.whole()]
    hints = version.graph.env.hints
    engines = [p.engines.made or [p.engines.at(hints)] for p in parts if p.engines is not None]
    return [version.engine.built, *(engine.built for made in engines for engine in made)]
