"""Packing of left operands for a matrix unit, whose tiles have words of k as neighbours in a row: a
row of the packed operand is all of its words, one row after the other."""

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    Source,
    first_lanes,
    first_values,
    store_masked,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_words import Steps
from graphc.backends.llvm.text import Function, Module, Value


def emit_pack_left_rows(module: Module, source: Source) -> None:
    """Defines pack_left: registers along k where values are neighbours there, squares that are
    transposed where they are along m, else value by value."""
    f = module.function(f"void @graphc_pack_left_{source.name}({LEFT_PARAMETERS})")
    packer = _Rows(f, source)
    for stride, copy in ((packer.k, packer.along_k), (packer.m, packer.along_m)):
        this, other = f.label("this"), f.label("other")
        f.cond_br(f.cmp("eq", stride, 1), this, other)
        f.block(this)
        copy()
        f.ret()
        f.block(other)
    packer.values()
    f.ret()


class _Rows:
    """The rows of an operand with one stride along k."""

    def __init__(self, f: Function, source: Source) -> None:
        self.f, self.source, self.tile = f, source, source.tile
        d = Descriptor(f, "%d")
        self.m, self.k = d.read(Word.LEFT_M, Word.LEFT_K)
        self.steps = Steps(f, d, self.tile)
        start = f.add(f.mul("%m", self.m), f.mul(self.steps.first, self.k))
        self.base = f.gep("%base", start, source.element)

    def _value(self, row: Value, value: Value) -> str:
        f = self.f
        offset = f.add(f.mul(row, self.m), f.mul(value, self.k))
        return f.gep(self.base, offset, self.source.element)

    def _store(self, words: str, row: Value, step: Value) -> None:
        """The words of a register, as many as are left of a row."""
        f = self.f
        place = f.gep("%to", f.add(f.mul(row, "%steps"), step), self.tile.element)
        store_masked(f, self.tile, words, place, first_lanes(f, self.tile, f.sub("%steps", step)))

    def along_k(self) -> None:
        """Words as they lie."""
        f, tile = self.f, self.tile
        with f.loop(0, "%steps", tile.lanes) as step:
            value = f.mul(step, tile.group)
            mask = first_values(f, tile, f.sub(self.steps.count, value))
            with f.loop(0, "%rows") as row:
                words = self.source.load_words(f, self._value(row, value), mask)
                self._store(words, row, step)

    def along_m(self) -> None:
        """Squares of a register of rows for each step."""
        f, tile = self.f, self.tile
        square = tile.lanes * tile.bytes
        buffers = [f.alloca(tile.vector, tile.lanes) for _ in range(2)]
        with f.loop(0, "%rows", tile.lanes) as row, f.loop(0, "%steps", tile.lanes) as step:
            mask = first_lanes(f, tile, f.sub("%rows", row))

            def load(value: Value, row: Value = row, mask: str = mask) -> str:
                return self.source.load_masked(f, self._value(row, value), mask)

            end = f.smin(f.add(step, tile.lanes), self.steps.whole)
            with f.loop(step, end) as index:
                words = self.steps.word(index, load, tile.lanes)
                place = f.gep(buffers[0], f.sub(index, step), tile.vector)
                f.store(words, tile.vector, place, tile.bytes)
            here = f.cmp("slt", f.sub(self.steps.whole, step), tile.lanes)
            with f.when(f.let(f"and i1 {self.steps.ragged}, {here}")):
                place = f.gep(buffers[0], f.sub(self.steps.whole, step), tile.vector)
                f.store(self.steps.last(load, tile.lanes), tile.vector, place, tile.bytes)
            arguments = (f"ptr {buffers[0]}", f"i64 {square}", f"ptr {buffers[1]}")
            f.call("void", transpose_symbol(tile), *arguments, f"i64 {square}")
            with f.loop(0, f.smin(f.sub("%rows", row), tile.lanes)) as index:
                words = f.load(f.gep(buffers[1], index, tile.vector), tile.vector, tile.bytes)
                self._store(words, f.add(row, index), step)

    def values(self) -> None:
        """Any strides."""
        f, tile = self.f, self.tile
        with f.loop(0, "%rows") as row:

            def load(value: Value, row: Value = row) -> str:
                return self.source.load(f, self._value(row, value))

            to = f.gep("%to", f.mul(row, "%steps"), tile.element)
            with f.loop(0, self.steps.whole) as step:
                words = self.steps.word(step, load, 1)
                f.store(words, tile.element, f.gep(to, step, tile.element), tile.bytes)
            with f.when(self.steps.ragged):
                at = f.gep(to, self.steps.whole, tile.element)
                f.store(self.steps.last(load, 1), tile.element, at, tile.bytes)
