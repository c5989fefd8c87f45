"""How a contraction is cut: blocks of k and n for the caches, chunks of work for the threads.

The plan is made at run time from the sizes alone (never from the number of threads), so the bits
of a result do not depend on who computes it, and one compiled object serves every shape.
"""

from graphc.backends.host.machine import CPU
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value

POINTER_BYTES = 8
BLOCK_K = 384  # steps of k per block, at most: a panel of B then fits half the L2 cache
PACK_BYTES = 512 << 10  # of one block of packed B
IN_PLACE_BYTES = 1 << 20  # a B up to this size is not packed
IN_PLACE_ROWS = 24  # nor one that so few rows of A read
POINTED_COLUMNS = 2048  # of one block, where tiles read B through pointers
SHARED_BYTES = 32 << 20  # a B up to this size may be packed once for all chunks
ROW_TILES = 4  # least height of a chunk in tiles, where rows are split


def ceil_div(f: Function, a: Value, b: Value) -> Value:
    """a / b rounded up, for a >= 0, b > 0."""
    return f.sdiv(f.sub(f.add(a, b), 1), b)


def round_up(f: Function, a: Value, b: Value) -> Value:
    """The next multiple of b."""
    return f.mul(ceil_div(f, a, b), b)


def clamp(f: Function, x: Value, low: Value, high: Value) -> Value:
    """x between low and high."""
    return f.smin(f.smax(x, low), high)


def choose(f: Function, condition: str, a: Value, b: Value) -> Value:
    """a if the i1 condition holds, else b."""
    return f.let(f"select i1 {condition}, i64 {a}, i64 {b}")


def emit_plan(module: Module, tile: Tile) -> None:
    """Defines @graphc_plan_<acc>(descriptor): fills the plan's words from the request's."""
    f = module.function(f"void @graphc_plan_{tile.accumulator}(ptr %d)", "internal")
    d = Descriptor(f, "%d")
    _plan_blocks(f, d, tile)
    _plan_chunks(f, d, tile)
    _plan_memory(f, d, tile)
    f.ret()


