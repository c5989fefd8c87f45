"""What a notebook shows: no script, and a style for itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.inspect.history import history_of
from graphc.inspect.page import sections
from graphc.inspect.page.kernels import lines_of, swatch
from graphc.inspect.page.markup import (
    Content,
    Markup,
    folded,
    in_bytes,
    in_flops,
    in_seconds,
    join,
    row,
    sound,
    table,
    tag,
)
from graphc.inspect.timing import Timing
from graphc.inspect.units import bytes_text, counted, si
from graphc.ir.kernel import Kernel, Launch, Program, leaves
from graphc.ir.kernel.program_text import print_program
from graphc.ir.kernel.text import print_kernel

if TYPE_CHECKING:
    from graphc.inspect.parts import Explained, Part

_STEPS = 40  # of a part
_STYLE = (
    ".graphc-shown table{border-collapse:collapse;font-size:.87em}.graphc-shown th,.graphc-shown td"
    "{text-align:left;vertical-align:top;padding:.15em .6em}.graphc-shown td.number{text-align:"
    "right;white-space:nowrap}.graphc-shown caption{text-align:left;opacity:.8}"
    ".graphc-shown .swatch{display:inline-block;width:.65em;height:.65em;margin-right:.4em}"
    ".graphc-shown .bar{display:block;width:6em;height:4px;background:#8884}"
    ".graphc-shown .bar::before{content:'';display:"
    "block;height:100%;width:calc(100%*var(--share));background:#5b8fd0}.graphc-shown .wide,"
    ".graphc-shown .picture{overflow:auto}.graphc-shown .picture{max-height:40em}"
)


def shown(*contents: Content) -> Markup:
    """What a notebook is given."""
    inner = tag("div", tag("style", Markup(_STYLE)), *contents, class_="graphc-shown")
    return Markup(sound(inner))


def fragment(found: Explained) -> str:
    """Of an explanation: what it came to, its steps, the fused graphs."""
    timings = [*found.timings, *[""] * (len(found.shown) - len(found.timings))]
    parts = [_part(part, timing) for part, timing in zip(found.shown, timings, strict=True)]
    more = [tag("li", line) for line in found.said]
    contents: list[Content] = [
        tag("p", tag("b", found.name), ": ", found.headline), tag("ul", more) if more else "",
        *parts,
    ]
    if found.open:
        contents.append(sections.open_places(found.open))
    if len(found.history) > 1:
        contents.append(folded("Versions", sections.versions(found.history)))
    contents.append(tag("p", ".save_html(path) writes a page with all of it"))
    return shown(*contents)


def _part(part: Part, timing: Timing | str) -> Markup:
    times = isinstance(timing, Timing)
    titles = ["step", "kernel", "kind", "your lines", "reads", "writes", "work"]
    longest = max(timing.steps, default=0.0) if isinstance(timing, Timing) else 0.0
    rows = []
    for number, step in enumerate(part.steps[:_STEPS]):
        places = [line.place for line in lines_of(step) if line.place]
        cells: list[Content] = [
            str(number), step.name, tag("td", swatch(step.kind), step.kind),
            (places[0] if places else "") + (f" and {len(places) - 1} more" if places[1:] else ""),
            *(tag("td", each, class_="number") for each in (
                in_bytes(step.cost.read), in_bytes(step.cost.written), in_flops(step.cost.flops),
            )),
        ]
        if isinstance(timing, Timing):
            seconds = timing.steps[number]
            share = seconds / longest if longest else 0.0
            cells.append(tag("td", in_seconds(seconds, share), class_="number"))
        rows.append(row(*cells))
    rest = len(part.steps) - len(rows)
    caption = f"{part.name}: {counted(len(part.steps), 'step')}, {si(part.flops)}FLOP, " + (
        f"{bytes_text(part.memory.peak)} of memory" + (f"; {rest} more steps" if rest else "")
    )
    picture = tag("div", Markup(part.fused_svg()), class_="picture")
    return join([
        table([*titles, *(["time"] if times else [])], rows, caption),
        folded("The graph after fusion", picture),
    ])


def of_compiled(compiled: Any) -> str:
    """Of a compiled function: its versions, or what its segments came to."""
    head = tag("p", tag("b", compiled.name), f": compiled by {compiled.backend}")
    history = history_of(compiled.function, compiled.versions(), None)
    if compiled.segments is not None:
        segments = compiled.segments
        said = (
            f"It runs in segments: {segments.calls} calls, {segments.compile_count} graphs. "
            "explain() says why."
        )
        return shown(head, tag("p", said), sections.versions(history) if history else "")
    if not history:
        count = compiled.compile_count
        gone = f"{counted(count, 'version')} compiled; none is left: what they were for is gone."
        return shown(head, tag("p", gone if count else "It was not called yet."))
    return shown(head, sections.versions(history), tag(
        "p", "explain() says what they became; .save_html(path) writes a page about it"
    ))


def of_ir(thing: Kernel | Program) -> str:
    """Of a kernel or a program: what it works on, and its text."""
    if isinstance(thing, Kernel):
        rows = [row(p.name, p.dtype.name, str(p.size), _ACCESS[p.access]) for p in thing.params]
        titles: Sequence[Content] = ("buffer", "dtype", "elements", "use")
        said = _template_of(thing)
        text = print_kernel(thing)
    else:
        steps = list(leaves(thing.steps))
        kernels = {id(step.kernel) for step in steps if isinstance(step, Launch)}
        rows = [
            row(name, str(type_)) for name, types in (
                ("input", thing.input_types), ("output", thing.output_types)
            ) for type_ in types
        ]
        titles = ("buffer", "type")
        said = f"{len(steps)} steps, {len(kernels)} kernels, arena of {thing.arena_bytes} bytes"
        text = print_program(thing)
    return shown(
        tag("p", tag("b", thing.name), f": {said}"), table(titles, rows, "its buffers"),
        folded("Its text", tag("pre", text)),
    )


_ACCESS = {"in": "read", "out": "written", "inout": "read and written", "scratch": "scratch"}


def _template_of(kernel: Kernel) -> str:
    if kernel.template is not None:
        return f"a {type(kernel.template).__name__.lower()}"
    count = len(kernel.stages)
    return f"{count} stage{'s' if count != 1 else ''} of loops"
