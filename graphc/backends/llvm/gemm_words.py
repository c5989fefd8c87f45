"""How words of several values, neighbours along k, are put together, and a block's steps of them.

What the last word of k has no value for is 0.
"""

from collections.abc import Callable, Sequence

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Value
from graphc.ir import dtypes


def word(f: Function, tile: Tile, values: Sequence[str], lanes: int) -> str:
    """Words of some values each, as Source reads them: bfloat16 as the upper half of an f32."""
    ints, kind = "i32", tile.element
    if lanes > 1:
        ints, kind = f"<{lanes} x i32>", f"<{lanes} x {tile.element}>"

    def number(value: int) -> str:
        return str(value) if lanes == 1 else f"splat (i32 {value})"

    parts = [f.let(f"bitcast {kind} {value} to {ints}") for value in values]
    bits = 8 * tile.value_bytes
    if tile.step.left is dtypes.bf16:
        parts[0] = f.let(f"lshr {ints} {parts[0]}, {number(16)}")
    else:
        mask, last = number((1 << bits) - 1), len(parts) - 1
        for index, part in enumerate(parts):
            part = part if index == last else f.let(f"and {ints} {part}, {mask}")
            parts[index] = f.let(f"shl {ints} {part}, {number(bits * index)}")
    total, *others = parts
    for part in others:
        total = f.let(f"or {ints} {total}, {part}")
    return f.let(f"bitcast {ints} {total} to {kind}")


def narrow(f: Function, tile: Tile, value: str) -> str:
    """A register of single values, 16 bits each, of one as Source reads them."""
    ints = f"<{tile.lanes} x i32>"
    bits = f.let(f"bitcast {tile.vector} {value} to {ints}")
    if tile.step.left is dtypes.bf16:
        bits = f.let(f"lshr {ints} {bits}, splat (i32 16)")
    return f.let(f"trunc {ints} {bits} to <{tile.lanes} x {tile.value_element}>")


class Steps:
    """The steps of a packed block: the first value, how many there are, and how many whole words.

    A packer goes along `whole` steps and then, if the last is `ragged`, along one of fewer values.
    """

    def __init__(self, f: Function, d: Descriptor, tile: Tile) -> None:
        self.f, self.tile = f, tile
        self.first = f.mul("%k", tile.group)
        self.count = f.smin(f.mul("%steps", tile.group), f.sub(d[Word.VALUES], self.first))
        self.whole = f.floordiv(self.count, tile.group)
        self.ragged = f.cmp("slt", self.whole, "%steps")

    def word(self, step: Value, load: Callable[[Value], str], lanes: int) -> str:
        """A whole word; load(value) gives values from the first on."""
        first = self.f.mul(step, self.tile.group)
        values = [load(self.f.add(first, index)) for index in range(self.tile.group)]
        return word(self.f, self.tile, values, lanes)

    def last(self, load: Callable[[Value], str], lanes: int) -> str:
        """The ragged word. Its first value stands in for those that are missing where they would be
        read, and is then taken away."""
        f, tile = self.f, self.tile
        first = f.mul(self.whole, tile.group)
        kind, zero = (tile.vector, tile.zero()) if lanes > 1 else (tile.element, _zero(tile))
        values = [load(first)]
        for index in range(1, tile.group - 1):
            there = f.cmp("slt", f.add(first, index), self.count)
            value = load(f.add(first, choose(f, there, index, 0)))
            values.append(f.let(f"select i1 {there}, {kind} {value}, {kind} {zero}"))
        return word(f, tile, [*values, zero], lanes)


def _zero(tile: Tile) -> str:
    return "0.0" if tile.element == "float" else "0"
