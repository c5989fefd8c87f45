"""What is explained, graph by graph: the parts that reports, pages and notebooks are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graphc.engine.built import Built
from graphc.engine.capture.survey import OpenPlace
from graphc.inspect.history import Compiled
from graphc.inspect.lifetimes import Lifetime, lifetimes, live
from graphc.inspect.memory import Memory, memory_of
from graphc.inspect.page.fragment import fragment
from graphc.inspect.page.page import page
from graphc.inspect.picture import graph_svg
from graphc.inspect.picture_layout import COMPACT, Room
from graphc.inspect.report import Step, steps_of
from graphc.inspect.timing import Given, Timing, timing_of
from graphc.ir.dim import evaluate
from graphc.ir.graph import Node

_SHOWN = 16  # parts of a page


@dataclass(frozen=True)
class Part:
    """One compiled graph of a function: all of it, its forward or its backward, or a segment."""

    built: Built
    steps: list[Step]
    memory: Memory

    @property
    def name(self) -> str:
        """The graph's."""
        return self.built.fused.name

    @property
    def dims(self) -> Mapping[str, int]:
        """The sizes of the example, where sizes are symbolic."""
        return self.built.graph.env.hints

    @property
    def flops(self) -> int:
        """Of a call; what data decide counts once."""
        return sum(step.cost.flops * (step.times or 1) for step in self.steps)

    @property
    def arena(self) -> int:
        """Its bytes, without the scratch of contractions."""
        return evaluate(self.built.program.arena_bytes, self.dims)

    @cached_property
    def lifetimes(self) -> list[Lifetime]:
        """Who lives in the arena."""
        return lifetimes(self.built.program, self.dims)

    def in_use(self) -> list[int]:
        """Bytes of the arena by step."""
        return live(self.lifetimes, len(self.steps))

    def fused_svg(
        self, room: Room = COMPACT, link: Callable[[int], str] | None = None
    ) -> str:
        """The fused graph; its steps have the numbers of the report."""
        numbers: dict[Node, int] = {}
        times: dict[Node, int | None] = {}  # of all steps that a node runs as
        for number, step in enumerate(self.steps):
            if step.node is not None:
                numbers.setdefault(step.node, number)
                before = times.get(step.node, 0)
                some = before is None or step.times is None
                times[step.node] = None if some else (before or 0) + (step.times or 0)
        notes = {
            node: " in a loop" if count is None else f" × {count:,}"
            for node, count in times.items() if count != 1
        }
        return graph_svg(self.built.fused, numbers, room, notes, link)

    def traced_svg(self, room: Room = COMPACT) -> str:
        """The graph as it was traced."""
        return graph_svg(self.built.graph, None, room)


def part_of(built: Built) -> Part:
    """A compiled graph, looked at."""
    return Part(built, steps_of(built), memory_of(built, built.graph.env.hints))


class Explained:
    """What explain() found of a function: a page, and what a notebook shows, are made of it."""

    def __init__(self, name: str, builts: Iterable[Built]) -> None:
        self.name, self.builts = name, list(builts)
        self.timings: list[Timing | str] = []  # of each part, once measured; or why it is not
        self.history: list[Compiled] = []  # the versions of the function
        self.open: list[OpenPlace] = []  # each place that keeps the function from being one graph
        self.given: Callable[[], Given | None] | None = None  # what the first part would read

    @cached_property
    def shown(self) -> list[Part]:
        """The first parts: what a page has room for."""
        return [part_of(built) for built in self.builts[:_SHOWN]]

    @cached_property
    def parts(self) -> list[Part]:
        """Every compiled graph."""
        return [*self.shown, *map(part_of, self.builts[_SHOWN:])]

    @property
    def steps(self) -> list[Step]:
        """Every step of every part: kernels and NumPy callbacks, in the order they run."""
        return [step for part in self.parts for step in part.steps]

    @property
    def callbacks(self) -> list[Step]:
        """The steps that NumPy runs, because there is no native code for their operator."""
        return [step for step in self.steps if step.kind == "NumPy"]

    @property
    def headline(self) -> str:
        """What it is, in a line."""
        raise NotImplementedError

    @property
    def said(self) -> list[str]:
        """What a page tells below the headline, a line each."""
        return []

    def measure(self) -> None:
        """Run each part's native code some times, on copies of what it writes, and keep what it
        took in `timings`: of the arguments that explain() was given, or on made-up numbers."""
        given = None if self.given is None else self.given()
        self.timings = [
            timing_of(part.built, given if number == 0 else None)
            for number, part in enumerate(self.shown)
        ]

    def save_html(
        self, path: str | os.PathLike[str], *, measure: bool = True, code: bool = True
    ) -> None:
        """Write one page that needs nothing else: graphs before and after fusion, kernels with
        source lines, texts and costs, memory over time, versions and guards.

        `measure`: with what each kernel takes (see `measure()`), if that is not known yet; `code`:
        with the code of each kernel.
        """
        if measure and not self.timings:
            self.measure()
        Path(path).write_text(page(self, code), encoding="utf-8")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(self)
