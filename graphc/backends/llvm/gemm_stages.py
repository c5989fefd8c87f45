"""What runs before the product: operands packed once for all chunks, and how stages are run."""

from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word
from graphc.backends.llvm.gemm_plan import round_up
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value

PARALLEL = "@graphc_par"
PACK_TILES = 8  # tiles of rows that are packed by one chunk


def run_symbol(module: Module) -> str:
    """void (fn, descriptor, chunks): through the thread pool unless there is one chunk."""
    symbol = "@graphc_run"
    if module.count_use(symbol) > 1:
        return symbol
    module.declare(f"declare void {PARALLEL}(ptr, ptr, i64)")
    f = module.function(f"void {symbol}(ptr %fn, ptr %d, i64 %chunks)", "internal", ENTRY)
    several, one, done = f.label("several"), f.label("one"), f.label("done")
    f.cond_br(f.cmp("sgt", "%chunks", 1), several, one)
    f.block(several)
    f.call("void", PARALLEL, "ptr %fn", "ptr %d", "i64 %chunks")
    f.br(done)
    f.block(one)
    with f.when(f.cmp("eq", "%chunks", 1)):
        f.call("void", "%fn", "ptr %d", "i64 0")
    f.br(done)
    f.block(done)
    f.ret()
    return symbol


def take_slot(d: Descriptor) -> tuple[str, str]:
    """The first free part of the chunks' scratch: (its bit, its address).

    Low slots are used again and again, so that they stay in the caches. Where there are fewer slots
    than threads (some were added during the call), the rest wait.
    """
    f = d.function
    slots, workers = d.read(Word.SLOTS, Word.WORKERS)
    size, at = d.read(Word.CHUNK_SCRATCH, Word.CHUNKS_AT)
    most = f.smin(slots, workers)
    memory = d.pointer_at(Word.MEMORY)
    bit, slot = claim_slot(f, d.place(Word.BUSY), most)
    return bit, f.gep(memory, f.add(at, f.mul(slot, size)), "i8")


def claim_slot(f: Function, place: str, most: Value) -> tuple[str, str]:
    """The first of `most` bits of the word at `place` that is not set, which now is: (it, its
    number)."""
    f.module.declare("declare i64 @llvm.cttz.i64(i64, i1)")
    again, claim, done = f.label("again"), f.label("claim"), f.label("claimed")
    f.br(again)
    f.block(again)
    busy = f.let(f"load atomic i64, ptr {place} monotonic, align 8")
    free = f.let(f"xor i64 {busy}, -1")
    slot = f.call("i64", "@llvm.cttz.i64", f"i64 {free}", "i1 false")
    f.cond_br(f.cmp("slt", slot, most), claim, again)
    f.block(claim)
    bit = f.let(f"shl i64 1, {slot}")
    new = f.let(f"or i64 {busy}, {bit}")
    swap = f.let(f"cmpxchg ptr {place}, i64 {busy}, i64 {new} acquire monotonic")
    f.cond_br(f.let(f"extractvalue {{ i64, i1 }} {swap}, 1"), done, again)
    f.block(done)
    return bit, slot


def give_slot(d: Descriptor, bit: str) -> None:
    """Frees what take_slot found."""
    free_slot(d.function, d.place(Word.BUSY), bit)


def free_slot(f: Function, place: str, bit: str) -> None:
    """Frees what claim_slot found."""
    kept = f.let(f"xor i64 {bit}, -1")
    f.let(f"atomicrmw and ptr {place}, i64 {kept} release")


class Block:
    """A block of k: its first step, its length, the same in rows of the packed right operand, and
    its offset in an unpacked left operand, in bytes."""

    def __init__(self, f: Function, d: Descriptor, tile: Tile, number: Value) -> None:
        per_segment, size, segment = d.read(
            Word.BLOCKS_PER_SEGMENT, Word.BLOCK_K, Word.BLOCK_SEGMENT
        )
        index = f.sdiv(number, per_segment)
        inside = f.mul(f.srem(number, per_segment), size)
        self.k = f.add(f.mul(index, segment), inside)
        self.steps = f.smin(f.sub(segment, inside), size)
        heads = tile.step.heads
        self.row, self.rows = f.add(self.k, f.mul(number, heads)), f.add(self.steps, heads)
        segments = f.mul(f.mul(index, d[Word.LEFT_SEGMENT]), tile.value_bytes)
        self.left = f.add(segments, f.mul(inside, d[Word.LEFT_STEP]))


