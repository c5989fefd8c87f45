"""HTML as text: elements whose contents and attributes are escaped, whatever the user has named."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any, TypeAlias

from graphc.inspect.units import bytes_text, seconds_text, si


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | int | Iterable[Content]"  # Markup as it is, all else escaped
_VOID = frozenset({"meta", "br", "col", "wbr"})


def tag(name: str, /, *contents: Content, **attributes: Any) -> Markup:
    """An element. An attribute that is None or False is left out, True has no value; a trailing
    underscore is dropped (class_), and others are dashes (aria_label)."""
    said = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for raw, value in attributes.items() if value is not None and value is not False
        for key in (raw.rstrip("_").replace("_", "-"),)
    )
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(contents)}</{name}>")


def join(contents: Content) -> Markup:
    """One after the other."""
    if isinstance(contents, Markup):
        return contents
    if isinstance(contents, (str, int)):
        return Markup(escape(str(contents)))
    return Markup("".join(join(each) for each in contents))


def quantity(value: float, text: str, *more: Content) -> Markup:
    """A number with its unit; tables are sorted by the value."""
    return tag("data", text, *more, value=f"{value:.6g}")


def in_bytes(count: int) -> Markup:
    """1.23 MB"""
    return quantity(count, bytes_text(count))


def in_flops(count: int) -> Markup:
    """1.23 MFLOP"""
    return quantity(count, f"{si(count)}FLOP")


def breakable(name: str) -> Markup:
    """A long name that may be broken behind its underscores."""
    first, *rest = name.split("_")
    return join([first, *(("_", tag("wbr"), part) for part in rest)])


def measured(value: float, text: str, share: float | None = None) -> Markup:
    """What another run would give a little differently: a time, what came from a cache. `share`: of
    a whole, as a bar."""
    bar = () if share is None else (bar_of(share),)
    return tag("data", text, *bar, class_="run", value=f"{value:.6g}")


def in_seconds(seconds: float, share: float | None = None) -> Markup:
    """1.23 ms, and a bar."""
    return measured(seconds, seconds_text(seconds), share)


def bar_of(share: float) -> Markup:
    """A bar as long as a share of its cell."""
    return tag("span", class_="bar", style=f"--share:{min(max(share, 0.0), 1.0):.3f}")


def folded(title: Content, *contents: Content, **attributes: Any) -> Markup:
    """What is shown when its title is clicked."""
    return tag("details", tag("summary", title), *contents, **attributes)


def table(
    titles: Iterable[Content], rows: Iterable[Markup], caption: str, sortable: bool = False,
    **attributes: Any,
) -> Markup:
    """A table of rows; a row may be several `tr` in a `tbody` of its own."""
    rows = list(rows)
    kind = "sortable" if sortable else None
    bodies = rows if all(row.startswith("<tbody") for row in rows) else [tag("tbody", rows)]
    return tag("div", tag(
        "table", tag("caption", caption), tag("thead", tag("tr", [
            tag("th", title, scope="col") for title in titles
        ])), bodies, class_=kind, **attributes,
    ), class_="wide")


_UNSOUND = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sound(text: str) -> str:
    """A text without what no document may hold: control characters, halves of surrogates, which
    names of files and Modules may have."""
    return _UNSOUND.sub("\ufffd", text)


def row(*cells: Content, **attributes: Any) -> Markup:
    """A `tr`; what is no cell yet becomes one."""
    return tag("tr", [
        cell if isinstance(cell, Markup) and cell.startswith(("<td", "<th")) else tag("td", cell)
        for cell in cells
    ], **attributes)
