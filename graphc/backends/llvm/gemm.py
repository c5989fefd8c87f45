"""The shared contraction driver: C = A * B in chunks, blocks and tiles, sizes known at run time.

`emit_gemm` defines `@graphc_contract_<acc>(descriptor)` once per accumulator type. What differs
between contractions comes as function pointers in the descriptor: where operands begin, how they
are packed, and the epilogue. All loops over k run in one order per chunk, so results do not depend
on threads.
"""

from graphc.backends.llvm.gemm_ahead import Ahead
from graphc.backends.llvm.gemm_alone import alone_symbol, emit_alone
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_panels import before_tail, panels, reads_back, row_class_of
from graphc.backends.llvm.gemm_plan import choose, round_up
from graphc.backends.llvm.gemm_stages import (
    PACK_TILES,
    Block,
    call_pack_right,
    emit_pack_left_stage,
    emit_pack_right_stage,
    give_slot,
    run_symbol,
    take_slot,
)
from graphc.backends.llvm.gemm_store import Result
from graphc.backends.llvm.matrix_kernel import emit_matrix_kernels
from graphc.backends.llvm.matrix_unit import UNIT_PARAMETER, MatrixUnit, allocate_unit
from graphc.backends.llvm.microkernel import (
    ROW_CLASSES,
    RUN_STEPS,
    Tile,
    emit_kernel_table,
    emit_microkernels,
    emit_run,
    emit_table,
    run_kernel_symbol,
    runs_table,
    tiles_table,
)
from graphc.backends.llvm.right_memory import right_bytes, right_element
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.blocking import POINTER_BYTES


def contract_symbol(tile: Tile) -> str:
    """The name of the driver: void (ptr descriptor)."""
    return f"@graphc_contract_{tile.name}"


def declare_contract(module: Module, tile: Tile) -> str:
    """Declares the driver and returns its name."""
    module.declare(f"declare void {contract_symbol(tile)}(ptr)")
    return contract_symbol(tile)


def emit_gemm(module: Module, tile: Tile) -> None:
    """Defines the driver. Where a step of k is one value, its tiles are what the request says."""
    if tile.group > 1:
        emit_tiles(module, tile)
    _emit_finish_tile(module, tile)
    _emit_product(module, tile)
    _emit_chunk(module, tile)
    _emit_combine(module, tile)
    emit_pack_left_stage(module, tile)
    emit_pack_right_stage(module, tile)
    if tile.tiling.packs_alone:
        emit_alone(module, tile)
    _emit_contract(module, tile)


def emit_tiles(module: Module, tile: Tile) -> None:
    """Defines all tiles and their tables."""
    if tile.step.matrix:
        emit_matrix_kernels(module, tile)
    else:
        emit_microkernels(module, tile)
    emit_kernel_table(module, tile)
    if tile.group == 1:
        for rows in ROW_CLASSES:
            emit_run(module, tile, rows, "internal")
        runs = [run_kernel_symbol(tile, rows) for rows in ROW_CLASSES]
        emit_table(module, runs_table(tile), runs)


def _emit_contract(module: Module, tile: Tile) -> None:
    f = module.function(f"void {contract_symbol(tile)}(ptr %d)")
    acc, run = tile.name, run_symbol(module)
    if tile.tiling.packs_alone:
        f.call("void", alone_symbol(tile), "ptr %d")
    d = Descriptor(f, "%d")
    tiles = f.sdiv(f.add(d[Word.M], tile.rows - 1), tile.rows)
    batch, split_k, chunks = d.read(Word.BATCH, Word.SPLIT_K, Word.CHUNKS)
    pieces = f.mul(d[Word.SPLIT_N], d[Word.BLOCKS])
    left, right = d.read(Word.LEFT_PACKED, Word.RIGHT_PACKED)
    right_at, partial_at = d.read(Word.RIGHT_AT, Word.PARTIAL_AT)
    memory = d.pointer_at(Word.MEMORY)
    f.store(0, "i64", d.place(Word.BUSY), 8)
    with f.when(f.cmp("ne", left, 0)):
        d.set_pointer(Word.LEFT_PACKED, memory)
        stages = f.mul(batch, f.sdiv(f.add(tiles, PACK_TILES - 1), PACK_TILES))
        f.call("void", run, f"ptr @graphc_pack_left_{acc}", "ptr %d", f"i64 {stages}")
    with f.when(f.cmp("ne", right, 0)):
        d.set_pointer(Word.RIGHT_PACKED, f.gep(memory, right_at, "i8"))
        f.call("void", run, f"ptr @graphc_pack_right_{acc}", "ptr %d", f"i64 {pieces}")
    d.set_pointer(Word.PARTIAL, f.gep(memory, partial_at, "i8"))
    f.call("void", run, f"ptr @graphc_chunk_{acc}", "ptr %d", f"i64 {chunks}")
    with f.when(f.cmp("sgt", split_k, 1)):
        count = f.sdiv(chunks, split_k)
        f.call("void", run, f"ptr @graphc_combine_{acc}", "ptr %d", f"i64 {count}")
    f.ret()


