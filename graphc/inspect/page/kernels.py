"""The steps of a part as a table, and the texts of its kernels."""

from __future__ import annotations

import base64
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphc.inspect.observer import kernels_of
from graphc.inspect.page.markup import (
    Markup,
    breakable,
    folded,
    in_bytes,
    in_flops,
    in_seconds,
    join,
    measured,
    quantity,
    row,
    table,
    tag,
)
from graphc.inspect.picture_words import KINDS, OTHER, inside
from graphc.inspect.report import Step, kernel_uses
from graphc.inspect.source import UserLine, user_lines
from graphc.inspect.timing import Timing
from graphc.inspect.units import counted
from graphc.ir.kernel.text import kernel_symbol, print_kernel

if TYPE_CHECKING:
    from graphc.inspect.parts import Part

_LINES, _OPS, _NAMES = 12, 8, 12  # of a step, that are shown
_CODE = {"ll": "LLVM assembly", "cu": "CUDA C"}
_LIMITS = {"copy": "of copy", "flops": "of peak"}
_LIMIT_SAID = (
    "Limit: how near a step comes to what this machine was measured to do at most, in copies of "
    "memory beyond the caches (of copy) or in multiply-adds in registers (of peak), whichever is "
    "nearer. What lies in a cache may exceed the first."
)


def table_of(number: int, part: Part, timing: Timing | None) -> Markup:
    """The steps, each with a row that tells more."""
    titles = _titles(part, timing is not None)
    longest = max(timing.steps, default=0.0) if timing is not None else 0.0
    kernels = {
        kernel_symbol(kernel): i for i, kernel in enumerate(kernels_of(part.built.program))
    }
    rows = [
        _step(number, place, step, kernels.get(step.symbol), titles, timing, longest)
        for place, step in enumerate(part.steps)
    ]
    caption = f"{counted(len(part.steps), 'step')}, in the order in which they run"
    said = tag("p", _LIMIT_SAID, class_="quiet") if timing is not None else Markup()
    return join([said, table(titles, rows, caption, sortable=True)])


def _titles(part: Part, times: bool) -> list[str]:
    loops = any(step.times != 1 for step in part.steps)
    return [
        "step", "kernel", "kind", *(("time", "limit") if times else ()),
        *(("runs",) if loops else ()), "reads", "writes", "work", "operators", "your lines",
    ]


def lines_of(step: Step) -> list[UserLine]:
    """The user's lines behind a step."""
    if step.node is not None:
        return user_lines(inside(step.node))
    return [UserLine(place, "", ops) for place, ops in step.lines]


def _step(
    part: int, number: int, step: Step, kernel: int | None, titles: list[str],
    timing: Timing | None, longest: float,
) -> Markup:
    key = f"p{part}-s{number}"
    lines = lines_of(step)
    opens = tag(
        "button", breakable(step.name), type="button", class_="opens", aria_expanded="false",
        aria_controls=f"{key}-more",
    )
    cost = step.cost
    cells = [
        _number(quantity(number, str(number))), tag("th", opens, scope="row"),
        tag("td", swatch(step.kind), step.kind, class_="kind"),
    ]
    if timing is not None:
        seconds = timing.steps[number]
        cells.append(_number(in_seconds(seconds, seconds / longest if longest else 0.0)))
        cells.append(_limit(timing, number, step))
    if "runs" in titles:
        times = "as data say" if step.times is None else f"{step.times:,}"
        cells.append(_number(quantity(step.times or 0, times)))
    cells += [
        _number(in_bytes(cost.read)), _number(in_bytes(cost.written)),
        _number(in_flops(cost.flops)), tag("td", _few(dict.fromkeys(step.ops)), class_="words"),
        tag("td", _places(lines), class_="words"),
    ]
    more = tag("td", _more(part, step, lines, kernel), colspan=len(titles))
    return tag(
        "tbody", row(*cells), tag("tr", more, class_="more", id=f"{key}-more"), class_="step",
        id=key,
    )


