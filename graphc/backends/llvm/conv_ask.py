"""What convolutions whose channels are last ask memory for while they compute.

Weights that the second cache does not hold come from memory as the first tile of a panel meets
them, while the others find them near, and the core asks for nothing meanwhile. So each step of all
tiles asks for a few bytes of what is multiplied next (a line of the caches many times over, which
costs nothing), and the panel is there. `gemm_ahead.py` does so for products.
"""

from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function


def asks_ahead(tile: Tile) -> bool:
    """Whether tiles ask. (Emerald Rapids, one image of 7 x 7: 1x1 of 2048 to 512 channels 117 and
    172 GFLOP/s, of 512 to 2048 113 and 184, 3x3 of 512 to 512 126 and 183.)"""
    return tile.tiling.channels.asks


def ask(f: Function, place: str, steps: int = 1) -> str:
    """Asks for a line, and gives the place so many steps later; for none if they are none. The
    second cache takes it."""
    if not steps:
        return place
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")
    # not inbounds: it may lie behind the last of the weights
    return f.let(f"getelementptr i8, ptr {place}, i64 {f.mul('%ahead_step', steps)}")
