"""Convolutions whose tiles read an image's positions in whole registers, rows (channel, tap) by a
table: what the drivers of conv_places.py and conv_shifts.py have in common."""

from collections.abc import Mapping

from graphc.backends.llvm.conv import Request
from graphc.backends.llvm.conv_copy import COPY_WORDS, Copy, places_epilogue
from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Words
from graphc.backends.llvm.gemm import declare_contract
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_plan import declare_plan, round_up
from graphc.backends.llvm.text import Value


class Positions:
    """A contraction of them: its descriptor `d`, the words `copy` that its PACK_RIGHT reads, and
    `table` in front of its scratch."""

    def __init__(self, r: Request) -> None:
        f, self.r = r.f, r
        self.padded = round_up(f, r.positions, r.tile.lanes)
        self.copy = copy = Words(f, f.alloca("i64", COPY_WORDS))
        copy.write(Copy.VECTORS, f.sdiv(self.padded, r.tile.lanes))
        copy.write(Copy.OUT_HEIGHT, r.output[HEIGHT])
        copy.write(Copy.OUT_WIDTH, r.output[WIDTH])
        copy.write_pointer(Copy.ARGUMENTS, r.words.read_pointer(Conv.ARGUMENTS))
        copy.write_pointer(Copy.EPILOGUE, r.words.read_pointer(Conv.EPILOGUE))
        self.d: Descriptor = r.describe(r.forward_words())
        self.table = self.d.pointer_at(Word.MEMORY)

    def contract(self, table_bytes: Value, pack_right: str, words: Mapping[Word, Value]) -> None:
        """Runs it, with these words besides, and returns from the driver."""
        f, r, d, tile = self.r.f, self.r, self.d, self.r.tile
        all_words = {Word.N: f.mul(r.batch, self.padded), Word.POSITIONS: self.padded, **words}
        for word, value in all_words.items():
            d[word] = value
        for word, pointer in (
            (Word.MEMORY, f.gep(self.table, table_bytes, "i8")),
            (Word.TILES, r.words.read_pointer(Conv.WINDOWS)), (Word.B_STEP, self.table),
            (Word.COPY, self.copy.pointer), (Word.PACK_RIGHT, pack_right),
        ):
            d.set_pointer(word, pointer)
        with f.when(f.cmp("ne", self.padded, r.positions)):
            d.set_pointer(Word.ARGUMENTS, self.copy.pointer)
            d.set_pointer(Word.EPILOGUE, places_epilogue(tile))
        f.call("void", declare_plan(f.module, tile), f"ptr {d.pointer}")
        f.call("void", declare_contract(f.module, tile), f"ptr {d.pointer}")
        f.ret()
