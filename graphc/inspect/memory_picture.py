"""A program's arena over its steps as SVG: a rectangle for each value, as high as it is large and
as long as it is needed, where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from graphc.inspect.lifetimes import Lifetime
from graphc.inspect.picture_words import KINDS, OTHER
from graphc.inspect.report import Step
from graphc.inspect.units import bytes_text

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 280, 78, 26, 40
_MARKS = 4  # of an axis
STYLE = (
    ".m-paper{fill:#fff}.m-axis{stroke:#99a}.m-text{fill:#3f4552}.m-value{stroke:#fff;"
    "stroke-width:.6}.m-value:hover{stroke:#c2410c;stroke-width:2}.m-peak{fill:#c2410c;"
    "fill-opacity:.14}.m-said{fill:#9a3412}@media(prefers-color-scheme:dark){.m-paper{fill:#16181d}"
    ".m-axis{stroke:#666d7d}.m-text{fill:#c5cad6}.m-value{stroke:#16181d;fill-opacity:.8}"
    ".m-peak{fill:#fb923c;fill-opacity:.2}.m-said{fill:#fdba74}}"
)


def memory_svg(
    found: Sequence[Lifetime], in_use: Sequence[int], arena: int, steps: Sequence[Step], name: str
) -> str:
    """`in_use`: bytes by step; `arena`: its size; `steps`: who made the values."""
    width, height = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - _BOTTOM
    step = width / max(len(steps), 1)
    scale = height / max(arena, 1)
    peak = max(range(len(in_use)), key=in_use.__getitem__, default=0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11" '
        'role="img">',
        f"<title>{escape(f'memory of {name} over its steps')}</title>", f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" class="m-paper"/>',
        *_axes(arena, len(steps), step, scale),
    ]
    for each in found:
        x, wide = _LEFT + each.first * step, (each.last - each.first + 1) * step
        y = _TOP + height - each.stop * scale
        kind = steps[each.first].kind if each.first < len(steps) else ""
        parts.append(
            f'<rect class="m-value" x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" '
            f'height="{max(each.size * scale, 0.4):.2f}" fill="{KINDS.get(kind, OTHER)}"><title>'
            f"{escape(_told(each, steps))}</title></rect>"
        )
    if in_use:
        x = _LEFT + peak * step
        parts.append(
            f'<rect class="m-peak" x="{x:.2f}" y="{_TOP}" width="{max(step, 1.5):.2f}" '
            f'height="{height}" pointer-events="none"/>'
        )
        right = peak * step > width / 2
        text = f"most: {bytes_text(in_use[peak])}, at step {peak}"
        parts.append(
            f'<text class="m-said" x="{x + (step if right else 0):.2f}" y="{_TOP - 8}"'
            f'{_END if right else ""}>{text}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


_END = ' text-anchor="end"'


def _axes(arena: int, steps: int, step: float, scale: float) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - 10
    parts = [f'<path class="m-axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
    for mark in range(_MARKS + 1):
        size = arena * mark // _MARKS
        y = bottom - size * scale
        parts.append(
            f'<text class="m-text" x="{_LEFT - 6}" y="{y + 4:.2f}"{_END}>{bytes_text(size)}</text>'
        )
    numbers = sorted({steps * mark // 10 for mark in range(10)}) if steps else []
    parts += [
        f'<text class="m-text" x="{_LEFT + (n + 0.5) * step:.2f}" y="{bottom + 15}" '
        f'text-anchor="middle">{n}</text>' for n in numbers
    ]
    middle = _LEFT + (right - _LEFT) / 2
    parts.append(
        f'<text class="m-text" x="{middle}" y="{bottom + 32}" text-anchor="middle">step</text>'
    )
    return parts


def _told(each: Lifetime, steps: Sequence[Step]) -> str:
    """A value in words."""
    first, last = each.first, each.last
    when = f"steps {first} to {last}" if last > first else f"step {first}"
    lines = [f"{bytes_text(each.size)}, {when}, from byte {each.start}"]
    if first < len(steps):
        lines.append(f"made by {steps[first].name}")
        lines += [place for place, _ in steps[first].lines[:3] if place]
    return "\n".join(lines)
