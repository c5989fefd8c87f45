"""Masks of lanes from bits in memory."""

from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function

REGISTER_MASKS = 32  # bytes of registers (AVX2) that are loaded and stored under masks in registers


def lanes_of(f: Function, tile: Tile, bits: str, kind: str) -> str:
    """A vector of i1, as many as `tile` has lanes, from the low bits of an integer of type `kind`.

    Where masks are registers, lanes are compared: a bitcast becomes 5 instructions a lane there.
    Where vectors are shorter, loads under masks branch on each bit anyway.
    """
    lanes, word = tile.lanes, f"i{8 * tile.bytes}"
    if tile.target.vector_bytes != REGISTER_MASKS:
        if kind != f"i{lanes}":
            bits = f.let(f"trunc {kind} {bits} to i{lanes}")
        return f.let(f"bitcast i{lanes} {bits} to <{lanes} x i1>")
    words = f"<{lanes} x {word}>"
    if kind != word:
        bits = f.let(f"zext {kind} {bits} to {word}")
    first = f.let(f"insertelement {words} poison, {word} {bits}, i64 0")
    every = f.let(f"shufflevector {words} {first}, {words} poison, <{lanes} x i32> zeroinitializer")
    powers = ", ".join(f"{word} {1 << lane}" for lane in range(lanes))
    own = f.let(f"and {words} {every}, <{powers}>")
    return f.let(f"icmp eq {words} {own}, <{powers}>")
