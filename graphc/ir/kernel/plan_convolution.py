"""`plan_convolution(template, machine, dims)`: a convolution as contractions of windows, tiled.

The right operand is a window: its rows are (channel, tap), its columns positions (for a weight's
gradient the other way round). It is packed on the fly; or, where that costs less, the input is
copied once with its padding, and the window packed from there, or read there by tiles, through
pointers; or they read the input where it lies, under masks, if lines of the output are as long as
its own; or copies for each tap of a line (plan_shifts).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from ..dim import Size, evaluate, is_static
from ..machine import Machine, Tiling
from ..record import replaced
from .blocking import (
    ALIGN,
    MOST_SLOTS,
    POINTER_BYTES,
    Blocking,
    Number,
    Request,
    most,
    multiple,
    quotient_up,
    tiled,
)
from .convolution_costs import LINES_COST, Costs, costs_of, reads_lines
from .plan_last import plan_last
from .plan_last_lines import lines_of_last, plan_last_lines
from .plan_pairs import images_together, pair_costs, pair_steps
from .plan_planes import by_planes, offsets_bytes, strips
from .plan_shifts import shifts_of
from .plan_strips import Strips, strips_of
from .steps import Step, step_of
from .templates import Convolution
from .window import Triple, Window, phase_of

DIRECT_POSITIONS = 96  # images at least this large are read in place by a weight's gradient
MASK_COST, MASK_TAP_COST = 24, 8  # per register of positions: cycles of making a tap's mask
# What steps cost more that read registers under masks, where these are computed in halves (Zen 4:
# 1.07 to 1.16 times as long as in a copy), and where not (Zen 5); and one or two last rows.
SPLIT_COST, WHOLE_COST = (9, 8), (33, 32)
FEW_ROWS, FEW_ROWS_COST = 2, 2
MASKED_BYTES = 64  # of registers whose lanes have masks of their own
STRIPS_BYTES = 32  # of registers by which strips go
PLACE_BYTES = 2 * POINTER_BYTES  # of a row: where it begins, and its mask
IMAGE_COST = 15  # of positions packed over all images, against an image read where it lies
DOT_TERMS = 768  # of a block: below that the sums over lanes weigh too much

Kind = Literal["tiles", "pieces", "windows", "places", "shifts", "strips", "dots"]


def _count(sizes: Triple) -> int:
    return sizes[0] * sizes[1] * sizes[2]


def reads_words(step: Step) -> bool:
    """Whether tiles of a step read a copy: of single values, or of pairs of them."""
    return step.group <= 2 and not step.matrix


def by_images(images: Size, rows: Size, positions: Size, lanes: int) -> bool:
    """Whether a convolution of single positions costs less image by image, each in whole
    registers, than with the positions of all images packed side by side."""
    if not (isinstance(rows, int) and isinstance(positions, int)):
        return False
    padded = multiple(positions, lanes)
    return images == 1 or rows * padded <= (rows + IMAGE_COST) * positions


def masks_bytes(lanes: int) -> int:
    """Of the mask of a register."""
    return lanes // 8


def window_steps(tiling: Tiling) -> int:
    """Of a block whose positions are read in a copy. Pixels of a tile of few columns stay in the
    first cache, where all rows meet them, if steps are no more than in a panel (Zen 3: 3% to 7%);
    those of a wide one do not, and long blocks store sums less often."""
    return tiling.block_k * tiling.vectors // 2


def place_columns(k: Number, tiling: Tiling, itemsize: int) -> Number:
    """How many positions all rows of the left operand meet before the next ones: as many as stay
    in the first cache with their pixels, which several taps read. Fewer pieces of each line of the
    result would be stored at a time."""
    columns = tiling.columns(itemsize)
    return most(tiling.pack_bytes // 4 // most(k * (columns * itemsize), 1), 1) * columns


class Contraction(NamedTuple):
    """One of those that a convolution is done by: `kind` says what reads the right operand: packed
    "tiles", "pieces" packed from a copy, "windows" of one, "places" in the input under masks,
    "shifts" in copies for each tap of a line, "strips" of lines by channels (no product: see
    plan_strips), or "dots" along lines of a copy; sums of m rows, n columns."""

    kind: Kind
    m: int
    n: int
    plan: Blocking


class Way(NamedTuple):
    """One of those to do a convolution: what it costs, and `before` bytes of scratch in front of
    its plan's."""

    cost: int
    request: Request
    before: int
    kind: Kind