class Chunk:
    """A chunk's number taken apart: first batch, rows, columns and blocks of k."""

    def __init__(self, f: Function, d: Descriptor, number: Value, parts: Value) -> None:
        split_n, split_m = d.read(Word.SPLIT_N, Word.SPLIT_M)
        self.part = f.srem(number, parts)
        rest = f.sdiv(number, parts)
        row = f.srem(rest, split_m)
        rest = f.sdiv(rest, split_m)
        column = f.srem(rest, split_n)
        self.batch = f.mul(f.sdiv(rest, split_n), d[Word.CHUNK_BATCH])
        self.batch_end = f.smin(f.add(self.batch, d[Word.CHUNK_BATCH]), d[Word.BATCH])
        self.m = f.mul(row, d[Word.CHUNK_M])
        self.m_end = f.smin(f.add(self.m, d[Word.CHUNK_M]), d[Word.M])
        self.n = f.mul(column, d[Word.CHUNK_N])
        self.n_end = f.smin(f.add(self.n, d[Word.CHUNK_N]), d[Word.N])
        self.block = f.mul(self.part, d[Word.CHUNK_BLOCKS])
        self.block_end = f.smin(f.add(self.block, d[Word.CHUNK_BLOCKS]), d[Word.BLOCKS])


def _emit_chunk(module: Module, tile: Tile) -> None:
    f = module.function(f"void @graphc_chunk_{tile.name}(ptr %d, i64 %number)", "internal")
    d = Descriptor(f, "%d")
    split_k, area = d.read(Word.SPLIT_K, Word.AREA)
    chunk = Chunk(f, d, "%number", split_k)
    partial = d.pointer_at(Word.PARTIAL)
    split = f.cmp("sgt", split_k, 1)
    slot, scratch = take_slot(d)
    part = f.gep(partial, f.mul("%number", area), "i8")
    sums = f.let(f"select i1 {split}, ptr {part}, ptr {scratch}")
    finish = f.let(f"zext i1 {f.cmp('eq', split_k, 1)} to i64")
    unit = MatrixUnit(f, tile, allocate_unit(f, tile)) if tile.step.matrix else None
    if unit:
        unit.configure_whole()
    with f.loop(chunk.batch, chunk.batch_end) as batch:
        f.call(
            "void",
            f"@graphc_product_{tile.name}",
            "ptr %d",
            f"i64 {batch}",
            *(f"i64 {v}" for v in (chunk.m, chunk.m_end, chunk.n, chunk.n_end)),
            *(f"i64 {v}" for v in (chunk.block, chunk.block_end)),
            f"ptr {scratch}",
            f"ptr {sums}",
            f"i64 {finish}",
            *([f"ptr {unit.state}"] if unit else ()),
        )
    if unit:
        unit.release()
    give_slot(d, slot)
    f.ret()


def _emit_product(module: Module, tile: Tile) -> None:
    """One batch of a chunk: for columns, for blocks of k: pack B, then all rows against it."""
    f = module.function(
        f"void @graphc_product_{tile.name}(ptr %d, i64 %b, i64 %m, i64 %m_end, i64 %n, "
        "i64 %n_end, i64 %block, i64 %block_end, ptr %scratch, ptr %sums, i64 %finish"
        f"{UNIT_PARAMETER if tile.step.matrix else ''})",
        "internal",
    )
    d = Descriptor(f, "%d")
    bases = f.alloca("ptr", 2, 16)
    spare = f.alloca(tile.vector, tile.rows * tile.vectors)
    operands = d.pointer_at(Word.OPERANDS)
    f.call("void", d.pointer_at(Word.BASES), f"ptr {operands}", "i64 %b", f"ptr {bases}")
    left = f.load(bases, "ptr", 8)
    right = f.load(f.gep(bases, 1, "ptr"), "ptr", 8)
    context = _ProductContext(f, d, tile, left, right, spare)
    block_n = d[Word.BLOCK_N]
    with f.loop("%n", "%n_end", block_n) as n:
        columns = f.smin(f.sub("%n_end", n), block_n)
        with f.loop("%block", "%block_end") as number:
            context.emit_block(n, columns, number)
    f.ret()


