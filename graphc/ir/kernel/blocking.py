"""How a contraction is tiled: a Request, and the rule that makes a Blocking of it.

A contraction is cut into chunks of work, which threads claim; a chunk goes through blocks of k,
each of which is multiplied tile by tile. The plan follows from sizes and the Machine alone, never
from the number of threads, so the bits of a result do not depend on who computes it.

The rule is written over numbers that are Python's, bounds of them (export/aot/intervals.py), or
those of an emitter (backends/llvm/gemm_plan.py): where sizes are symbolic, code that the same rule
makes runs in the call.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..machine import Machine, Tiling
from ..record import record

Number: TypeAlias = Any  # an int, or another number with the same operators
Condition: TypeAlias = Any  # a bool, or an emitter's
POINTER_BYTES = 8
ALIGN = 64  # of everything in scratch, bytes
MOST_SLOTS = 64  # chunks that have scratch at a time, at most


@record
class Request:
    """What a plan depends on, beside the machine."""

    batch: Number  # independent products (the groups of a convolution)
    m: Number
    n: Number
    k: Number  # steps
    terms: Number  # multiplications per sum (k, unless a step of k is more than one)
    left_direct: Condition  # the left operand may be read where it lies
    right_direct: Condition
    segment: Number  # of k, in which the left operand has one stride; k if there is one segment
    quantum: Number  # blocks of k are multiples of this
    most_steps: Number  # of k in a block
    dense: Condition  # panels of the right operand are dense; else tiles go through pointers
    panels: Condition  # the right operand lies in panels over all of k: nothing is packed
    window: Condition  # the right operand is a window (a convolution's)
    pack_scratch: Number  # bytes that packing the right operand works in,
    pack_scratch_column: Number  # and bytes per column on top
    heads: int = 0  # rows of a packed panel before its steps
    most_columns: Number = 0  # of the right operand that are pointed to at a time


@record
class Blocking:
    """How a contraction is tiled. Sizes in elements, scratch and offsets in bytes.

    A block of k has up to `block_k` steps and does not cross multiples of `block_segment`; there
    are `blocks` of them. Up to `block_n` columns of the right operand are packed at a time. A chunk
    is `chunk_batch` products by `chunk_m` rows by `chunk_n` columns by `chunk_blocks` blocks of k;
    there are `split_m`, `split_n` and `split_k` of them along a product, `chunks` in all. The sums
    of a split k are added up in order by a second stage.
    """

    block_segment: Number
    block_k: Number
    blocks_per_segment: Number
    blocks: Number
    block_n: Number
    chunk_batch: Number
    chunk_m: Number
    chunk_n: Number
    chunk_blocks: Number
    split_m: Number
    split_n: Number
    split_k: Number
    chunks: Number
    left_packed: Condition  # the left operand is packed, for all chunks, before they start
    right_packed: Condition  # so is the right one
    right_in_place: Condition  # the right operand is read where it lies
    area: Number  # a chunk's sums, where they wait for further blocks of k
    pack_at: Number  # where in a chunk's scratch the packed block begins,
    pack_scratch_at: Number  # what packing works in,
    pack_scratch: Number  # how much that is,
    chunk_scratch: Number  # and all of a chunk's scratch
    # Scratch: the packed left operand, then these
    right_at: Number  # the packed right operand
    partial_at: Number  # the sums of a split k
    chunks_at: Number  # chunk_scratch for each of the chunks that may run at a time,
    slots: Number  # at most so many

    def scratch(self, workers: int) -> int:
        """Bytes of scratch where so many chunks run at a time."""
        return int(self.chunks_at + min(self.slots, workers) * self.chunk_scratch)

    def __str__(self) -> str:
        """One line: what a person tuning it looks at."""
        left = "left packed" if self.left_packed else "left in place"
        right = "right packed by each chunk"
        if self.right_packed or self.right_in_place:
            right = "right packed once" if self.right_packed else "right in place"
        return (
            f"blocks of k {self.block_k} n {self.block_n}; {self.chunks} chunks of "
            f"b {self.chunk_batch} m {self.chunk_m} n {self.chunk_n} blocks {self.chunk_blocks}, "
            f"split m {self.split_m} n {self.split_n} k {self.split_k}; {left}, {right}; "
            f"scratch {self.chunks_at} and {self.chunk_scratch} a thread"
        )


# --- numbers ------------------------------------------------------------------------------------


def least(a: Number, b: Number) -> Number:
    """The smaller of two numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return b.least(a) if isinstance(a, int) else a.least(b)


