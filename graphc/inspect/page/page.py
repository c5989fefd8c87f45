"""The page of a compiled function: one file, with its style and script, that asks for nothing."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import graphc
from graphc import backends
from graphc.inspect.page import kernels, sections
from graphc.inspect.page.markup import (
    Markup,
    in_bytes,
    in_flops,
    in_seconds,
    join,
    measured,
    sound,
    tag,
)
from graphc.inspect.timing import Timing
from graphc.inspect.units import bytes_text, counted, si

if TYPE_CHECKING:
    from graphc.inspect.parts import Explained, Part

_HERE = Path(__file__).parent
_NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(found: Explained, code: bool) -> str:
    """The text of the file. `code`: with the code of kernels."""
    style = (_HERE / "style.css").read_text(encoding="utf-8")
    script = (_HERE / "script.js").read_text(encoding="utf-8")
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_NOTHING_ELSE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{found.name} · graphc"), tag("style", Markup(style)),
        tag("script", Markup("document.documentElement.classList.add('js')")),
    )
    body = tag("body", _top(found), tag("main", list(_sections(found, code))),
               tag("script", Markup(script)))
    return sound(f"<!doctype html>\n{tag('html', head, body, lang='en')}\n")


def _top(found: Explained) -> Markup:
    links = [tag("a", title, href=f"#{key}") for key, title in _contents(found)]
    return tag(
        "header", tag("h1", found.name), tag("p", found.headline), _cards(found),
        tag("p", _machine(found), class_="quiet"), tag("nav", *links, aria_label="on this page"),
    )


def _contents(found: Explained) -> Iterator[tuple[str, str]]:
    """The headings: (id, title)."""
    for number, part in enumerate(found.shown):
        alone = len(found.shown) == 1
        yield f"part-{number}", "Graph and kernels" if alone else f"{number + 1}. {part.name}"
    footprint = getattr(found, "memory", None)
    for key, title, there in (
        ("open", "Open places", found.open), ("memory", "Memory of a call", footprint),
        ("versions", "Versions", found.history),
        ("compiling", "Compile time", getattr(found, "times", None)),
        ("guards", "Guards", getattr(found, "guards", None)),
    ):
        if there:
            yield key, title


def _cards(found: Explained) -> Markup:
    """What matters most, at a glance."""
    parts = found.shown
    cards: list[tuple[Any, str]] = []
    if parts:
        steps = sum(len(part.steps) for part in parts)
        cards += [(f"{steps:,}", "step" if steps == 1 else "steps"),
                  (in_flops(sum(part.flops for part in parts)), "of work")]
    footprint = getattr(found, "memory", None)
    if footprint is not None:
        cards.append((in_bytes(footprint.peak), "memory at its most"))
    whole = [timing.whole for timing in found.timings if isinstance(timing, Timing)]
    if whole and len(whole) == len(parts):
        cards.append((in_seconds(sum(whole)), "a call" if len(whole) == 1 else "all parts"))
    times = getattr(found, "times", None)
    if times:
        cards.append((in_seconds(sum(times.values())), "to compile"))
    count = len(found.history)
    if count:
        cards.append((str(count), "version" if count == 1 else "versions"))
    host = len([step for part in parts for step in part.steps if step.kind == "NumPy"])
    if host:
        cards.append((str(host), "steps in NumPy"))
    items = [tag("li", tag("b", value), what) for value, what in cards]
    return tag("ul", items, class_="cards") if items else Markup()


def _machine(found: Explained) -> Markup:
    said = [f"graphc {graphc.__version__}", f"Python {platform.python_version()}"]
    for part in found.shown[:1]:
        built = part.built
        known = next(
            (backends.name_of(each) for each in backends.loaded() if each is built.backend), ""
        )
        said += [f"backend {known}"] if known else []
        said.append(f"{built.config.threads} threads")
    return join(", ".join(said))


# --- sections ------------------------------------------------------------------------------------


def _sections(found: Explained, code: bool) -> Iterator[Markup]:
    if found.said:
        yield tag("ul", [tag("li", line) for line in found.said])
    titles = dict(_contents(found))
    if found.open:
        yield _section("open", titles, sections.open_places(found.open))
    for number, part in enumerate(found.shown):
        timing = found.timings[number] if found.timings else ""
        yield _section(f"part-{number}", titles, *_part(number, part, timing, code))
    rest = len(found.builts) - len(found.shown)
    if rest:
        yield tag("p", f"{rest} more graphs are not shown.")
    footprint = getattr(found, "memory", None)
    if footprint is not None:
        yield _section("memory", titles, sections.footprint(footprint))
    if found.history:
        yield _section("versions", titles, sections.versions(found.history))
    if "compiling" in titles:
        yield _section("compiling", titles, sections.bill(found.times))  # type: ignore[attr-defined]
    if "guards" in titles:
        yield _section("guards", titles, sections.guards(found))


def _section(key: str, titles: dict[str, str], *contents: Markup) -> Markup:
    return tag("section", tag("h2", titles[key], id=key), *contents)


def _part(number: int, part: Part, timing: Timing | str, code: bool) -> Iterator[Markup]:
    sizes = f" Sizes of the example: {', '.join(f'{k} = {v}' for k, v in part.dims.items())}; " + (
        "the code is for any."
    ) if part.dims else ""
    yield tag(
        "p", f"{counted(len(part.built.graph.nodes), 'node')} became "
        f"{counted(len(part.steps), 'step')}, "
        f"{si(part.flops)}FLOP; {bytes_text(part.memory.peak)} at its most.{sizes}",
    )
    yield tag("p", _measured(timing))
    yield tag("h3", "Graph")
    yield sections.pictures(number, part)
    yield tag("h3", "Kernels")
    yield kernels.table_of(number, part, timing if isinstance(timing, Timing) else None)
    yield tag("h3", "Texts of the kernels")
    yield kernels.texts_of(number, part, code)
    yield tag("h3", "Memory")
    yield sections.memory(part)


def _measured(timing: Timing | str) -> Markup:
    """How the times came about."""
    if isinstance(timing, str):
        said = timing or "not measured"
        return measured(0, said[0].upper() + said[1:].rstrip(".") + ".")
    whose = "on the arguments that explain() was given" if timing.given else "on made-up numbers"
    return join([
        "A call of the native code takes ", in_seconds(timing.whole), f" in one piece, {whose}, "
        "with what Python does around it; its steps one by one ",
        in_seconds(sum(timing.steps)), " (the shortest of several runs each; a step by itself has "
        "some microseconds of overhead).",
    ])
