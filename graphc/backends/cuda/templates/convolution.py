"""Convolutions and their gradients as CUDA C: matrix products (gemm_kernel) whose operands are
gathered (convolution_operand). Rows and columns are as the results lie, channels last:

- conv: rows are pixels of the result, columns its channels, k goes along taps and channels;
- conv_input_grad: rows are pixels of the input, columns its channels, k goes along those taps that
  meet the result, and its channels. With strides, pixels that meet the same taps are products of
  their own, one for each phase of the strides;
- conv_weight_grad: rows are filters, columns taps and channels, k goes along all pixels of the
  result, in pieces that a second stage adds.

Groups are the products of a batch. What few channels a group may have is left to loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import gemm_kernel
from graphc.backends.cuda.templates.convolution_operand import Strides, Writer
from graphc.backends.cuda.templates.gemm_operand import Along, TileSource
from graphc.backends.cuda.templates.gemm_plan import plan_product
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir import dtypes
from graphc.ir.dim import (
    Dim,
    Size,
    ceil_div,
    floordiv,
    mod,
    product,
    recombined,
    substitute,
    unwrap,
)
from graphc.ir.kernel import (
    Convolution,
    IndexValue,
    Kernel,
    Load,
    Scalar,
    Stmt,
    Store,
    Template,
)
from graphc.ir.kernel.templates.convolution import VARIABLES
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.kernel.walk import rewrite

_TAKEN = (dtypes.bf16, dtypes.f16, dtypes.f32, dtypes.f64)
_FEW = 8  # channels of a group: a tile would be mostly empty


def takes(template: Template) -> bool:
    """Convolutions of two floats of one dtype that lie affine, not of groups of few channels."""
    if not isinstance(template, Convolution):
        return False
    g, operands = template.geometry, template.operands
    if any(strides_of(operand.index, VARIABLES) is None for operand in operands):
        return False
    if g.groups > 1 and min(g.in_channels, g.out_channels) // g.groups < _FEW:
        return False
    return operands[0].dtype in _TAKEN and operands[0].dtype is operands[1].dtype


def render(kernel: Kernel, target: Target) -> Source:
    """See Renderer."""
    c = kernel.template
    assert isinstance(c, Convolution)
    sizes = Sizes(kernel.dims)
    made = _PRODUCTS[c.kind](_Parts(c, sizes))
    contraction = gemm_kernel.Contraction(
        made.batch, made.m, made.n, made.k, made.left, made.right, c.acc_dtype, made.epilogue,
        sizes, made.place,
    )
    plan = plan_product(made.batch, made.m, made.n, made.k, c.left.dtype)
    return gemm_kernel.source(kernel, contraction, plan)


@dataclass(frozen=True, slots=True)
class _Product:
    """A convolution as a product. `place`: CUDA C that makes the variables of the epilogue of b, m
    and n; it goes on with the next sum where this one is no result."""

    batch: Size
    m: Size
    n: Size
    k: Size
    left: TileSource
    right: TileSource
    place: str
    epilogue: tuple[Stmt, ...]


class _Parts:
    """What the three kinds have in common."""

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
        return write.gathered(name, "Patches", x, along, self.offset(x, "b", self.channels), (
            write.number(self.pixels("y")), write.number(self.channels),
            write.divisor(self.filled(self.channels)), write.divisors(g.output),
            write.divisors(g.window), write.each(g.input), write.each(g.stride),
            write.each(g.pad_low), write.each(g.dilation),
        ))

    def channel(self, part: str, inner: str, channels: int) -> str:
        """The number of a channel among all groups'."""
        if self.geometry.groups == 1:
            return inner
        return f"{part} * {self.write.number(channels)} + {inner}"


# --- the three products -----------------------------------------------------------------------


def _forward(p: _Parts) -> _Product:
    g, write = p.geometry, p.write
    filled, pixels = p.filled(p.channels), p.pixels("y")
    taps = math.prod(g.window)
    left = p.patches("left", p.right, "depth")
    right = write.gathered("right", "Filters", p.left, "depth", p.filter_offset(p.left, "b"), (
        write.number(p.filters), write.number(p.channels), write.number(taps),
        write.divisor(filled),
    ))
    place, epilogue = _pixelwise(p, "y", p.channel("b", "n", p.filters))
    return _Product(g.groups, pixels, p.filters, taps * filled, left, right, place, epilogue)


