"""Packing of operands whose steps of k are several values: neighbours along k meet in a word.

The packers are those of gemm_pack.
"""

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    declare_transpose,
    first_lanes,
    first_values,
    left_tiles,
    packed_vectors,
    transpose_part,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_pack_rows import emit_pack_left_rows
from graphc.backends.llvm.gemm_words import Steps, word
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import shuffle_mask


def emit_word_packs(module: Module, source: Source) -> None:
    """Defines the four packers for one source dtype."""
    declare_transpose(module, source.tile)
    if source.tile.step.matrix:
        emit_pack_left_rows(module, source)
    else:
        _emit_pack_left(module, source)
    _emit_pack_rows(module, source)
    _emit_pack_columns(module, source)
    _emit_pack_strided(module, source)


def _emit_pack_left(module: Module, source: Source) -> None:
    """By words along k where values are neighbours there, by registers where they are along m."""
    f = module.function(f"void @graphc_pack_left_{source.name}({LEFT_PARAMETERS})")
    d = Descriptor(f, "%d")
    row_stride, stride, segment = d.read(Word.LEFT_M, Word.LEFT_K, Word.SEGMENT)
    d.read(Word.LEFT_SEGMENT, Word.VALUES)
    steps = Steps(f, d, source.tile)
    single = f.cmp("sge", segment, d[Word.VALUES])
    along_k = f.let(f"and i1 {single}, {f.cmp('eq', stride, 1)}")
    along_m = f.let(f"and i1 {single}, {f.cmp('eq', row_stride, 1)}")
    words = _left_words if source.same else _left_widened
    for condition, copy in ((along_k, words), (along_m, _left_registers)):
        this, other = f.label("this"), f.label("other")
        f.cond_br(condition, this, other)
        f.block(this)
        copy(f, source, d, steps)
        f.ret()
        f.block(other)
    _left_values(f, source, d, steps)
    f.ret()


def _left_words(f: Function, source: Source, d: Descriptor, steps: Steps) -> None:
    """Words as they lie."""
    tile = source.tile
    with left_tiles(f, source, "%base", d[Word.LEFT_M]) as (rows, to):
        starts = [f.gep(place, steps.first, source.element) for place in rows]
        with f.loop(0, steps.whole) as step:
            at = f.gep(to, f.mul(step, MR), tile.element)
            for row, place in enumerate(starts):
                whole = f.load(f.gep(place, step, tile.element), tile.element, tile.value_bytes)
                whole = tile.of_left(f, whole, 1)
                f.store(whole, tile.element, f.gep(at, row, tile.element), tile.bytes)
        with f.when(steps.ragged):
            at = f.gep(to, f.mul(steps.whole, MR), tile.element)
            for row, place in enumerate(starts):

                def load(value: Value, place: str = place) -> str:
                    return source.load(f, f.gep(place, value, source.element))

                whole = tile.of_left(f, steps.last(load, 1), 1)
                f.store(whole, tile.element, f.gep(at, row, tile.element), tile.bytes)


def _left_widened(f: Function, source: Source, d: Descriptor, steps: Steps) -> None:
    """Registers along k of values that are widened, six rows of them transposed."""
    tile = source.tile
    square = tile.lanes * tile.bytes
    buffers = [f.alloca(tile.vector, tile.lanes) for _ in range(2)]
    with (
        left_tiles(f, source, "%base", d[Word.LEFT_M]) as (rows, to),
        f.loop(0, "%steps", tile.lanes) as step,
    ):
        value = f.mul(step, tile.group)
        mask = first_values(f, tile, f.sub(steps.count, value))
        at = f.add(steps.first, value)
        for row, place in enumerate(rows):
            words = source.load_words(f, f.gep(place, at, source.element), mask)
            f.store(words, tile.vector, f.gep(buffers[0], row, tile.vector), tile.bytes)
        arguments = (f"ptr {buffers[0]}", f"i64 {square}", f"ptr {buffers[1]}", f"i64 {square}")
        f.call("void", transpose_symbol(tile), *arguments)
        with f.loop(0, f.smin(f.sub("%steps", step), tile.lanes)) as index:
            six = f.load(f.gep(buffers[1], index, tile.vector), tile.vector, tile.bytes)
            _store_rows(f, tile, six, f.gep(to, f.mul(f.add(step, index), MR), tile.element))


