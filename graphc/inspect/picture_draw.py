"""A Picture's boxes, frames and arrows as SVG text, with its own colours for light and dark."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import NamedTuple

from graphc.inspect.page.markup import sound
from graphc.inspect.picture_layout import (
    FRAME_HEAD,
    GAP_X,
    LEFT,
    LINE,
    MARGIN,
    PAD,
    WIDTH,
    Area,
    Box,
    Line,
    Picture,
    ranges,
    top,
)
from graphc.inspect.picture_words import FONT, KINDS, OTHER, fit, text_width

STYLE = (
    ".g-paper{fill:#fff}.g-box{fill:#fbfbfd;stroke:#99a}.g-result{fill:#fbfbfd;stroke:#223;"
    "stroke-width:2}.g-text{fill:#223}.g-quiet{fill:#565c6b}.g-edge{fill:none;stroke:#667}"
    ".g-weak{fill:none;stroke:#b4b8c4}.g-head{fill:#667}.g-frame{fill:#eef1f6;fill-opacity:.6;"
    "stroke:#c9cfdb}.g-lit{stroke:#c2410c;stroke-width:2}a.g-step:hover text,a.g-step:focus text"
    "{text-decoration:underline}@media(prefers-color-scheme:dark){.g-paper{fill:#16181d}"
    ".g-box{fill:#20232a;stroke:#666d7d}.g-result{fill:#20232a;stroke:#e4e6eb}.g-text{fill:#e4e6eb}"
    ".g-quiet{fill:#a4abba}.g-edge{stroke:#9aa1b1}.g-weak{stroke:#4d5361}.g-head{fill:#9aa1b1}"
    ".g-frame{fill:#1b1e25;stroke:#3a3f4b}.g-lit{stroke:#fb923c}}"
    "@media print{.g-paper{fill:#fff}.g-box,.g-result{fill:#fff;stroke:#223}.g-text,.g-quiet"
    "{fill:#000}.g-frame{fill:#f4f4f4;stroke:#999}.g-edge,.g-weak{stroke:#555}.g-head{fill:#555}}"
)
_INSET = 7  # of a frame in another one


def drawn(picture: Picture, link: Callable[[int], str] | None) -> str:
    """The SVG document. `link`: where the line of a step leads to."""
    width = LEFT + max(len(picture.columns), 1) * (WIDTH + GAP_X) - GAP_X + LEFT / 2
    height = picture.bottom + 2 * LINE
    legend, least = _legend(picture)
    width = max(width, least)
    parts = [_head(picture, width, height), *legend]
    parts += [_area(area, width) for area in picture.areas]
    boxes = picture.boxes
    parts += [_arrow(boxes[a], boxes[b], a, b) for a, b in picture.edges]
    parts += [_box(i, box, link) for i, box in enumerate(boxes)]
    parts += _footer(picture.counters, picture.bottom)
    return sound("\n".join([*parts, "</svg>", ""]))


def _head(picture: Picture, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="{FONT}">\n'
        f"<title>{escape(picture.name)}</title>\n<style>{STYLE}</style>\n"
        '<rect width="100%" height="100%" class="g-paper"/>'
    )


def _text(x: float, y: float, text: str, kind: str = "g-text", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}"{more}>{escape(text)}</text>'


def _square(x: float, y: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="9" height="9" rx="2" fill="{colour}"/>'


def _legend(picture: Picture) -> tuple[list[str], float]:
    """What the colours mean, and the columns' titles; and how wide it is."""
    entries = [(KINDS[kind], kind) for kind in KINDS if kind in picture.kinds]
    if entries and any(kind not in KINDS for kind in picture.kinds):
        entries.append((OTHER, "an operator by itself"))
    parts: list[str] = []
    x, y = float(LEFT), float(MARGIN)
    for colour, text in entries:
        parts += [_square(x, y, colour), _text(x + 13, y + 9, text, "g-quiet")]
        x += 13 + text_width(text) + 18
    if any(box.result for box in picture.boxes):
        text = "thick frame: a result"
        parts.append(_text(x, y + 9, text, "g-quiet"))
        x += text_width(text)
    for column, phase in enumerate(picture.columns):
        middle = LEFT + column * (WIDTH + GAP_X) + WIDTH / 2
        style = ' text-anchor="middle" font-weight="bold" font-size="13"'
        parts.append(_text(middle, top() - LINE, phase, "g-text", style))
    return parts, x + MARGIN


