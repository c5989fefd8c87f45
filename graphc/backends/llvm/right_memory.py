"""The right operand of a tile where it lies in memory: values as they are multiplied, or halves
that registers widen as they are loaded (a bfloat16 is the upper half of a float32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.backends.llvm.microkernel import Tile
    from graphc.backends.llvm.text import Function


def widens(tile: Tile) -> bool:
    """Whether the right operand's values are wider in registers than in memory."""
    return tile.group == 1 and tile.step.right.itemsize < tile.bytes


def right_bytes(tile: Tile) -> int:
    """Of a word of the right operand."""
    return tile.step.right.itemsize if widens(tile) else tile.bytes


def right_element(tile: Tile) -> str:
    """LLVM's type of it."""
    return "i16" if widens(tile) else tile.element


def load_right(f: Function, tile: Tile, place: str) -> str:
    """A register of the right operand."""
    if not widens(tile):
        return f.load(place, tile.vector, tile.bytes)
    halves, words = f"<{tile.lanes} x i16>", f"<{tile.lanes} x i32>"
    bits = f.let(f"zext {halves} {f.load(place, halves, 2)} to {words}")
    return f.let(f"bitcast {words} {f.let(f'shl {words} {bits}, splat (i32 16)')} to {tile.vector}")