def _store_rows(f: Function, tile: Tile, words: str, to: str) -> None:
    """Stores a step of a packed tile: the first MR words of a register."""
    words = tile.of_left(f, words, tile.lanes)
    for first, count in ((0, 4), (4, 2)):
        some = f.let(
            f"shufflevector {tile.vector} {words}, {tile.vector} poison, "
            f"{shuffle_mask(first, count)}"
        )
        at = f.gep(to, first, tile.element)
        f.store(some, f"<{count} x {tile.element}>", at, tile.bytes)


def _left_registers(f: Function, source: Source, d: Descriptor, steps: Steps) -> None:
    """The rows of a tile are neighbours: a register of each value of k."""
    tile, stride = source.tile, d[Word.LEFT_K]
    with f.loop(0, "%rows", MR) as row:
        to = f.gep("%to", f.mul(row, "%steps"), tile.element)
        mask = first_lanes(f, tile, f.smin(f.sub("%rows", row), MR))
        base = f.gep("%base", f.add(f.add("%m", row), f.mul(steps.first, stride)), source.element)

        def load(value: Value, base: str = base, mask: str = mask) -> str:
            at = f.gep(base, f.mul(value, stride), source.element)
            return source.load_masked(f, at, mask)

        with f.loop(0, steps.whole) as step:
            words = steps.word(step, load, tile.lanes)
            _store_rows(f, tile, words, f.gep(to, f.mul(step, MR), tile.element))
        with f.when(steps.ragged):
            words = steps.last(load, tile.lanes)
            _store_rows(f, tile, words, f.gep(to, f.mul(steps.whole, MR), tile.element))


