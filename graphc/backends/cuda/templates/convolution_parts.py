"""What renderers of convolutions have in common: sizes, groups, and where results belong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphc.backends.cuda.templates.convolution_operand import Strides, Writer
from graphc.backends.cuda.templates.gemm_operand import TileSource
from graphc.backends.cuda.templates.gemm_plan import Along
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir.dim import Dim, Size, floordiv, mod, recombined, substitute, unwrap
from graphc.ir.kernel import Convolution, IndexValue, Load, Scalar, Stmt, Store
from graphc.ir.kernel.walk import rewrite
from graphc.ir.record import replaced

Placed = tuple[str, tuple[Stmt, ...]]  # CUDA C that makes an epilogue's variables; the epilogue


class Parts:
    """A convolution and the arguments of its kernel."""

    def __init__(self, c: Convolution, sizes: Sizes) -> None:
        g = self.geometry = c.geometry
        self.c = c
        self.rank = len(g.window)
        self.write = Writer(sizes, self.rank)
        self.piece = 16 // c.left.dtype.itemsize
        self.channels, self.filters = g.in_channels // g.groups, g.out_channels // g.groups
        self.left, self.right = Strides(c.left), Strides(c.right)

    def filled(self, channels: int) -> int:
        """In whole pieces."""
        return -(-channels // self.piece) * self.piece

    def pixels(self, tensor: str) -> Size:
        """Of all images of x or y."""
        images, _, positions = self.geometry.shape(tensor)
        return unwrap(images * positions)

    def offset(self, s: Strides, part: str, channels: int) -> str:
        """To the first channel of a group, whose number is `part`."""
        if self.geometry.groups == 1:
            return "0"
        return f"{part} * {self.write.number(unwrap(channels * s.channel))}"

    def filter_offset(self, s: Strides, part: str) -> str:
        """To the first filter of a group."""
        if self.geometry.groups == 1:
            return "0"
        return f"{part} * {self.write.number(unwrap(self.filters * s.image))}"

    def patches(self, name: str, x: Strides, along: Along) -> TileSource:
        """What windows read of x."""
        g, write = self.geometry, self.write
        offset = self.offset(x, "b", self.channels)
        return write.gathered(name, "Windows", x, along, offset, self.channels, (
            write.number(self.pixels("y")), write.divisor(self.filled(self.channels)),
            write.divisors(g.output), write.divisors(g.window), write.each(g.input),
            write.each(g.stride), write.each(g.pad_low), write.each(g.dilation),
            write.each(g.window),
        ))

    def channel(self, part: str, inner: str, channels: int) -> str:
        """The number of a channel among all groups'."""
        if self.geometry.groups == 1:
            return inner
        return f"{part} * {self.write.number(channels)} + {inner}"


# --- epilogues ----------------------------------------------------------------------------------


def pixelwise(p: Parts, tensor: str, channel: str) -> Placed:
    """The epilogue where rows are all pixels of x or y: over a pixel's number if it needs no more,
    as it does where the results have their channels last."""
    _, _, positions = p.geometry.shape(tensor)
    pixel, m = Dim.var("pixel"), Dim.var("channel")
    made = f"const i64 channel = {channel};"
    whole = over(p.c.epilogue, {
        "b": unwrap(floordiv(pixel, positions)), "n": unwrap(mod(pixel, positions)), "m": m,
    })
    if not _divides(whole):
        return f"{made} const i64 pixel = m;", whole
    by = p.write.number(positions)
    return (
        f"{made} const i64 image = m / {by}, position = m % {by};",
        over(p.c.epilogue, {"b": Dim.var("image"), "n": Dim.var("position"), "m": m}),
    )


def phasewise(p: Parts, places: Sequence[Size], channel: str) -> Placed:
    """The epilogue where rows are the pixels of a phase of x, as many for every phase."""
    g, number = p.geometry, p.write.number
    lines = [
        f"const i64 channel = {channel};",
        f"i64 image = m, rest = b % {number(math.prod(g.stride))}, position = 0, plane = 1;",
        "bool inside = true;",
    ]
    for size, count, stride in reversed(list(zip(g.input, places, g.stride, strict=True))):
        lines.append(
            f"{{ const i64 count = {number(count)}, stride = {number(stride)}, "
            f"size = {number(size)}; const i64 at = image % count * stride + rest % stride; "
            "image /= count; rest /= stride; inside = inside && at < size; "
            "position += plane * at; plane *= size; }"
        )
    lines.append("if (!inside) continue;")
    places_ = {"b": Dim.var("image"), "n": Dim.var("position"), "m": Dim.var("channel")}
    return " ".join(lines), over(p.c.epilogue, places_)


def over(body: tuple[Stmt, ...], places: Mapping[str, Size]) -> tuple[Stmt, ...]:
    """Statements whose indices are over other variables."""

    def moved(index: Size) -> Size:
        return recombined(substitute(index, places))

    def scalar(s: Scalar) -> Scalar:
        return replaced(s, index=moved(s.index)) if isinstance(s, (Load, IndexValue)) else s

    return tuple(
        replaced(stmt, index=moved(stmt.index)) if isinstance(stmt, Store) else stmt
        for stmt in rewrite(body, scalar)
    )


def _divides(body: tuple[Stmt, ...]) -> bool:
    """Whether an index of statements has a division."""
    indices: list[Size] = [stmt.index for stmt in body if isinstance(stmt, Store)]

    def noted(s: Scalar) -> Scalar:
        if isinstance(s, (Load, IndexValue)):
            indices.append(s.index)
        return s

    rewrite(body, noted)
    return any(
        atom.kind != "var"
        for index in indices if isinstance(index, Dim)
        for monomial, _ in index.terms for atom, _ in monomial
    )