def _plan_blocks(f: Function, d: Descriptor, tile: Tile) -> None:
    m, n, k, quantum = d.read(Word.M, Word.N, Word.K, Word.K_QUANTUM)
    segment = choose(f, f.cmp("ne", d[Word.LEFT_DIRECT], 0), d[Word.SEGMENT], k)
    d[Word.BLOCK_SEGMENT] = segment
    parts = f.smax(ceil_div(f, segment, f.smax(d[Word.MOST_STEPS], 1)), 1)
    block = f.smax(round_up(f, ceil_div(f, segment, parts), quantum), 1)
    per_segment = f.smax(ceil_div(f, segment, block), 1)
    segments = f.smax(f.sdiv(k, f.smax(segment, 1)), 1)
    d[Word.BLOCK_K], d[Word.BLOCKS_PER_SEGMENT] = block, per_segment
    d[Word.BLOCKS] = f.mul(segments, per_segment)
    small = f.cmp("sle", f.mul(f.mul(k, n), tile.bytes), IN_PLACE_BYTES)
    flat = f.cmp("sle", m, IN_PLACE_ROWS)
    direct = f.cmp("ne", d[Word.RIGHT_DIRECT], 0)
    in_place = f.let(f"and i1 {direct}, {f.let(f'or i1 {small}, {flat}')}")
    d[Word.RIGHT_IN_PLACE] = f.let(f"zext i1 {in_place} to i64")
    dense = f.cmp("eq", d[Word.POINTER_COLUMNS], 0)
    columns = f.sdiv(PACK_BYTES // tile.bytes, block)
    columns = choose(f, dense, columns, POINTED_COLUMNS)
    columns = f.mul(f.smax(f.sdiv(columns, tile.columns), 1), tile.columns)
    d[Word.BLOCK_N] = choose(f, in_place, f.smax(n, 1), columns)


def _plan_chunks(f: Function, d: Descriptor, tile: Tile) -> None:
    """First batches, then columns; then rows and parts of k, the cheaper of the two first.

    Splitting rows packs B again (unless it is packed for all); splitting k adds partial sums.
    """
    batch, m, n = d.read(Word.BATCH, Word.M, Word.N)
    flops = f.mul(f.mul(f.mul(f.mul(batch, 2), m), n), d[Word.TERMS])
    want = clamp(f, f.sdiv(flops, CPU.template_flops), 1, CPU.template_chunks)  # Machine.pieces
    d[Word.CHUNK_BATCH] = f.smax(ceil_div(f, batch, want), 1)
    per_batch = ceil_div(f, want, f.smax(batch, 1))

    tiles = f.smax(ceil_div(f, n, tile.columns), 1)
    width = ceil_div(f, tiles, f.smin(tiles, per_batch))
    split_n = ceil_div(f, tiles, width)
    d[Word.CHUNK_N], d[Word.SPLIT_N] = f.mul(width, tile.columns), split_n
    rest = f.smax(f.sdiv(per_batch, split_n), 1)

    blocks = d[Word.BLOCKS]
    rows_first = f.cmp("eq", d[Word.GEOMETRY], 0)
    most_rows = f.smax(f.sdiv(ceil_div(f, m, MR), ROW_TILES), 1)
    early = choose(f, rows_first, 1, f.smin(rest, blocks))
    split_m = clamp(f, f.sdiv(rest, early), 1, most_rows)
    late = clamp(f, f.sdiv(rest, split_m), 1, f.smax(f.sdiv(blocks, 2), 1))
    split_k = choose(f, rows_first, late, early)

    height = f.smax(round_up(f, ceil_div(f, m, split_m), MR), MR)
    split_m = f.smax(ceil_div(f, m, height), 1)
    part = ceil_div(f, blocks, split_k)
    split_k = ceil_div(f, blocks, part)
    d[Word.CHUNK_M], d[Word.SPLIT_M] = height, split_m
    d[Word.CHUNK_BLOCKS], d[Word.SPLIT_K] = part, split_k
    groups = ceil_div(f, batch, d[Word.CHUNK_BATCH])
    d[Word.CHUNKS] = f.mul(f.mul(f.mul(groups, split_n), split_m), split_k)


def _plan_memory(f: Function, d: Descriptor, tile: Tile) -> None:
    """Sizes and offsets, all multiples of 64 bytes."""
    block_k, block_n, chunk_n = d.read(Word.BLOCK_K, Word.BLOCK_N, Word.CHUNK_N)
    in_place = f.cmp("ne", d[Word.RIGHT_IN_PLACE], 0)
    columns = round_up(f, f.smin(chunk_n, f.smin(block_n, d[Word.N])), tile.lanes)
    several = f.cmp("sgt", d[Word.CHUNK_BLOCKS], 1)
    split = f.cmp("sgt", d[Word.SPLIT_K], 1)
    waits = f.let(f"or i1 {several}, {split}")
    area = choose(f, waits, f.mul(f.mul(d[Word.CHUNK_M], columns), tile.bytes), 0)
    d[Word.AREA] = area
    pack_at = choose(f, split, 0, area)
    d[Word.PACK_AT] = pack_at

    shared = f.cmp("sgt", d[Word.SPLIT_M], 1)
    one_batch = f.cmp("eq", d[Word.BATCH], 1)
    fits = f.cmp("sle", f.mul(f.mul(d[Word.K], d[Word.N]), tile.bytes), SHARED_BYTES)
    packs = f.let(f"xor i1 {in_place}, true")
    dense = f.cmp("eq", d[Word.POINTER_COLUMNS], 0)
    for condition in (shared, one_batch, fits, dense):
        packs = f.let(f"and i1 {packs}, {condition}")
    # 1 asks for packing in advance; the driver replaces it by the pointer
    d[Word.RIGHT_PACKED] = f.let(f"zext i1 {packs} to i64")
    direct = f.cmp("eq", d[Word.LEFT_DIRECT], 0)
    d[Word.LEFT_PACKED] = f.let(f"zext i1 {direct} to i64")

    tail = f.cmp("ne", f.srem(d[Word.N], tile.lanes), 0)
    tail_columns = choose(f, tail, tile.lanes, 0)
    packed_columns = choose(f, in_place, tail_columns, choose(f, packs, 0, columns))
    pack = f.mul(f.mul(block_k, packed_columns), tile.bytes)
    pack = round_up(f, choose(f, dense, pack, f.mul(columns, POINTER_BYTES)), 64)
    scratch_at = f.add(pack_at, pack)
    d[Word.PACK_SCRATCH_AT] = scratch_at
    work = f.add(d[Word.PACK_SCRATCH], f.mul(d[Word.PACK_SCRATCH_COLUMN], columns))
    d[Word.PACK_SCRATCH] = work
    some = f.cmp("sgt", packed_columns, 0)
    d[Word.SCRATCH] = f.add(scratch_at, choose(f, some, work, 0))