def swatch(kind: str) -> Markup:
    """A kind's colour."""
    return tag("span", class_="swatch", style=f"background:{KINDS.get(kind, OTHER)}")


def _number(content: Markup) -> Markup:
    return tag("td", content, class_="number")


def _few(ops: dict[str, None]) -> str:
    names = list(ops)
    more = len(names) - _OPS
    return " ".join(names[:_OPS]) + (f" and {more} more" if more > 0 else "")


def _places(lines: list[UserLine]) -> str:
    """The first line, and how many more."""
    named = [line.place for line in lines if line.place]
    more = len(named) - 1
    return (named[0] if named else "") + (f" and {more} more" if more > 0 else "")


def _limit(timing: Timing, number: int, step: Step) -> Markup:
    """How near a step comes to what the machine does at most."""
    found = timing.share(number, step.cost, step.times)
    if found is None:
        return tag("td", measured(0.0, "not known"), class_="number")
    share, what = found
    return tag("td", measured(share, f"{share:.0%} {_LIMITS[what]}", share), class_="number")


def _more(part: int, step: Step, lines: list[UserLine], kernel: int | None) -> Iterator[Markup]:
    """The row that opens: all lines, operands, the kernel's text."""
    shown = [line for line in lines if line.place][:_LINES]
    if shown:
        items = [tag("li", line.place, ": ", " ".join(line.ops),
                     (tag("br"), tag("code", line.text)) if line.text else "") for line in shown]
        rest = len(lines) - len(shown)
        yield tag("ul", items, tag("li", f"and {rest} more lines") if rest > 0 else "")
    else:
        yield tag("p", "No line of yours: a copy that the planner put in.", class_="quiet")
    for verb, names in (("reads", step.reads), ("writes", step.writes)):
        if names:
            rest = len(names) - _NAMES
            more = f" and {rest} more" if rest > 0 else ""
            yield tag("p", f"{verb} {', '.join(names[:_NAMES])}{more}")
    chunks = step.cost.chunks
    yield tag("p", f"threads share {chunks:,} chunks" if chunks > 1 else "one thread runs it")
    if step.cached is not None:
        yield tag("p", "its code: ", measured(0, "from the cache" if step.cached else "compiled"))
    if kernel is not None:
        key = _key(part, kernel)
        yield tag("p", tag("a", "The kernel's text and code", href=f"#{key}"), class_="text-link")
        yield tag("div", data_kernel=key)
    else:
        yield tag("p", "No kernel: " + (
            "NumPy runs it, on the host." if step.kind == "NumPy" else
            "the backend runs the operator whole."
        ))


def _key(part: int, kernel: int) -> str:
    return f"p{part}-k{kernel}"


# --- texts --------------------------------------------------------------------------------------


def texts_of(number: int, part: Part, code: bool) -> Markup:
    """Each distinct kernel: its text, and, packed, its code."""
    built = part.built
    uses = kernel_uses(built.program, built.fused, built.backend.machine)
    steps: dict[str, list[int]] = defaultdict(list)
    for place, step in enumerate(part.steps):
        steps[step.symbol].append(place)
    found: list[Markup] = []
    for i, kernel in enumerate(kernels_of(built.program)):
        key = _key(number, i)
        said = "".join(f"# {use}\n" for use in uses[id(kernel)])
        places = steps[kernel_symbol(kernel)]
        title = f"{kernel.name} ({'step' if len(places) == 1 else 'steps'} " + (
            f"{', '.join(map(str, places))})"
        )
        contents: list[Markup] = [tag("pre", said + print_kernel(kernel))]
        first = next(iter(built.executable.texts(kernel)), None) if code else None
        if first is not None:
            suffix, text = first
            contents.append(packed(f"{key}-code", _CODE.get(suffix, suffix), text))
        found.append(folded(title, *contents, id=key, class_="kernel"))
    return join(found)


def packed(key: str, title: str, text: str) -> Markup:
    """A text that a browser unpacks when it is looked at."""
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    script = tag("script", Markup(data), type="application/octet-stream", id=key)
    return join([folded(title, tag("pre", "…"), data_packed=key), script])