def call_pack_right(
    f: Function, callee: str, what: tuple[str, Value, Value, Value, Value], to: str, scratch: str
) -> None:
    """Calls a pack_right for (base, n, columns, k, steps)."""
    base, n, columns, k, steps = what
    f.call(
        "void",
        callee,
        "ptr %d",
        f"ptr {base}",
        *(f"i64 {v}" for v in (n, columns, k, steps)),
        f"ptr {to}",
        f"ptr {scratch}",
    )


def emit_pack_left_stage(module: Module, tile: Tile) -> None:
    """Packs some tiles of rows of the left operand, all of k: [batch][tile][k][row], or by rows."""
    f = module.function(
        f"void @graphc_pack_left_{tile.name}(ptr %d, i64 %number)", "internal"
    )
    d = Descriptor(f, "%d")
    m_end, k = d.read(Word.M, Word.K)
    tiles = f.sdiv(f.add(m_end, tile.rows - 1), tile.rows)
    groups = f.sdiv(f.add(tiles, PACK_TILES - 1), PACK_TILES)
    batch, group = f.sdiv("%number", groups), f.srem("%number", groups)
    bases = f.alloca("ptr", 2, 16)
    pack, operands = d.pointer_at(Word.PACK_LEFT), d.pointer_at(Word.OPERANDS)
    f.call("void", d.pointer_at(Word.BASES), f"ptr {operands}", f"i64 {batch}", f"ptr {bases}")
    left, packed = f.load(bases, "ptr", 8), d.pointer_at(Word.LEFT_PACKED)
    first = f.mul(group, PACK_TILES)
    m = f.mul(first, tile.rows)
    rows = f.smin(f.sub(m_end, m), tile.rows * PACK_TILES)
    offset = f.mul(f.mul(f.add(f.mul(batch, tiles), first), k), tile.rows)
    to = f.gep(packed, offset, tile.element)
    values = (f"i64 {v}" for v in (m, rows, 0, k))
    f.call("void", pack, "ptr %d", f"ptr {left}", *values, f"ptr {to}")
    f.ret()


def emit_pack_right_stage(module: Module, tile: Tile) -> None:
    """Packs one block of k of one chunk's columns of the right operand, for every chunk to read.

    Columns in the order of chunks: so a thread has packed most of what it goes on with, which is
    slow to read from another core's cache.
    """
    f = module.function(
        f"void @graphc_pack_right_{tile.name}(ptr %d, i64 %number)", "internal"
    )
    d = Descriptor(f, "%d")
    blocks, chunk_n, n_end = d.read(Word.BLOCKS, Word.CHUNK_N, Word.N)
    block_n = d[Word.BLOCK_N]
    block = Block(f, d, tile, f.srem("%number", blocks))
    start = f.mul(f.sdiv("%number", blocks), chunk_n)
    end = f.smin(f.add(start, chunk_n), n_end)
    bases = f.alloca("ptr", 2, 16)
    operands = d.pointer_at(Word.OPERANDS)
    f.call("void", d.pointer_at(Word.BASES), f"ptr {operands}", "i64 0", f"ptr {bases}")
    right = f.load(f.gep(bases, 1, "ptr"), "ptr", 8)
    packed, pack = d.pointer_at(Word.RIGHT_PACKED), d.pointer_at(Word.PACK_RIGHT)
    slot, scratch = take_slot(d)
    row = f.mul(block.row, round_up(f, n_end, tile.lanes))
    with f.loop(start, end, block_n) as n:
        to = f.gep(packed, f.add(row, f.mul(n, block.rows)), tile.element)
        columns = f.smin(f.sub(end, n), block_n)
        call_pack_right(f, pack, (right, n, columns, block.k, block.steps), to, scratch)
    give_slot(d, slot)
    f.ret()
