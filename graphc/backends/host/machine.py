"""The CPU as the shared passes see it: the same numbers for every CPU, so that every CPU cuts
and combines loops alike; `cpu` says how wide its registers are."""

import functools

from graphc.ir.machine import ChannelTiles, Far, Machine, Tiling, Transform
from graphc.ir.record import replaced

# Tiles of 24 accumulators in 32 registers.
_TILING = Tiling(
    vector_bytes=64,
    rows=6,
    vectors=4,
    block_k=384,
    pack_bytes=512 << 10,
    pointed_columns=2048,
    in_place_bytes=1 << 20,
    kept_bytes=8 << 20,
    # A larger right operand comes from the memory or the shared cache each time it is read: few
    # rows read it once, where packing costs 5% to 9% of the product (up to half the shared cache;
    # of larger ones, whose rows are far from one another, nothing)
    unpacked_bytes=16 << 20,
    unpacked_rows=192,
    in_place_rows=24,  # packing costs 25 cycles a register: as much as that many rows
    turned_columns=0,
    stream_steps=8,
    stream_columns=4096,
    near_steps=96,  # of 64 floats: half of the first cache
    shared_bytes=32 << 20,
    chunk_columns=256,  # a tile's rows stay in the first cache for four panels
    row_tiles=4,
    read_rows=8,
    dot_rows=32,
    dot_columns=16,
    pack_steps=8,  # packing costs as much as about 6 steps gain
    joint_rows=8,
    packed_rows=512,  # packing is as much work as multiplying by 20 rows: not worth a copy beyond
    packed_bytes=1 << 27,  # 512 rows gain 5%, which is not worth a large second copy
    row_bytes=0,
    least_columns=0,  # a panel has 64
    channels=ChannelTiles(sums=10),
)

# A third cache that is a mesh gives a core 10 bytes a cycle, where AMD's gives 20 or more, and the
# operands of most products are there (Emerald Rapids: 30 GB/s beside 155 of the second cache). Rows
# of a right operand that are read where they lie, for each panel of columns with all rows of the
# left one again, and each in a page of its own, got 105 to 130 GFLOP/s of 190, the more so where
# they begin within a line, as NumPy's do; packed ones get 150 to 168: 256 rows, 20%; 1024, 50%.
# Few rows do not pay for a copy that goes to that cache and comes back: their chunks pack what
# stays in the second one, or, of 64 rows at most, in the first one (10% to 30%); asking for what is
# packed next 5% to 15%. Chunks of as many rows as columns read least of both operands. Weights come
# at 24 GB/s as strips meet them.
_FAR = replaced(
    _TILING, kept_bytes=16 << 10, unpacked_bytes=32 << 10,
    channels=ChannelTiles(sums=10, asks=True),
    far=Far(shared_rows=192, near_rows=64, shared_tiles=43, weight_cost=12),
)

# Of 16 registers, 12 hold accumulators. Rows of so few columns lie in a line or two of the caches
# each, which a power of two between them has evict each other: packing gains 20% to 50% from 64 KiB
# on, where chunks are wide enough to read rows of the left operand for many columns; below, from
# half of the first cache on, about 100 rows pay for it and 500 gain 3% to 20%. So does a
# transposed left operand, of which each step reads another line: packing gains 10% to 50%.
# CPUs with no more registers have half the second cache (Zen 3: 512 KiB): a block that fills half
# of it gains 4% to 8%. Narrow panels may be long: sums that wait for another block of k cost 4% to
# 6%, and a tile's rows stay in the first cache as long as its panel streams by. Panels of constants
# that are met one by one cost 4% to 10% of what four side by side do. A step of 12 multiply-adds
# takes 25 instructions, of which 4 are the loop's: a core by itself hides them, but one whose other
# half computes for somebody else takes 10% to 25% less time without them (Zen 3, in a virtual
# machine with neighbours); steps of 24 multiply-adds have room.
_FEW_REGISTERS = replaced(
    _TILING, vectors=2, kept_bytes=16 << 10, unpacked_bytes=64 << 10, unpacked_rows=96,
    turned_columns=128, pack_bytes=256 << 10, row_bytes=4096,
    least_columns=64, asks_left=True, unrolled=8, packs_alone=True,
)

# By the bytes of registers: what was timed with those of 32 alone (Zen 3). No more sums are needed
# than latency times units: lines of 14 in tiles of 5, 5 and 4 by 2 take 4% less than tiles of 6
# anywhere, and 49 positions are 4 tiles of 6 rows and 5 of 5. A core alone does the loop's own
# instructions without loss, one whose other thread is busy does not: ResNet-50 by layers takes 132
# ms by 1 step, 119 by 2, 117 by 4. One image of 1x1, of 512 to 2048 channels, takes 1.29 ms, and
# 1.13 where tiles ask; of 3x3, of 512 to 512, 2.63 and 2.41.
_CHANNELS = {32: ChannelTiles(sums=8, unrolled=4, even=True, in_turn=True, asks=True)}
_ACROSS = {32: 1}  # 1.05 to 1.2 times as long

# A launch costs about 0.1 us, an element of light work 0.2 to 1 ns, a core's first cache 32 KiB.
CPU = Machine(
    kind="cpu",
    small=8192,
    parallelism=8,
    chunk_least=4096,
    chunk_most=32768,
    block=16384,
    copy_block=32768,
    columns=64,
    column_rows=16,
    iteration_least=256,
    stretch=16,
    stretched=8,
    outer_stretches=True,  # under a condition that is false, a load may take 100 ns
    least_parallel=4,
    alone=65536,
    split_least=32768,
    split_piece=8192,
    split_row=64,
    lanes_outside=64,
    tile=8192,
    rereads=0,
    lane_steps=0,
    piece_steps=0,
    rows_least=0,
    hoists=False,
    template_flops=1 << 19,  # about 5 microseconds
    template_chunks=32,
    dear=8,
    cheap=8,
    alignment=64,  # a line of the caches
    unrolled_steps=32,
    unrolled_light=512,
    tiling=_TILING,
    few_sorted=512,
    few_compared=1 << 17,  # 0.3 ms; of numbers in any order most are never made
    column_run=4096,  # whose sums take half of the first cache
    # a permute is 1 ns an element; a tile's addresses and masks take as long as four registers
    transform=Transform(number=20, beside=64, turned=3),
)


@functools.cache
def cpu(
    vector_bytes: int, registers: int, steps: tuple[str, ...] = (), split: bool = False,
    far: bool = False, slow: tuple[str, ...] = (),
) -> Machine:
    """A CPU with so many vector registers of so many bytes, computed in two halves if `split`,
    instructions for such steps of k, some of them `slow`, and a `far` third cache; only how
    templates are tiled asks, and which of them read halves."""
    many = _FAR if far else _TILING
    tiling = many if registers >= 32 else _FEW_REGISTERS
    tiling = replaced(tiling, vector_bytes=vector_bytes, steps=steps, slow=slow, split=split)
    tiling = replaced(
        tiling, channels=_CHANNELS.get(vector_bytes, tiling.channels),
        across=_ACROSS.get(vector_bytes, tiling.across),
    )
    return replaced(CPU, tiling=tiling, halves="bf16" in steps, integers=True)