def _left_values(f: Function, source: Source, d: Descriptor, steps: Steps) -> None:
    """Any strides, k in segments, value by value."""
    tile = source.tile
    stride, jump = d.read(Word.LEFT_K, Word.LEFT_SEGMENT)
    length = f.smax(d[Word.SEGMENT], 1)

    def offset(value: Value) -> Value:
        return f.add(
            f.mul(f.sdiv(value, length), jump), f.mul(f.srem(value, length), stride)
        )

    with left_tiles(f, source, "%base", d[Word.LEFT_M]) as (rows, to):
        with f.loop(0, steps.whole) as step:
            first = f.add(steps.first, f.mul(step, tile.group))
            places = [offset(f.add(first, index)) for index in range(tile.group)]
            at = f.gep(to, f.mul(step, MR), tile.element)
            for row, place in enumerate(rows):
                values = [source.load(f, f.gep(place, p, source.element)) for p in places]
                whole = tile.of_left(f, word(f, tile, values, 1), 1)
                f.store(whole, tile.element, f.gep(at, row, tile.element), tile.bytes)
        with f.when(steps.ragged):
            at = f.gep(to, f.mul(steps.whole, MR), tile.element)
            for row, place in enumerate(rows):

                def load(value: Value, place: str = place) -> str:
                    at = offset(f.add(steps.first, value))
                    return source.load(f, f.gep(place, at, source.element))

                whole = tile.of_left(f, steps.last(load, 1), 1)
                f.store(whole, tile.element, f.gep(at, row, tile.element), tile.bytes)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """n has stride 1: the rows of a step at a time."""
    f = module.function(f"void @graphc_pack_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    d = Descriptor(f, "%d")
    stride, steps = d[Word.RIGHT_K], Steps(f, d, tile)
    base = f.gep("%base", f.add(f.mul(steps.first, stride), "%n"), source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        place = f.gep(base, column, source.element)
        left = f.sub("%columns", column)
        mask = first_lanes(f, tile, left)
        whole, part, done = f.label("whole"), f.label("part"), f.label("done")
        f.cond_br(f.cmp("sge", left, tile.lanes), whole, part)
        for label in (whole, part):

            def load(value: Value, masked: bool = label == part) -> str:
                at = f.gep(place, f.mul(value, stride), source.element)
                return source.load_masked(f, at, mask) if masked else source.load_vector(f, at)

            f.block(label)
            with f.loop(0, steps.whole) as step:
                words = steps.word(step, load, tile.lanes)
                f.store(words, tile.vector, f.gep(to, f.mul(step, pitch), tile.element), tile.bytes)
            with f.when(steps.ragged):
                words = steps.last(load, tile.lanes)
                goal = f.gep(to, f.mul(steps.whole, pitch), tile.element)
                f.store(words, tile.vector, goal, tile.bytes)
            f.br(done)
        f.block(done)
    f.ret()


def _emit_pack_columns(module: Module, source: Source) -> None:
    """k has stride 1: squares of words are transposed, ragged ones through a buffer."""
    f = module.function(f"void @graphc_pack_columns_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    lanes, square = tile.lanes, tile.lanes * tile.bytes
    d = Descriptor(f, "%d")
    stride, steps = d[Word.RIGHT_N], Steps(f, d, tile)
    stride_bytes = f.mul(stride, source.dtype.itemsize)
    buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
    base = f.gep("%base", f.add(f.mul("%n", stride), steps.first), source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        first = f.gep(base, f.mul(column, stride), source.element)
        rows = f.smin(f.sub("%columns", column), lanes)
        pitch_bytes = f.mul(pitch, tile.bytes)
        with f.loop(0, "%steps", lanes) as step:
            value = f.mul(step, tile.group)
            place = f.gep(first, value, source.element)
            target = f.gep(to, f.mul(step, pitch), tile.element)
            count = f.smin(f.sub("%steps", step), lanes)
            values = f.smin(f.sub(steps.count, value), tile.values)
            whole = f.cmp("eq", f.add(rows, values), lanes + tile.values)
            fast, slow, done = f.label("fast"), f.label("slow"), f.label("done")
            f.cond_br(whole, fast, slow)
            f.block(fast)
            from_, from_bytes = place, stride_bytes
            if not source.same:
                from_, from_bytes = buffers[0], square
                for lane in range(lanes):
                    words = source.load_words(f, f.gep(place, f.mul(lane, stride), source.element))
                    f.store(words, tile.vector, f.gep(from_, lane, tile.vector), tile.bytes)
            arguments = (f"ptr {from_}", f"i64 {from_bytes}", f"ptr {target}")
            f.call("void", transpose_symbol(tile), *arguments, f"i64 {pitch_bytes}")
            f.br(done)
            f.block(slow)
            mask = first_values(f, tile, values)

            def load(row: Value, place: str = place, mask: str = mask) -> str:
                at = f.gep(place, f.mul(row, stride), source.element)
                return source.load_words(f, at, mask)

            transpose_part(f, tile, buffers, rows, load, count, target, pitch)
            f.br(done)
            f.block(done)
    f.ret()


def _emit_pack_strided(module: Module, source: Source) -> None:
    """Any strides, value by value."""
    f = module.function(f"void @graphc_pack_strided_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    d = Descriptor(f, "%d")
    k_stride, n_stride = d.read(Word.RIGHT_K, Word.RIGHT_N)
    steps = Steps(f, d, tile)
    start = f.add(f.mul(steps.first, k_stride), f.mul("%n", n_stride))
    base = f.gep("%base", start, source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        rows = f.smin(f.sub("%columns", column), tile.lanes)
        first = f.gep(base, f.mul(column, n_stride), source.element)
        with f.loop(0, rows) as lane:
            place = f.gep(first, f.mul(lane, n_stride), source.element)
            target = f.gep(to, lane, tile.element)

            def load(value: Value, place: str = place) -> str:
                return source.load(f, f.gep(place, f.mul(value, k_stride), source.element))

            with f.loop(0, steps.whole) as step:
                at = f.gep(target, f.mul(step, pitch), tile.element)
                f.store(steps.word(step, load, 1), tile.element, at, tile.bytes)
            with f.when(steps.ragged):
                at = f.gep(target, f.mul(steps.whole, pitch), tile.element)
                f.store(steps.last(load, 1), tile.element, at, tile.bytes)
    f.ret()