class _ProductContext:
    """What the loops of a product share."""

    def __init__(
        self, f: Function, d: Descriptor, tile: Tile, left: str, right: str, spare: str
    ) -> None:
        self.f, self.d, self.tile, self.left, self.right, self.spare = (
            f,
            d,
            tile,
            left,
            right,
            spare,
        )
        d.read(Word.BLOCKS_PER_SEGMENT, Word.BLOCK_K, Word.BLOCK_SEGMENT, Word.LEFT_SEGMENT)
        d.read(Word.LEFT_STEP, Word.LEFT_M, Word.RIGHT_K, Word.AREA, Word.K, Word.M)
        self.in_place = f.cmp("ne", d[Word.RIGHT_IN_PLACE], 0)
        self.pack = f.gep("%scratch", d[Word.PACK_AT], "i8")
        self.pack_scratch = f.gep("%scratch", d[Word.PACK_SCRATCH_AT], "i8")
        self.pack_right = d.pointer_at(Word.PACK_RIGHT)
        self.right_packed = d.pointer_at(Word.RIGHT_PACKED)
        self.shared = f.let(f"icmp ne ptr {self.right_packed}, null")
        self.panels = f.cmp("ne", d[Word.PANEL], 0)
        self.back = reads_back(f, tile, d[Word.N], self.in_place)
        self.waits = f.cmp("sgt", d[Word.AREA], 0)
        self.result = Result(d, tile, "%b")
        alone = f.let(f"xor i1 {self.waits}, true")
        dense = f.cmp("eq", d[Word.A_STEP], 0)  # else the left operand is not in rows either
        self.stores = f.let(f"and i1 {self.result.offered}, {f.let(f'and i1 {alone}, {dense}')}")
        self.tiles = d.pointer_at(Word.TILES)
        if tile.group > 1:
            own = f.let(f"icmp eq ptr {self.tiles}, null")
            self.tiles = f.let(f"select i1 {own}, ptr {tiles_table(tile)}, ptr {self.tiles}")
        else:
            self.runs = d.pointer_at(Word.RUNS)
        d.read(Word.POINTER_COLUMNS, Word.B_STEP, Word.B_STEP_K)
        self.row_bytes, self.step_bytes, self.left_start = self._left_layout()
        self.total_columns = round_up(f, d[Word.N], tile.lanes)
        self.ahead = Ahead(d, tile, self.panels, self.in_place, self.left_in_place)

    def _left_layout(self) -> tuple[Value, Value, str]:
        """Byte strides of the left operand and where its rows begin, packed or in place."""
        f, d, size, most = self.f, self.d, self.tile.bytes, self.tile.rows
        packed = d.pointer_at(Word.LEFT_PACKED)
        self.left_in_place = in_place = f.let(f"icmp eq ptr {packed}, null")
        tiles = f.sdiv(f.add(d[Word.M], most - 1), most)
        batch = f.mul(f.mul("%b", tiles), f.mul(d[Word.K], most * size))
        start = f.gep(packed, batch, "i8")
        row_bytes = f.mul(d[Word.LEFT_M], self.tile.value_bytes)
        packed_row: Value = size
        self.packed_step = most * size
        if self.tile.step.matrix:  # whose rows are packed one after the other
            packed_row, self.packed_step = f.mul(d[Word.K], size), size
        row = choose(f, in_place, row_bytes, packed_row)
        step = choose(f, in_place, d[Word.LEFT_STEP], self.packed_step)
        step = choose(f, f.cmp("ne", d[Word.A_STEP], 0), d[Word.A_STEP], step)
        # rows of packed A come in tiles, each [k][rows]: row m begins at m * K elements
        self.tile_row = choose(f, in_place, row_bytes, f.mul(d[Word.K], size))
        return row, step, f.let(f"select i1 {in_place}, ptr {self.left}, ptr {start}")

    def emit_block(self, n: Value, columns: Value, number: Value) -> None:
        """Packs B where needed and multiplies all rows of the chunk by it."""
        f, tile = self.f, self.tile
        block = Block(f, self.d, tile, number)
        base, tail, lies = self._prepare_right(n, columns, block)
        packed_k = f.mul(block.k, self.packed_step)
        offset = choose(f, self.left_in_place, block.left, packed_k)
        left = f.gep(self.left_start, offset, "i8")
        more = f.let(f"zext i1 {f.cmp('sgt', number, '%block')} to i64")
        last = f.cmp("eq", f.add(number, 1), "%block_end")
        last = f.let(f"and i1 {last}, {f.cmp('ne', '%finish', 0)}")
        padded = round_up(f, columns, tile.lanes)
        runs = self._panels_in_a_run(columns, last)
        stores = f.let(f"and i1 {last}, {self.stores}")
        whole = f.cmp("eq", f.add(number, 1), self.d[Word.BLOCKS])
        after = self.ahead.after(columns, block, whole)
        with f.loop("%m", "%m_end", tile.rows) as m:
            rows = f.smin(f.sub("%m_end", m), tile.rows)
            a = f.gep(left, f.mul(m, self.tile_row), "i8")
            row_class = row_class_of(f, tile, rows)
            row_kind = f.mul(row_class, len(tile.widths))
            area_row = f.mul(f.sub(m, "%m"), padded)
            if tile.group == 1:
                self._emit_runs(block, runs, (a, base, area_row), (row_class, rows, more))
            with panels(f, tile, columns, self.in_place, runs) as (j, width, kind, is_tail):
                pitch = f.mul(width, tile.lanes)
                back = before_tail(f, tile, columns, f.let(f"and i1 {is_tail}, {self.back}"))
                b, b_step = self._panel(base, tail, block, (n, j, pitch, is_tail), back)
                c = f.gep("%sums", f.add(area_row, f.mul(j, tile.rows)), tile.element)
                c = f.let(f"select i1 {self.waits}, ptr {c}, ptr {self.spare}")
                count = f.smin(pitch, f.sub(columns, j))
                goal = (m, f.add(n, j), count)
                direct, to, apart = self.result.goal(goal, c, pitch, stores)
                apart_a = (self.row_bytes, self.step_bytes, self.tile_row)
                source = self.ahead.read_from(b, f.gep(lies, j, tile.element))
                next_a = self.ahead.left(a, m, (j, columns), apart_a)
                f.call(
                    "void",
                    f.load(f.gep(self.tiles, f.add(row_kind, kind), "ptr"), "ptr", 8),
                    f"i64 {block.steps}",
                    f"ptr {a}",
                    f"i64 {self.row_bytes}",
                    f"i64 {self.step_bytes}",
                    f"ptr {b}",
                    f"i64 {b_step}",
                    f"ptr {to}",
                    *(f"i64 {v}" for v in (rows, more, count, apart)),
                    *self.ahead.of(m, b, after, block, next_a, source),
                    *(["ptr %unit"] if tile.step.matrix else ()),
                )
                with f.when(f.let(f"and i1 {last}, {f.let(f'xor i1 {direct}, true')}")):
                    values = ("%b", m, rows, f.add(n, j), count)
                    f.call(
                        "void",
                        f"@graphc_finish_{tile.name}",
                        "ptr %d",
                        *(f"i64 {v}" for v in values),
                        f"ptr {f.gep(c, back, tile.element)}",
                        f"i64 {pitch}",
                    )

    def _emit_runs(
        self, block: Block, runs: Value, places: tuple[str, str, Value],
        rows: tuple[Value, Value, Value],
    ) -> None:
        """Multiplies the panels of full width that one call does."""
        f, tile = self.f, self.tile
        (a, base, area_row), (row_class, count, more) = places, rows
        with f.when(f.cmp("sgt", runs, 0)):
            f.call(
                "void",
                f.load(f.gep(self.runs, row_class, "ptr"), "ptr", 8),
                *(f"i64 {v}" for v in (runs, block.steps)),
                f"ptr {a}",
                f"i64 {self.row_bytes}",
                f"i64 {self.step_bytes}",
                f"ptr {base}",
                f"i64 {f.mul(self.d[Word.RIGHT_K], right_bytes(tile))}",
                f"ptr {f.gep('%sums', area_row, tile.element)}",
                *(f"i64 {v}" for v in (count, more)),
            )

    def _panels_in_a_run(self, columns: Value, last: str) -> Value:
        """How many panels, from the first on, one call multiplies: all of full width, where B is
        read in place, few steps at a time, and the sums wait for further blocks."""
        f = self.f
        if self.tile.group > 1:
            return 0
        dense = f.let(f"and i1 {self.in_place}, {f.cmp('eq', self.d[Word.POINTER_COLUMNS], 0)}")
        waits = f.let(f"and i1 {self.waits}, {f.let(f'xor i1 {last}, true')}")
        whole = f.floordiv(columns, self.tile.columns)
        short = f.cmp("sle", self.d[Word.BLOCK_K], RUN_STEPS)
        return choose(f, f.let(f"and i1 {f.let(f'and i1 {dense}, {waits}')}, {short}"), whole, 0)

    def _panel(
        self, base: str, tail: str, block: Block, panel: tuple[Value, Value, Value, str],
        back: Value,
    ) -> tuple[str, Value]:
        """Where a panel of B begins and what its tile kernel gets as b_step."""
        f, d, tile = self.f, self.d, self.tile
        n, j, pitch, is_tail = panel
        is_tail = f.let(f"and i1 {is_tail}, {f.let(f'xor i1 {self.back}, true')}")
        packed = f.let(f"or i1 {is_tail}, {f.let(f'xor i1 {self.in_place}, true')}")
        direct_step = f.mul(d[Word.RIGHT_K], right_bytes(tile))
        packed = f.let(f"and i1 {packed}, {f.let(f'xor i1 {self.panels}, true')}")
        step = choose(f, packed, f.mul(pitch, right_bytes(tile)), direct_step)
        column = f.add(n, j)
        in_panel = f.mul(f.floordiv(column, tile.columns), d[Word.PANEL])
        in_panel = f.add(in_panel, f.mod(column, tile.columns))
        at = choose(f, self.in_place, f.sub(j, back), f.mul(j, block.rows))
        at = f.mul(choose(f, self.panels, in_panel, at), right_bytes(tile))
        columns = d[Word.POINTER_COLUMNS]
        pointer = f.mul(f.sdiv(j, f.smax(columns, 1)), POINTER_BYTES)
        pointed = f.add(d[Word.B_STEP], f.mul(block.k, d[Word.B_STEP_K]))
        by_pointers = f.cmp("ne", columns, 0)
        b = f.gep(base, choose(f, by_pointers, pointer, at), "i8")
        b = f.let(f"select i1 {is_tail}, ptr {tail}, ptr {b}")
        return b, choose(f, by_pointers, pointed, step)

    def _prepare_right(self, n: Value, columns: Value, block: Block) -> tuple[str, str, str]:
        """(where the panels of this block begin, the packed tail for a B read in place, where the
        block lies)."""
        f, d, tile = self.f, self.d, self.tile
        whole = f.mul(f.floordiv(columns, tile.lanes), tile.lanes)
        first = choose(f, self.in_place, whole, 0)
        count = f.sub(columns, first)
        lies = f.let(f"or i1 {f.let(f'or i1 {self.shared}, {self.panels}')}, {self.back}")
        packs = f.let(f"xor i1 {lies}, true")
        with f.when(f.let(f"and i1 {packs}, {f.cmp('sgt', count, 0)}")):
            call_pack_right(
                f,
                self.pack_right,
                (self.right, f.add(n, first), count, block.k, block.steps),
                self.pack,
                self.pack_scratch,
            )
        column = choose(f, self.panels, 0, n)
        at = f.add(f.mul(block.k, d[Word.RIGHT_K]), column)
        direct = f.gep(self.right, at, right_element(tile))
        offset = f.add(f.mul(block.row, self.total_columns), f.mul(n, block.rows))
        shared = f.gep(self.right_packed, offset, tile.element)
        packed = f.let(f"select i1 {self.shared}, ptr {shared}, ptr {self.pack}")
        as_it_lies = f.let(f"or i1 {self.in_place}, {self.panels}")
        return f.let(f"select i1 {as_it_lies}, ptr {direct}, ptr {packed}"), self.pack, direct