def most(a: Number, b: Number) -> Number:
    """The larger of two numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return b.most(a) if isinstance(a, int) else a.most(b)


def clamp(x: Number, low: Number, high: Number) -> Number:
    """x between low and high; high if they cross."""
    return least(most(x, low), high)


def equal(a: Number, b: int) -> Condition:
    """Whether a number is b."""
    return a == b if isinstance(a, int) else a.equals(b)


def choose(condition: Condition, a: Number, b: Number) -> Number:
    """a if the condition holds, else b."""
    if isinstance(condition, bool):
        return a if condition else b
    return condition.choose(a, b)


def quotient_up(a: Number, b: Number) -> Number:
    """a / b rounded up, for a >= 0, b > 0."""
    return (a + b - 1) // b if isinstance(b, int) else b.quotient_up_of(a)


def multiple(a: Number, b: Number) -> Number:
    """The next multiple of b."""
    return quotient_up(a, b) * b


# --- the rule -----------------------------------------------------------------------------------


def reads_left(
    along_k: bool, along_m: bool, sizes: tuple[Number, Number, Number], t: Tiling, itemsize: int
) -> Condition:
    """Whether a left operand of a product of these sizes (m, n, k) may be read where it lies: its
    elements are neighbours along k, or, unless it is worth packing, along m."""
    if along_k or not along_m or t.turned_columns == 0:
        return along_k or along_m
    m, n, k = sizes
    return (n < t.turned_columns) | (m * k * itemsize <= t.unpacked_bytes)


def tiled(r: Request, machine: Machine, itemsize: int) -> Blocking:
    """The plan of a request, for sums of `itemsize` bytes. No size in it is 0 but those of what is
    not there; sizes of the request may be 0."""
    t = machine.tiling
    assert t is not None
    lanes, columns = t.lanes(itemsize), t.columns(itemsize)

    right = r.k * r.n * itemsize
    large, few = right > t.in_place_bytes, r.m <= t.in_place_rows
    kept = (right <= t.kept_bytes) | (r.m <= t.unpacked_rows)
    in_place = r.right_direct & (few | (kept & (right <= t.unpacked_bytes)))
    near = r.right_direct & few & large & (r.m > t.rows) & (right <= t.unpacked_bytes)
    streams = r.right_direct & few & large & ((r.m <= t.rows) | (right > t.unpacked_bytes))

    # blocks of k, and how much of the right operand is packed at a time
    segment = choose(r.left_direct, r.segment, r.k)
    steps = choose(near, least(r.most_steps, t.near_steps), r.most_steps)
    steps = choose(streams, least(r.most_steps, t.stream_steps), steps)
    if t.far is not None:
        packs_near = r.right_direct & (r.m <= t.far.near_rows) & (right > t.unpacked_bytes)
        steps = choose(few, steps, choose(packs_near, least(steps, t.near_steps), steps))
    parts = most(quotient_up(segment, most(steps, 1)), 1)
    block_k = most(multiple(quotient_up(segment, parts), r.quantum), 1)
    per_segment = most(quotient_up(segment, block_k), 1)
    blocks = most(r.k // most(segment, 1), 1) * per_segment
    packed = choose(r.dense, t.pack_bytes // itemsize // block_k, r.most_columns)
    block_n = choose(in_place, most(r.n, 1), most(packed // columns, 1) * columns)
    block_n = choose(near, columns, block_n)

    # chunks: first batches, then columns; then rows and parts of k, the cheaper of the two first:
    # splitting rows packs the right operand again (unless it is packed for all), splitting k adds
    # partial sums
    flops = r.batch * 2 * most(r.m, t.read_rows) * r.n * r.terms
    most_chunks = choose(streams, machine.parallelism, machine.template_chunks)
    want = clamp(flops // machine.template_flops, 1, most_chunks)  # Machine.pieces
    chunk_batch = most(quotient_up(r.batch, want), 1)
    per_batch = quotient_up(want, most(r.batch, 1))
    tiles = most(quotient_up(r.n, columns), 1)
    width = quotient_up(tiles, least(tiles, per_batch))
    width = most(width, choose(streams, least(tiles, t.stream_columns // columns), 1))
    # the sums of a split k have room for what is packed at a time, not for wider chunks
    fits = equal(r.batch, 1) & (right <= t.shared_bytes) & r.dense
    if t.far is not None:
        fits = fits & (r.m > t.far.shared_rows)
    wide, some = (
        least(tiles, least(most(least_columns // columns, 1), block_n // columns))
        for least_columns in (t.chunk_columns, t.least_columns)
    )
    width = most(width, choose(in_place | r.panels, some, choose(fits, wide, 1)))
    split_n = quotient_up(tiles, width)
    rest = most(per_batch // split_n, 1)
    high: Number = t.row_tiles
    if t.far is not None:
        high = choose(in_place | r.panels, high, t.far.shared_tiles)
    most_rows = most(quotient_up(r.m, t.rows) // high, 1)
    early = choose(r.window, least(rest, blocks), 1)
    split_m = clamp(rest // early, 1, most_rows)
    late = clamp(rest // split_m, 1, most(blocks // 2, 1))
    split_k = choose(r.window, early, late)
    chunk_m = most(multiple(quotient_up(r.m, split_m), t.rows), t.rows)
    split_m = most(quotient_up(r.m, chunk_m), 1)
    chunk_blocks = quotient_up(blocks, split_k)
    split_k = quotient_up(blocks, chunk_blocks)
    chunks = quotient_up(r.batch, chunk_batch) * split_n * split_m * split_k
    chunk_n = width * columns
    # a chunk's blocks of columns are as equal as can be: rows of the left operand come for each
    even = multiple(quotient_up(chunk_n, quotient_up(chunk_n, block_n)), columns)
    block_n = choose(in_place, block_n, least(block_n, even))

    # memory
    wide = multiple(least(chunk_n, least(block_n, r.n)), lanes)
    split = split_k > 1
    area = choose((chunk_blocks > 1) | split, chunk_m * wide * itemsize, 0)
    pack_at = choose(split, 0, multiple(area, ALIGN))
    shared = fits & (split_m > 1)
    right_packed = equal(choose(in_place | r.panels, 0, choose(shared, 1, 0)), 1)
    tail = choose(r.n < lanes, lanes, 0)  # a longer one's is read with what is before it
    pack_columns = choose(in_place, tail, choose(right_packed | r.panels, 0, wide))
    rows = block_k + r.heads
    pack = choose(r.dense, rows * pack_columns * itemsize, wide * POINTER_BYTES)
    pack_scratch_at = pack_at + multiple(pack, ALIGN)
    pack_scratch = r.pack_scratch + r.pack_scratch_column * wide
    work = choose(pack_columns > 0, pack_scratch, 0)
    alone = choose(right_packed, pack_scratch, 0)  # what packing it for all chunks works in
    chunk_scratch = multiple(most(pack_scratch_at + work, alone), ALIGN)
    left_packed = equal(choose(r.left_direct, 0, 1), 1)
    left = r.batch * multiple(r.m, t.rows) * r.k * itemsize
    right_at = multiple(choose(left_packed, left, 0), ALIGN)
    right_copy = (r.k + blocks * r.heads) * multiple(r.n, lanes) * itemsize
    partial_at = right_at + multiple(choose(right_packed, right_copy, 0), ALIGN)
    chunks_at = partial_at + multiple(choose(split, area * chunks, 0), ALIGN)
    slots = least(chunks, MOST_SLOTS)
    return Blocking(
        segment, block_k, per_segment, blocks, block_n, chunk_batch, chunk_m, chunk_n,
        chunk_blocks, split_m, split_n, split_k, chunks, left_packed, right_packed, in_place, area,
        pack_at, pack_scratch_at, pack_scratch, chunk_scratch, right_at, partial_at, chunks_at,
        slots,
    )
