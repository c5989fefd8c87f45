"""The innermost loops of convolutions' register tiles: several steps a trip, where that pays.

With registers of 32 bytes a step is 12 multiply-adds, and 20 instructions with what these read: a
core alone does five more for the loop without loss, one whose other thread is busy does not
(`ChannelTiles.unrolled`). The steps keep their order, and so do the sums their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Value

# One step, `number` of them behind those that the carried values and the index are at. It asks the
# memory for as many steps as the last argument says (conv_ask.py).
Step = Callable[[list[str], Value, int, int], list[str]]
# The carried values, with addresses so many steps further.
Onward = Callable[[list[str], int], list[str]]


def steps_of(tile: Tile, sums: int) -> int:
    """Steps of a trip. Fewer sums wait for each other, not for the loop."""
    channels = tile.tiling.channels
    return channels.unrolled if sums >= channels.sums else 1


def step_loop(
    f: Function, several: int, depth: Value, begun: Sequence[tuple[str, str]], step: Step,
    onward: Onward,
) -> list[str]:
    """All steps, `several` a trip as long as there are so many; what is carried after them."""
    done: Value = 0
    if several > 1:
        done = f.let(f"and i64 {depth}, {-several}")
        loop = f.carry_loop(0, done, several, begun)
        values = loop.values
        for number in range(several):
            if number:  # or LLVM's scheduler loads for all of them first, and has no registers
                f.emit('call void asm sideeffect "", "~{memory}"()')
            values = step(values, loop.index, number, 0 if number % 2 else 2)
        found = loop.close(onward(values, several))
        begun = [(kind, value) for (kind, _), value in zip(begun, found, strict=True)]
    loop = f.carry_loop(done, depth, 1, begun)
    return loop.close(onward(step(loop.values, loop.index, 0, 1), 1))