class _Planner:
    """A convolution with numbers for its sizes."""

    def __init__(self, c: Convolution, machine: Machine, dims: Mapping[str, int]) -> None:
        g = c.geometry
        self.c, self.machine = c, machine
        assert machine.tiling is not None
        self.itemsize = c.acc_dtype.itemsize
        self.tiling, self.lanes = machine.tiling, machine.tiling.lanes(self.itemsize)
        self.step = step = step_of(c, machine.tiling)
        self.value_bytes, self.group = step.left.itemsize, step.group
        self.images = evaluate(g.batch, dims)
        self.known = is_static((g.batch, *g.input, *g.output))
        self.groups = g.groups
        self.channels, self.outputs = g.in_channels // g.groups, g.out_channels // g.groups
        self.contractions: list[Contraction] = []
        self.left_same = c.left.dtype is step.left
        self.right_same = c.right.dtype is step.right

        def triple(sizes: tuple[int, ...], missing: int) -> Triple:
            depth, height, width = (*(missing,) * (3 - len(sizes)), *sizes)
            return depth, height, width

        def known(sizes: tuple[Size, ...]) -> Triple:
            return triple(tuple(evaluate(size, dims) for size in sizes), 1)

        self.window = Window(
            known(g.input), triple(g.window, 1), known(g.output), triple(g.stride, 1),
            triple(g.pad_low, 0), triple(g.dilation, 1),
        )

    def plans(self) -> Iterator[Blocking]:
        """Each contraction's; its scratch begins with what is made beforehand. Those of more than
        strips of planes are in `contractions` then."""
        yield from {
            "conv": self._forward, "conv_input_grad": self._input_grad,
            "conv_weight_grad": self._weight_grad,
        }[self.c.kind]()

    def _table(self, rows: int) -> int:
        """Bytes of a packer's tables (backends/llvm/conv_tables.py)."""
        w = self.window
        fixed = w.taps * (3 * 8 + 4) + sum(w.size) * 4
        return (fixed + rows * 16 + 63 + 8) // 64 * 64

    def _request(
        self, m: int, n: int, k: int, left_direct: bool, segment: int, quantum: int, work: int,
        column: int,
    ) -> Request:
        """Of k values in segments; pairs of them are read in place if they are whole."""
        return Request(
            self.groups, m, n, quotient_up(k, self.group), k,
            left_direct and segment % self.group == 0, False, quotient_up(segment, self.group),
            quantum, self.tiling.block_k,
            dense=True, panels=False, window=True, pack_scratch=work, pack_scratch_column=column,
        )

    def _forward(self) -> Iterator[Blocking]:
        if self._is_by_planes():
            yield self._by_planes()
            return
        k = self.channels * self.window.taps
        n = self.images * self.window.positions
        work = self._table(self.tiling.block_k * self.group)
        request = self._request(self.outputs, n, k, self.left_same, k, 1, work, 0)
        best = min(self._costs(request, self.window, self.channels))
        ways = [self._places(request), self._shifts(request)] if self._is_masked(request) else []
        cheap = [way for way in ways if way and way.cost < best]
        strips = self.strips()
        if strips and strips.cost < min([best, *(way.cost for way in cheap)]):
            yield self._by_strips(strips)
            return
        if not cheap:
            yield self._positions(request, self.window, self.channels)
            return
        way = min(cheap, key=lambda way: way.cost)
        yield self._tiled(way.request, way.before, way.kind)

    def _is_masked(self, r: Request) -> bool:
        """Whether what reads the input under masks may do so."""
        w = self.window
        return bool(
            self.known and self.group == 1 and self.right_same and w.is_plain and w.taps > 1
            and self.tiling.vector_bytes >= MASKED_BYTES and min(r.n, r.k, _count(w.input)) > 0
        )

    def _places(self, r: Request) -> Way | None:
        """Columns are positions, read in the input: the same tap of a line's positions is a line of
        it, but for what a mask leaves out. None where they are not."""
        w, steps = self.window, self.tiling.block_k
        if not (
            _count(w.step) == 1 and w.out[2] == w.input[2]
            and POINTER_BYTES + w.taps * masks_bytes(self.lanes) <= self.lanes * POINTER_BYTES
        ):
            return None
        padded = multiple(w.positions, self.lanes)
        more, of = SPLIT_COST if self.tiling.split else WHOLE_COST
        rows = r.m + FEW_ROWS_COST * (0 < r.m % self.tiling.rows <= FEW_ROWS)
        steps_cost = rows * (r.k * more // of + LINES_COST)
        cost = padded * (steps_cost + MASK_COST + MASK_TAP_COST * w.taps)
        read = replaced(
            r, n=self.images * padded, pack_scratch=0, dense=False, most_steps=2 * steps,
            most_columns=place_columns(r.k, self.tiling, self.itemsize),
        )
        return Way(cost, read, multiple(r.k * PLACE_BYTES, ALIGN), "places")

    def _shifts(self, r: Request) -> Way:
        """Columns are positions, read in copies for each tap of a line."""
        w, padded = self.window, multiple(self.window.positions, self.lanes)
        s = shifts_of(
            r.k, w.taps, w.size[1:], w.step[1], w.dilation[1], w.out[1:], self.images,
            self.tiling, self.itemsize,
        )
        read = replaced(
            r, n=self.images * padded, quantum=w.taps, pack_scratch=s.scratch, dense=False,
            most_columns=s.columns,
        )
        source = self.images * self.groups * self.channels * _count(w.input) * self.itemsize
        cost = r.m * padded * (r.k + LINES_COST) + s.copying(
            tiled(read, self.machine, self.itemsize), self.channels, w.out[1:], w.step[2],
            source > self.tiling.in_place_bytes, self.lanes,
        )
        return Way(cost, read, multiple(s.channels * w.taps * POINTER_BYTES, ALIGN), "shifts")

    def strips(self) -> Strips | None:
        """How an image is done strip by strip: of float32 and pairs of bfloat16, since torch's own
        kernels, too, leave the padding out of such sums, and have it in those of float64, where an
        infinite weight then gives NaN. They were timed with registers of 32 and 64 bytes."""
        w = self.seen
        if not (
            self.tiling.vector_bytes >= STRIPS_BYTES and self.step.name in ("f32", "bf16")
            and self.known and isinstance(self.images, int) and self.images > 0
            and self.left_same and self.right_same and w.taps > 1
        ):
            return None
        channels, outputs = self.channels, self.outputs
        if self.c.kind == "conv_input_grad":
            channels, outputs = outputs, channels
        return strips_of(
            w, quotient_up(channels, self.group), outputs, self.groups, self.images, self.machine,
            self.itemsize,
        )

    @property
    def seen(self) -> Window:
        """What strips see: of an input gradient without steps, the output's gradient, by weights
        whose taps are turned around."""
        w = self.window
        if self.c.kind == "conv":
            return w
        low = tuple(span - low for span, low in zip(w.spans, w.low, strict=True))
        return Window(w.out, w.size, w.input, w.step, (low[0], low[1], low[2]), w.dilation)

    def _by_strips(self, s: Strips) -> Blocking:
        chunks = self.images * self.groups * s.strips
        nothing = Blocking(*(0 for _ in Blocking.__match_args__))
        plan = replaced(
            nothing, chunks=chunks, chunk_m=s.vectors * self.lanes,
            chunk_n=s.lines * self.seen.out[2], chunks_at=s.weights, chunk_scratch=s.scratch,
            slots=min(chunks, MOST_SLOTS),
        )
        m = self.outputs if self.c.kind == "conv" else self.channels
        self.contractions.append(Contraction("strips", m, self.images * self.seen.positions, plan))
        return plan

    def _is_by_planes(self) -> bool:
        w = self.window
        flat = (w.input[0], w.size[0], w.out[0], w.step[0]) == (1, 1, 1, 1) and w.low[0] == 0
        sizes = (self.images, self.groups, self.outputs, *w.input, *w.size, *w.out)
        return bool(
            self.group == 1 and by_planes(self.channels, self.outputs) and self.left_same
            and self.right_same and flat and min(sizes) > 0
        )

    def _by_planes(self) -> Blocking:
        w = self.window
        plan = strips(
            self.images * self.groups, w.out[1:], w.size[1:], w.step[1:], w.dilation[1:],
            self.lanes, self.itemsize,
        )
        nothing = Blocking(*(0 for _ in Blocking.__match_args__))
        return replaced(
            nothing, chunks=plan.chunks, chunk_m=1, chunk_n=plan.rows * w.out[2],
            chunks_at=offsets_bytes(w.taps), chunk_scratch=plan.scratch,
            slots=min(plan.chunks, MOST_SLOTS),
        )

    def _input_grad(self) -> Iterator[Blocking]:
        """One contraction per remainder of a coordinate by the stride; with several, their results
        meet in scratch."""
        w = self.window
        phases = list(itertools.product(*map(range, w.step)))
        before = 0
        if len(phases) > 1:
            pixels = self.images * self.channels * self.groups * _count(w.input)
            before = multiple(pixels * self.itemsize, ALIGN)
        work = self._table(self.tiling.block_k * self.group)
        for phase in phases:
            found = phase_of(w, phase)
            k, n = self.outputs * found.taps, self.images * found.positions
            request = self._request(self.channels, n, k, False, k, 1, work, 0)
            strips = self.strips() if len(phases) == 1 else None
            if strips and strips.cost < min(self._costs(request, found, self.outputs)):
                yield self._by_strips(strips)
                return
            plan = self._positions(request, found, self.outputs)
            yield replaced(plan, chunks_at=before + plan.chunks_at)

    def _weight_grad(self) -> Iterator[Blocking]:
        w, square = self.window, self.lanes * self.itemsize
        large = w.positions >= DIRECT_POSITIONS
        request = self._request(
            self.outputs, self.channels * w.taps, self.images * w.positions,
            large and self.left_same, w.positions, self.lanes,
            self._table(self.lanes) + square * self.lanes, square + 16,
        )
        yield self._lines(request, w)

    def _positions(self, r: Request, w: Window, channels: int) -> Blocking:
        """Columns are positions."""
        if not (
            reads_words(self.step) and w.is_plain and w.taps > 1 and r.n > 0 and r.k > 0
            and _count(w.input) > 0
        ):
            return self._tiled(r)
        costs = self._costs(r, w, channels)
        if not costs.copies():
            return self._tiled(r)
        plane, before, images = w.plane[0] * w.plane[1] * w.phases, 0, self.images
        counts = [images]
        if self.group > 1:  # words of channels, of the weights, too
            k, channels = pair_steps(channels, w.taps), quotient_up(channels, self.group)
            size = channels * self.groups * plane * self.itemsize
            few = images_together(images, size, self.tiling)
            if not isinstance(images, int) or few < images:  # an interval has values to differ in
                counts += [few, images - (images - 1) // few * few]
            r = replaced(r, k=k, left_direct=True, segment=k)
            before = multiple(self.groups * r.m * k * self.itemsize, ALIGN)
        before += self._copy(images * channels, plane, w.shared, self.itemsize)
        before += multiple(r.k * POINTER_BYTES, ALIGN)
        if not costs.reads():
            return self._tiled(replaced(r, pack_scratch=0), before, "pieces")
        copied = replaced(
            r, pack_scratch=0, dense=False, most_steps=window_steps(self.tiling),
            most_columns=self.tiling.pointed_columns,
        )
        return _room_for([
            self._tiled(replaced(copied, n=count * self._padded(w)), before, "windows")
            for count in counts
        ])

    def _padded(self, w: Window) -> int:
        """Positions of an image in a copy, in whole registers."""
        lines = (w.out[1] - 1) * w.plane[1] + w.out[2]
        return int(multiple(max(lines, 1), self.lanes))

    def _costs(self, r: Request, w: Window, channels: int) -> Costs:
        (height, width), planes = w.plane, self.images * channels * self.groups
        lines = height * w.phases
        if self.group > 1:
            windows, packed = pair_costs(
                r.m, channels, self._padded(w), (lines, lines * width), w.taps, w.out[1:],
                w.step[2], self.images, self.images * self.groups * quotient_up(channels, 2),
                self.tiling,
            )
            return Costs(windows, packed, packed)
        return costs_of(
            r.m, r.k, self._padded(w), (lines, lines * width), w.taps, w.out[1:], w.step[2],
            planes, self.tiling, self.itemsize,
        )

    def _lines(self, r: Request, w: Window) -> Blocking:
        """Columns are taps."""
        (_, width), (_, out_height, out_width) = w.plane, w.out
        whole = width == out_width  # lines follow each other: one long line
        length, lines = (out_height * out_width, 1) if whole else (out_width, out_height)
        padded = multiple(max(length, 1), self.lanes * self.group)
        plane = w.plane[0] * w.plane[1] * w.phases
        phases = plane if w.phases > 1 else 0
        if not (
            w.is_plain and (w.phases == 1 or self.group == 1) and self.left_same
            and min(w.taps, r.n, r.k, _count(w.input)) > 0
            and reads_lines(r.m, padded, lines, w.positions, phases, w.taps)
        ):
            return self._tiled(r)
        copied = replaced(
            r, k=self.images, segment=self.images, most_steps=max(DOT_TERMS // w.positions, 1),
            quantum=1, left_direct=True, pack_scratch=0, pack_scratch_column=0, dense=False,
            most_columns=self.tiling.pointed_columns,
        )
        as_it_is = self.right_same and w.lows[1:] == [0, 0] and w.plane == w.input[1:]
        as_it_is = as_it_is and w.phases == 1
        images = self.images * self.channels
        before = 0 if as_it_is else self._copy(images, plane, w.shared, self.value_bytes)
        return self._tiled(copied, before, "dots")

    def _copy(self, channels: int, plane: int, shared: int, itemsize: int) -> int:
        """Bytes of the padded copy of so many channels of each group; tiles read a register past
        the last."""
        elements = channels * self.groups * plane + shared
        return int(multiple((elements + self.lanes * self.itemsize // itemsize) * itemsize, ALIGN))

    def _tiled(
        self, request: Request, before: int = 0,
        kind: Kind = "tiles",
    ) -> Blocking:
        plan = tiled(request, self.machine, self.itemsize)
        self.contractions.append(Contraction(kind, int(request.m), int(request.n), plan))
        return replaced(plan, chunks_at=before + plan.chunks_at)


def contractions(c: Convolution, machine: Machine) -> list[Contraction] | None:
    """What a convolution over planes comes to, but for one that goes plane by plane; None where
    its sizes are known in the call alone."""
    if not is_static((c.geometry.batch, *c.geometry.input, *c.geometry.output)):
        return None
    planner = _Planner(c, machine, {})
    for _ in planner.plans():
        pass
    return planner.contractions


def strips_plan(c: Convolution, machine: Machine) -> tuple[Window, int, Strips]:
    """What strips see, images and strips of a convolution that is done so."""
    planner = _Planner(c, machine, {})
    found = planner.strips()
    assert found is not None
    return planner.seen, planner.images, found


def plan_convolution(
    c: Convolution, machine: Machine, dims: Mapping[str, int]
) -> Blocking:
    """How a convolution is tiled: one of its contractions. All its sizes are known."""
    if c.kind == "conv_last":
        lines = lines_of_last(c, machine)
        return plan_last_lines(lines, c, machine, dims) if lines else plan_last(c, machine, dims)
    return _room_for(list(_Planner(c, machine, dims).plans()))


def _room_for(plans: list[Blocking]) -> Blocking:
    """The plan with the most chunks, with scratch for each of them."""
    largest = max(plans, key=lambda plan: plan.chunks)
    return replaced(
        largest, chunks_at=max(plan.chunks_at for plan in plans),
        chunk_scratch=max(plan.chunk_scratch for plan in plans),
    )