def _emit_finish_tile(module: Module, tile: Tile) -> None:
    """Calls the epilogue on a finished tile, once per image where n is flattened over images."""
    f = module.function(
        f"void @graphc_finish_{tile.name}(ptr %d, i64 %b, i64 %m, i64 %rows, i64 %n, "
        "i64 %columns, ptr %c, i64 %pitch)",
        "internal",
    )
    d = Descriptor(f, "%d")
    positions = d[Word.POSITIONS]
    first_b = f.add(f.mul("%b", d[Word.EPILOGUE_B]), d[Word.FIRST_IMAGE])
    m = f.add(f.mul("%b", d[Word.EPILOGUE_M]), "%m")
    epilogue, arguments = d.pointer_at(Word.EPILOGUE), d.pointer_at(Word.ARGUMENTS)

    def call(b: Value, n: Value, columns: Value, c: str) -> None:
        values = (b, m, "%rows", n, columns)
        f.call(
            "void",
            epilogue,
            f"ptr {arguments}",
            *(f"i64 {v}" for v in values),
            f"ptr {c}",
            "i64 %pitch",
        )

    end = f.add("%n", "%columns")
    inside, across = f.label("inside"), f.label("across")
    f.cond_br(f.cmp("sle", end, positions), inside, across)
    f.block(inside)
    call(first_b, "%n", "%columns", "%c")
    f.ret()
    f.block(across)
    image = f.sdiv("%n", positions)
    last = f.sdiv(f.sub(end, 1), positions)
    with f.loop(image, f.add(last, 1)) as index:
        start = f.mul(index, positions)
        low = f.smax(start, "%n")
        high = f.smin(f.add(start, positions), end)
        c = f.gep("%c", f.sub(low, "%n"), tile.element)
        call(f.add(first_b, index), f.sub(low, start), f.sub(high, low), c)
    f.ret()


