"""The sections of a page besides the kernels: pictures, memory, compiling, versions, guards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.engine.capture.survey import OpenPlace
from graphc.inspect.history import Compiled
from graphc.inspect.memory_picture import memory_svg
from graphc.inspect.page.kernels import packed
from graphc.inspect.page.markup import (
    Markup,
    folded,
    in_bytes,
    in_seconds,
    join,
    measured,
    quantity,
    row,
    table,
    tag,
)
from graphc.inspect.picture_layout import ROOMY
from graphc.inspect.report import short_path
from graphc.inspect.source import written_at
from graphc.inspect.units import bytes_text, counted

if TYPE_CHECKING:
    from graphc.inspect.footprint import Footprint
    from graphc.inspect.parts import Part

_PLAIN = 200_000  # letters of a text that is not packed
_TOOLS = (
    ("in", "+", "zoom in"), ("out", "−", "zoom out"), ("start", "1:1", "as at first"),
    ("fit", "all", "all of it"),
)


# --- pictures ------------------------------------------------------------------------------------


def pictures(number: int, part: Part) -> Markup:
    """The graph before and after fusion."""
    nodes = counted(len(part.built.graph.nodes), "node")
    steps = counted(len(part.steps), "step")
    fused = part.fused_svg(ROOMY, lambda step: f"#p{number}-s{step}")
    traced = part.traced_svg(ROOMY)
    return join([
        folded(f"After fusion: {steps}", _movable(fused, f"{part.name} after fusion"),
               open=True),
        folded(f"As it was traced: {nodes}", _movable(traced, f"{part.name} as traced")),
        text(f"p{number}-fused", "The fused graph's text", str(part.built.fused)),
        text(f"p{number}-traced", "The traced graph's text", str(part.built.graph)),
    ])


def _movable(svg: str, label: str) -> Markup:
    """A picture that can be moved and zoomed."""
    buttons = [tag("button", sign, type="button", data_does=does, title=title, aria_label=title)
               for does, sign, title in _TOOLS]
    hint = "drag to move; Ctrl and the wheel, or + and −, to zoom; a step leads to its row"
    return join([
        tag("div", *buttons, tag("span", hint, class_="quiet"), class_="tools"),
        tag("div", Markup(svg), class_="picture", tabindex=0, role="group", aria_label=label),
    ])


def text(key: str, title: str, content: str) -> Markup:
    """A long text, folded; a very long one is packed, too."""
    if len(content) > _PLAIN:
        return packed(key, title, content)
    return folded(title, tag("pre", content))


# --- memory --------------------------------------------------------------------------------------


def memory(part: Part) -> Markup:
    """What a call of a part has of memory, and its arena over the steps."""
    found = part.memory
    rows = [
        row(tag("th", name, scope="row"), tag("td", in_bytes(size), class_="number"))
        for name, size in (
            ("inputs", found.inputs), ("outputs", found.outputs), ("arena", found.arena),
            ("constants", found.constants), ("all of it", found.peak),
        )
    ]
    contents = [table(("what", "bytes"), rows, "what is there during a call")]
    if part.arena:
        svg = memory_svg(part.lifetimes, part.in_use(), part.arena, part.steps, part.name)
        contents += [
            tag("p", "The arena over the steps: each rectangle is a value, as high as it is large, "
                "where it lies, from the step that makes it to the last that reads it."),
            tag("div", Markup(svg), class_="chart"),
        ]
    else:
        contents.append(tag("p", "Nothing lives between its steps: there is no arena."))
    return join(contents)


def footprint(found: Footprint) -> Markup:
    """What a call and its backward pass need at their most."""
    rows = [row(tag("th", what, scope="row"), tag("td", in_bytes(size), class_="number"))
            for what, size in found.rows if size]
    contents = [table(("what", "bytes"), rows, f"at its most: {bytes_text(found.peak)}")]
    if found.at:
        contents.append(tag("p", f"The arena is fullest at {found.at}, with:"))
        values = [row(tag("th", what, scope="row"), tag("td", in_bytes(size), class_="number"))
                  for what, size in found.values]
        contents.append(table(("made by", "bytes"), values, "what is there then", sortable=True))
    return join(contents)


# --- compiling -----------------------------------------------------------------------------------


def bill(times: Mapping[str, float]) -> Markup:
    """What compiling took by stage."""
    longest = max(times.values(), default=0.0) or 1.0
    rows = [
        row(tag("th", stage, scope="row"),
            tag("td", in_seconds(seconds, seconds / longest), class_="number"))
        for stage, seconds in times.items()
    ]
    # which stages there are hangs on what was kept: the table as a whole is this run's
    return tag("div", table(("stage", "time"), rows, "compile time by stage", sortable=True),
               class_="run-table")


def versions(history: Sequence[Compiled]) -> Markup:
    """What the function was compiled for, and why."""
    rows = [
        row(
            tag("td", quantity(each.number, str(each.number)), class_="number"),
            tag("td", _lines(each.arguments or ("no arguments",)),
                tag("b", "shown on this page") if each.explained else ""),
            tag("td", _lines(each.why)),
            tag("td", measured(each.calls, f"{each.calls:,}"), class_="number"),
            tag("td", in_seconds(each.seconds), class_="number"),
        )
        for each in history
    ]
    titles = ("version", "arguments", "compiled, because", "calls", "compile time")
    return table(titles, rows, "the versions that are there", sortable=True)


def _lines(texts: Iterable[str]) -> Markup:
    return join([tag("div", each) for each in texts])


def guards(found: Any) -> Markup:
    """What the version relies on: a line per object, and each by itself."""
    pairs = zip(found.guard_costs, found.guards, strict=True)
    rows = [row(tag("td", quantity(cost, str(cost)), class_="number"), tag("td", said))
            for cost, said in pairs]
    return join([
        tag("p", "Compiled again when one of these no longer holds:"),
        tag("ul", [tag("li", line) for line in found.folded]),
        folded(f"Each of the {len(rows)} guards by itself", table(
            ("steps of Python", "guard"), rows, "in the order in which they are asked",
            sortable=True,
        )),
    ])


def open_places(places: Iterable[OpenPlace]) -> Markup:
    """What keeps a function from being one graph, with the cures."""
    rows = [
        row(place.what, tag("td", "" if place.loc is None else join([
            short_path(str(place.loc)), tag("br"), tag("code", written_at(place.loc)),
        ])), place.cure)
        for place in places
    ]
    return table(("what is open", "where", "cure"), rows, "what keeps it from being one graph")
