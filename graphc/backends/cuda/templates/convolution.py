"""Convolutions and their gradients as CUDA C: matrix products (gemm_kernel) whose operands are
gathered (convolution_operand). Rows and columns are as the results lie, channels last:

- conv: rows are pixels of the result, columns its channels, k goes along taps and channels;
- conv_input_grad: rows are pixels of the input, columns its channels, k goes along those taps that
  meet the result, and its channels. With strides, pixels that meet the same taps are products of
  their own, one for each phase of the strides;
- conv_weight_grad: rows are filters, columns taps and channels, k goes along all pixels of the
  result, in pieces that a second stage adds.

Groups are the products of a batch; those of few channels are computed directly. Taps outside of an
image are products by 0 in conv and conv_weight_grad, where an infinite factor makes NaN of them;
an input's gradient has no such terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.statements.indices import MOST
from graphc.backends.cuda.templates import convolution_direct, gemm_kernel
from graphc.backends.cuda.templates.convolution_operand import Strides
from graphc.backends.cuda.templates.convolution_parts import (
    Parts,
    Placed,
    over,
    phasewise,
    pixelwise,
)
from graphc.backends.cuda.templates.gemm_operand import TileSource, affine
from graphc.backends.cuda.templates.gemm_plan import Plan, Planned, plan_product, plans
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.backends.cuda.templates.tallies import Tallies, takes_partials
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size, ceil_div, product, unwrap
from graphc.ir.kernel import Convolution, Kernel, Stmt, Template
from graphc.ir.kernel.templates.convolution import VARIABLES, ConvGeometry
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.record import replaced

_TAKEN = (dtypes.bf16, dtypes.f16, dtypes.f32, dtypes.f64)
_FEW = 8  # channels of a group: a tile would be mostly empty


def takes(template: Template) -> bool:
    """Convolutions of two floats of one dtype that lie affine, of planes that an int counts. What
    goes along an image's channels last is a CPU's (conv_last): loops do it here."""
    if not isinstance(template, Convolution) or not _is_counted(template.geometry):
        return False
    if template.kind not in _PRODUCTS:
        return False
    operands = template.operands
    if any(strides_of(operand.index, VARIABLES) is None for operand in operands):
        return False
    if Tallies(template.epilogue) and not _sums_rows(template):
        return False
    return operands[0].dtype in _TAKEN and operands[0].dtype is operands[1].dtype


def _is_counted(g: ConvGeometry) -> bool:
    """Whether an int has room for coordinates, and for what they are made of."""
    for d, window in enumerate(g.window):
        reach = g.pad_low[d] + (window - 1) * g.dilation[d]
        for size, by in ((g.input[d], 1), (g.output[d], g.stride[d])):
            if isinstance(size, int) and size * by + reach > MOST:
                return False
    return True


def render(kernel: Kernel, target: Target, plan: Plan | None = None) -> Source:
    """See Renderer."""
    c = kernel.template
    assert isinstance(c, Convolution)
    if plan is None and _is_direct(c):
        return convolution_direct.source(kernel, Parts(c, Sizes(kernel.dims)))
    contraction = _contraction(kernel, c)
    if plan is None:
        plan = plan_product(*_planned(c, contraction, target))
    return gemm_kernel.source(kernel, contraction, plan)


def choices(kernel: Kernel, target: Target) -> list[Plan | None]:
    """See Renderer."""
    c = kernel.template
    assert isinstance(c, Convolution)
    contraction = _contraction(kernel, c)
    planned = _planned(c, contraction, target)
    if _is_direct(c):
        return [None, plan_product(*planned)]
    return [*gemm_kernel.fitting(contraction, plans(*planned), target)]


def _is_direct(c: Convolution) -> bool:
    g = c.geometry
    return g.groups > 1 and min(g.in_channels, g.out_channels) // g.groups < _FEW


def _sums_rows(c: Convolution) -> bool:
    """Whether there is code for Partials: a row of a product is a pixel."""
    phases = c.kind == "conv_input_grad" and {*c.geometry.stride} != {1}
    return takes_partials(c) and not _is_direct(c) and not phases


def _contraction(kernel: Kernel, c: Convolution) -> gemm_kernel.Contraction:
    sizes = Sizes(kernel.dims)
    parts = Parts(c, sizes)
    made = _pointwise(parts) if _is_pointwise(parts) else _PRODUCTS[c.kind](parts)
    return gemm_kernel.Contraction(
        made.batch, made.m, made.n, made.k, made.left, made.right, c.acc_dtype, made.epilogue,
        sizes, made.place, made.along, made.padded, made.column, c.m,
    )


def _planned(c: Convolution, made: gemm_kernel.Contraction, target: Target) -> Planned:
    """What a plan is made of."""
    lines = made.left.along, made.right.along
    return made.batch, made.m, made.n, made.k, c.left.dtype, target, lines, c.tf32


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
    along: str = "channel"  # see Contraction, also for what follows
    padded: bool = True
    column: str = "n"


# --- windows of one tap: nothing is gathered -----------------------------------------------------


def _is_pointwise(p: Parts) -> bool:
    """Whether pixels of x and y are the same, and lie one behind the other."""
    g = p.geometry
    ones = {*g.window, *g.stride} == {1} and not any(g.pad_low) and g.input == g.output
    tensors = zip((p.left, p.right), p.c.tensors, strict=False)
    return ones and all(
        tensor == "w" or s.image == unwrap(g.shape(tensor)[2] * s.position)
        for s, tensor in tensors
    )


# what m, n and k go along
_ROLES = {
    "conv": ("pixel", "filter", "channel"), "conv_input_grad": ("pixel", "channel", "filter"),
    "conv_weight_grad": ("filter", "channel", "pixel"),
}


def _pointwise(p: Parts) -> _Product:
    """A product of operands as they lie."""
    roles, group = _ROLES[p.c.kind], Dim.var("b")
    totals: dict[str, Size] = {
        "pixel": p.pixels("y"), "filter": p.filters, "channel": p.channels,
    }
    pixel, filter_, channel = (
        Dim.var("mnk"[roles.index(role)]) for role in ("pixel", "filter", "channel")
    )
    sizes = p.write.sizes
    extents = {name: sizes.argument(totals[role]) for name, role in zip("mnk", roles, strict=True)}

    def side(name: str, row: str, tensor: str, s: Strides) -> TileSource:
        index = (group * p.filters + filter_) * s.image + channel * s.channel
        if tensor != "w":
            count, inner = (p.channels, channel) if tensor == "x" else (p.filters, filter_)
            index = (group * count + inner) * s.channel + pixel * s.position
        operand = replaced(s.operand, index=unwrap(s.start + index))
        return affine(name, operand, row, extents[row], extents["k"], sizes)

    along, column = "channel", "n"
    given = dict(zip(p.c.tensors, (p.left, p.right), strict=False))
    rows, columns = ("y", "x") if roles[0] == "filter" else (p.c.tensors[1], "w")
    left, right = side("left", "m", rows, given[rows]), side("right", "n", columns, given[columns])
    if roles[0] == "filter":
        place, epilogue = _elementwise(p, "const i64 element = n;")
        along = "element"
    else:
        tensor = p.c.tensors[2]
        inner = p.filters if roles[1] == "filter" else p.channels
        column = p.channel("b", "n", inner)
        place, epilogue = pixelwise(p, tensor, column)
    m, n, k = (totals[role] for role in roles)
    return _Product(
        p.geometry.groups, m, n, k, left, right, place, epilogue, along, column=column
    )


# --- the three products -----------------------------------------------------------------------


def _forward(p: Parts) -> _Product:
    g, write = p.geometry, p.write
    filled, pixels = p.filled(p.channels), p.pixels("y")
    taps = math.prod(g.window)
    left = p.patches("left", p.right, "depth")
    right = write.gathered(
        "right", "Filters", p.left, "depth", p.filter_offset(p.left, "b"), p.channels,
        (write.number(p.filters), write.number(taps), write.divisor(filled)),
    )
    column = p.channel("b", "n", p.filters)
    place, epilogue = pixelwise(p, "y", column)
    return _Product(
        g.groups, pixels, p.filters, taps * filled, left, right, place, epilogue, column=column
    )


def _input_grad(p: Parts) -> _Product:
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
    ones = f"{{{', '.join('1' * p.rank)}}}"
    low, there = (
        f"{{{', '.join(f'phase.{field}[{d}]' for d in range(p.rank))}}}"
        for field in ("low", "there")
    )
    left = write.gathered(
        "left", "Windows", p.right, "depth", p.offset(p.right, part, p.filters), p.filters, (
            write.number(lines), write.divisor(filled), write.divisors(places),
            write.divisors(taps), write.each(g.output), ones, low,
            write.each([-step for step in back]), there,
        )
    )
    right = write.gathered(
        "right", "PhaseWeights", p.left, "rows", p.filter_offset(p.left, part), p.channels, (
            write.number(p.filters), write.divisor(filled), write.divisors(taps),
            write.each(g.window), write.each(between), "phase",
        )
    )
    left = replaced(left, make=f"{phase} {left.make}")
    channel = p.channel(part, "n", p.channels)
    if phases == 1:
        place, epilogue = pixelwise(p, "x", channel)
    else:
        place, epilogue = phasewise(p, places, channel)
    return _Product(
        g.groups * phases, lines, p.channels, math.prod(taps) * filled, left, right, place,
        epilogue, padded=False, column=channel,
    )


def _weight_grad(p: Parts) -> _Product:
    g, write = p.geometry, p.write
    filled, pixels, taps = p.filled(p.channels), p.pixels("y"), math.prod(g.window)
    left = write.gathered(
        "left", "Pixels", p.left, "rows", p.offset(p.left, "b", p.filters), p.filters,
        (write.number(pixels), write.divisor(product(g.output))),
    )
    right = p.patches("right", p.right, "rows")
    by = write.number(filled)
    place, epilogue = _elementwise(
        p, f"const i64 channel = n % {by}; if (channel >= {write.number(p.channels)}) continue; "
        f"const i64 element = channel * {write.number(taps)} + n / {by};",
    )
    return _Product(g.groups, p.filters, taps * filled, pixels, left, right, place, epilogue, "")


def _elementwise(p: Parts, element: str) -> Placed:
    """The epilogue of a weight's gradient; `element` makes an element's number in its filter."""
    place = f"{element} const i64 filter = {p.channel('b', 'm', p.filters)};"
    return place, over(
        p.c.epilogue, {"b": 0, "m": Dim.var("filter"), "n": Dim.var("element")}
    )


_PRODUCTS: dict[str, Callable[[Parts], _Product]] = {
    "conv": _forward, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad,
}