def _emit_combine(module: Module, tile: Tile) -> None:
    """Adds the parts of a split k in index order and finishes the tiles of one (m, n) chunk."""
    f = module.function(f"void @graphc_combine_{tile.name}(ptr %d, i64 %number)", "internal")
    d = Descriptor(f, "%d")
    chunk = Chunk(f, d, "%number", 1)
    split_k, area = d.read(Word.SPLIT_K, Word.AREA)
    in_place = f.cmp("ne", d[Word.RIGHT_IN_PLACE], 0)
    parts = f.gep(d.pointer_at(Word.PARTIAL), f.mul(f.mul("%number", split_k), area), "i8")
    columns = f.sub(chunk.n_end, chunk.n)
    padded = round_up(f, columns, tile.lanes)
    spare = f.alloca(tile.vector, tile.rows * tile.vectors)
    reads = reads_back(f, tile, d[Word.N], in_place)
    with f.loop(chunk.m, chunk.m_end, tile.rows) as m:
        rows = f.smin(f.sub(chunk.m_end, m), tile.rows)
        with panels(f, tile, columns, in_place) as (j, width, _, is_tail):
            back = before_tail(f, tile, columns, f.let(f"and i1 {is_tail}, {reads}"))
            offset = f.add(f.mul(f.sub(m, chunk.m), padded), f.mul(j, tile.rows))
            first = f.gep(parts, offset, tile.element)
            with f.loop(0, f.mul(rows, width)) as index:
                place = f.gep(first, index, tile.vector)
                start = f.load(place, tile.vector, tile.bytes)
                loop = f.carry_loop(1, split_k, 1, [(tile.vector, start)])
                other = f.gep(place, f.mul(loop.index, area), "i8")
                more = f.load(other, tile.vector, tile.bytes)
                (total,) = loop.close([tile.add(f, loop.values[0], more)])
                f.store(total, tile.vector, f.gep(spare, index, tile.vector), tile.bytes)
            pitch = f.mul(width, tile.lanes)
            count = f.smin(pitch, f.sub(columns, j))
            values = (chunk.batch, m, rows, f.add(chunk.n, j), count)
            f.call(
                "void",
                f"@graphc_finish_{tile.name}",
                "ptr %d",
                *(f"i64 {v}" for v in values),
                f"ptr {f.gep(spare, back, tile.element)}",
                f"i64 {pitch}",
            )
    f.ret()