def _footer(counters: list[int], bottom: float) -> list[str]:
    if not counters:
        return []
    steps = ranges(counters)
    text = f"not drawn: steps {steps}, which only count" if len(counters) > 1 else (
        f"not drawn: step {steps}, which only counts"
    )
    return [_text(LEFT, bottom + LINE / 2, text, "g-quiet")]


def _area(area: Area, width: float) -> str:
    """The frame of a Module, behind its rows."""
    x = 4 + _INSET * area.frame.level
    title = fit(area.frame.title, WIDTH, bold=True)
    return (
        f'<g class="g-group"><rect x="{x:g}" y="{area.y:g}" width="{width - 2 * x:g}" '
        f'height="{area.height:g}" rx="7" class="g-frame"/>'
        + _text(x + 8, area.y + FRAME_HEAD - 6, title, "g-quiet", ' font-weight="bold"') + "</g>"
    )


def _box(number: int, box: Box, link: Callable[[int], str] | None) -> str:
    kind = "g-result" if box.result else "g-box"
    y = box.y + PAD + LINE - 5
    title = fit(box.title, WIDTH - 2 * PAD, bold=True)
    parts = [
        f'<g data-box="{number}"><title>{escape(box.hover)}</title>'
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{WIDTH}" height="{box.height:g}" rx="5" '
        f'class="{kind}"/>',
        _text(box.x + PAD, y, title, "g-text", ' font-weight="bold"'),
    ]
    for line in box.lines:
        y += LINE
        parts.append(_line(box, line, y, link))
    return "".join([*parts, "</g>"])


def _line(box: Box, line: Line, y: float, link: Callable[[int], str] | None) -> str:
    x = box.x + PAD
    square = _square(x, y - 9, line.colour) if line.colour else ""
    text = square + _text(x + LINE, y, line.text, "g-text" if line.colour else "g-quiet")
    if not line.hover:
        return text
    text = f"<title>{escape(line.hover)}</title>{text}"
    if link is None or line.step < 0:
        return f'<g class="g-step">{text}</g>'
    return f'<a class="g-step" href="{escape(link(line.step))}">{text}</a>'




class _Way(NamedTuple):
    """An arrow: its path, where and in which direction it ends, whether it leads to a neighbour."""

    path: str
    x: float
    y: float
    direction: str
    near: bool


# a head whose tip is where the arrow ends: no marker, whose name a page may have twice
_HEADS = {"down": "l-3.5 -7h7z", "up": "l-3.5 7h7z", "right": "l-7 -3.5v7z", "left": "l7 -3.5v7z"}


def _arrow(a: Box, b: Box, first: int, second: int) -> str:
    """From a box to one that reads it: straight to neighbours, in a bow past others."""
    way = _way(a, b)
    kind = "g-edge" if way.near else "g-weak"
    return (
        f'<path d="{way.path}" class="{kind}" data-from="{first}" data-to="{second}"/>'
        f'<path d="M{way.x:g} {way.y:g}{_HEADS[way.direction]}" class="g-head"/>'
    )


def _way(a: Box, b: Box) -> _Way:
    middle = WIDTH / 2
    if a.column == b.column:
        if abs(a.row - b.row) == 1:
            down = a.row < b.row
            y1, y2 = (a.y + a.height, b.y) if down else (a.y, b.y + b.height)
            x = a.x + middle
            return _Way(f"M{x:g} {y1:g}V{y2:g}", x, y2, "down" if down else "up", True)
        # past the rows between, left of the column
        x, out = a.x, a.x - min(14 + 3 * abs(a.row - b.row), 45)
        y1, y2 = a.y + a.height / 2, b.y + b.height / 2 + (6 if a.row > b.row else -6)
        path = f"M{x:g} {y1:g}C{out:g} {y1:g} {out:g} {y2:g} {x:g} {y2:g}"
        return _Way(path, x, y2, "right", False)
    right = a.column < b.column
    x1, x2 = (a.x + WIDTH, b.x) if right else (a.x, b.x + WIDTH)
    shift = -4 if right else 4  # both directions may be there
    y1, y2 = a.y + a.height / 2 + shift, b.y + b.height / 2 + shift
    bend = (x2 - x1) / 2
    path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return _Way(path, x2, y2, "right" if right else "left", a.row == b.row)