def _input_grad(p: _Parts) -> _Product:
    g, write = p.geometry, p.write
    filled = p.filled(p.filters)
    phases = math.prod(g.stride)
    # of one phase: positions in each dim, taps between those that meet the result, their number
    places = [ceil_div(size, stride) for size, stride in zip(g.input, g.stride, strict=True)]
    between = [s // math.gcd(s, d) for s, d in zip(g.stride, g.dilation, strict=True)]
    taps = [-(-k // step) for k, step in zip(g.window, between, strict=True)]
    back = [
        step * d // s for step, d, s in zip(between, g.dilation, g.stride, strict=True)
    ]
    lines = product((g.batch, *places))
    part = f"(b / {write.number(phases)})" if phases > 1 else "b"
    names = {
        "stride": g.stride, "low": g.pad_low, "dilation": g.dilation, "between": between,
        "window": g.window,
    }
    declared = " ".join(
        f"const int {name}[{p.rank}] = {write.each(values)};" for name, values in names.items()
    )
    number = f"b % {write.number(phases)}" if phases > 1 else "0"
    phase = (
        f"{declared} const Phase<{p.rank}> phase = "
        f"phase_of<{p.rank}>({number}, stride, low, dilation, between, window);"
    )
    left = write.gathered("left", "Reaches", p.right, "depth", p.offset(p.right, part, p.filters), (
        write.number(lines), write.number(p.filters), write.divisor(filled),
        write.divisors(places), write.divisors(taps), write.each(g.output), write.each(g.window),
        write.each(between), write.each(back), "phase",
    ))
    right = write.gathered("right", "PhaseWeights", p.left, "rows", p.filter_offset(p.left, part), (
        write.number(p.filters), write.number(p.channels), write.divisor(filled),
        write.divisors(taps), write.each(g.window), write.each(between), "phase",
    ))
    left = replace(left, make=f"{phase} {left.make}")
    channel = p.channel(part, "n", p.channels)
    if phases == 1:
        place, epilogue = _pixelwise(p, "x", channel)
    else:
        place, epilogue = _phasewise(p, places, channel)
    return _Product(
        g.groups * phases, lines, p.channels, math.prod(taps) * filled, left, right, place,
        epilogue,
    )


def _weight_grad(p: _Parts) -> _Product:
    g, write = p.geometry, p.write
    filled, pixels, taps = p.filled(p.channels), p.pixels("y"), math.prod(g.window)
    left = write.gathered("left", "Pixels", p.left, "rows", p.offset(p.left, "b", p.filters), (
        write.number(pixels), write.number(p.filters), write.divisor(product(g.output)),
    ))
    right = p.patches("right", p.right, "rows")
    by = write.number(filled)
    place = (
        f"const i64 channel = n % {by}; if (channel >= {write.number(p.channels)}) continue; "
        f"const i64 filter = {p.channel('b', 'm', p.filters)}, "
        f"element = channel * {write.number(taps)} + n / {by};"
    )
    epilogue = _over(p.c.epilogue, {"b": 0, "m": Dim.var("filter"), "n": Dim.var("element")})
    return _Product(g.groups, p.filters, taps * filled, pixels, left, right, place, epilogue)


_PRODUCTS: dict[str, Callable[[_Parts], _Product]] = {
    "conv": _forward, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad,
}


# --- epilogues ----------------------------------------------------------------------------------


def _pixelwise(p: _Parts, tensor: str, channel: str) -> tuple[str, tuple[Stmt, ...]]:
    """The epilogue where rows are all pixels of x or y: over a pixel's number if it needs no more,
    as it does where the results have their channels last."""
    _, _, positions = p.geometry.shape(tensor)
    pixel, m = Dim.var("pixel"), Dim.var("channel")
    made = f"const i64 channel = {channel};"
    whole = _over(p.c.epilogue, {
        "b": unwrap(floordiv(pixel, positions)), "n": unwrap(mod(pixel, positions)), "m": m,
    })
    if not _divides(whole):
        return f"{made} const i64 pixel = m;", whole
    by = p.write.number(positions)
    return (
        f"{made} const i64 image = m / {by}, position = m % {by};",
        _over(p.c.epilogue, {"b": Dim.var("image"), "n": Dim.var("position"), "m": m}),
    )


def _phasewise(p: _Parts, places: list[Size], channel: str) -> tuple[str, tuple[Stmt, ...]]:
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
    return " ".join(lines), _over(p.c.epilogue, places_)


def _over(body: tuple[Stmt, ...], places: Mapping[str, Size]) -> tuple[Stmt, ...]:
    """Statements whose indices are over other variables."""

    def moved(index: Size) -> Size:
        return recombined(substitute(index, places))

    def scalar(s: Scalar) -> Scalar:
        return replace(s, index=moved(s.index)) if isinstance(s, (Load, IndexValue)) else s

    return tuple(
        replace(stmt, index=moved(stmt.index)) if isinstance(stmt, Store) else stmt
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
