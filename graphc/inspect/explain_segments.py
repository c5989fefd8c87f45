"""`explain` for a function that runs in segments: how many, their ends, the cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from graphc.engine.segments.nested import LEAST
from graphc.inspect.parts import Explained
from graphc.inspect.report import short_path

if TYPE_CHECKING:
    from graphc.engine.capture.survey import OpenPlace
    from graphc.engine.segments.segments import Segments
    from graphc.frontend.errors import TraceError


class SegmentsExplanation(Explained):
    """What is known of a function that is no one graph: of its segments, or, with `refused`, why
    fullgraph=True, which wants one, raises that error. str() is the report."""

    def __init__(
        self, name: str, builts: list[Any], lines: list[str], open: list[OpenPlace],
        refused: TraceError | None = None,
    ) -> None:
        super().__init__(name, builts)  # the compiled forward graph of each segment
        self.open = open
        self.lines = lines
        self.refused = refused

    @property
    def headline(self) -> str:
        """What it is, in a line."""
        return "in segments" if self.refused is None else "refused: no one graph"

    @property
    def said(self) -> list[str]:
        """What its calls came to, without the open places, which have a table."""
        told = {*open_lines(self.open)}
        return [line.strip() for line in self.lines if line not in told]

    def __repr__(self) -> str:
        return "\n".join([f"{self.name}: {self.headline}", *self.lines]) + "\n"


def explain_segments(segments: Segments, places: list[OpenPlace]) -> SegmentsExplanation:
    """What the calls of a function so far came to, and which places in it are open."""
    versions = [v for known in segments.versions.values() for v in known]
    lines = [*_lines(segments, versions), *open_lines(places)]
    return SegmentsExplanation(segments.name, [v.engine.built for v in versions], lines, places)


def without_graph(
    name: str, places: list[OpenPlace], error: TraceError, fullgraph: bool
) -> SegmentsExplanation:
    """Of a function that was looked at, and is no one graph."""
    if fullgraph:
        told = f"fullgraph=True refuses it, for {len(places)} places in it are open:"
        found = [*open_lines(places, told)] or [f"fullgraph=True refuses it: {error}"]
        return SegmentsExplanation(name, [], found, places, error)
    found = [*open_lines(places)] or [f"runs in segments: {error}"]
    return SegmentsExplanation(name, [], found, places)


def open_lines(places: list[OpenPlace], told: str = "") -> Iterator[str]:
    """The open places of a function, one a line, below what is `told` of them."""
    if places:
        yield told or f"its Python runs at each call, for {len(places)} places in it are open:"
    for place in places:
        where = "" if place.loc is None else f" at {short_path(str(place.loc))}"
        inside = place.loc.function if place.loc is not None else ""
        yield f"  {place.what}{where}" + (
            f" in {inside}" if inside not in ("", "<module>") else ""
        ) + f". Cure: {place.cure}"


def _lines(segments: Segments, versions: list[Any]) -> Iterator[str]:
    calls = max(segments.calls, 1)
    tiers = segments.tiers
    native = sum(version.calls for version in versions)
    runs = native + tiers.stepwise_runs
    yield (
        f"{len(versions)} compiled segments, {segments.compile_count} graphs compiled; "
        f"{segments.calls} calls ran {runs} segments, {runs / calls:.1f} a call"
    )
    yield (
        f"{native} of them ran compiled, {tiers.stepwise_runs} operator by operator: met for the "
        f"first time, or too small so far ({tiers.compiled} nodes compiled for {tiers.work} run)"
    )
    if tiers.plain:
        yield f"{tiers.plain_calls} later calls were plain eager code: {tiers.plain}"
    elif tiers.waits:
        yield (
            f"{tiers.waits} more calls are plain eager code: so much is to be run before it is "
            "compiled"
        )
    yield (
        "its Python runs at each call and is recorded anew: "
        f"{1e3 * segments.seconds / calls:.2f} ms a call besides the compiled code"
    )
    for end, count in sorted(segments.ends.items(), key=lambda item: -item[1]):
        where = "" if end.loc is None else f" at {short_path(str(end.loc))}"
        yield f"  {end.reason}{where} ended a segment {count} times"
    for known in segments.modules.found.values():
        name = f"  Module {known.path} ({known.kind})" if known.path else f"  a {known.kind}"
        if known.calls:
            state = f", no more: {known.open}" if known.open else ""
            yield (
                f"{name} ran {known.calls} times as a version of its own "
                f"({known.compiled.compile_count} compiled){state}"
            )
        elif known.open and known.nodes >= LEAST:
            yield f"{name} is no version of its own: {known.open}"
    for version in versions:
        graph = version.engine.built.graph
        sizes = f" for any {', '.join(graph.env.hints)}" if graph.env.hints else ""
        yield (
            f"  segment of {len(graph.nodes)} nodes{sizes}: ran {version.calls} times, "
            f"compiled in {1e3 * version.seconds:.1f} ms"
        )
    yield "Cure: keep values as tensors (torch.where, ...); fullgraph=True makes each an error"
