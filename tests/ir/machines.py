"""Machines unlike the CPU, so that the shared passes are seen to ask."""

from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.ir.machine import Sorting
from graphc.ir.record import replaced

# Little shapes take the paths of big ones.
TINY = replaced(
    CPU, small=4, chunk_least=4, chunk_most=8, block=4, columns=4, split_least=8, split_piece=4,
    lanes_outside=3, stretch=2, stretched=8,
)

WIDE = GPU  # many cores with wide lanes

# Everything that is done side by side, with few of everything.
SORTS = replaced(
    GPU, block=8, columns=8, column_rows=4,
    sorting=Sorting(lanes=4, each=3, digit=2, scanned=2, in_turn=2, beside=1 << 16, ranked=4),
)
# Sorts of a machine that does one after another, and has no routine for them.
SORTS_IN_TURN = replaced(TINY, sorts=True, few_compared=0)
FEW_IN_TURN = replaced(TINY, sorts=True)  # which finds the first of few by looking at each
# Little shapes are already cut in pieces, done in stages, kept in tiles.
CUTTING = replaced(
    GPU, lane_steps=3, piece_steps=1, columns=4, block=4, parallelism=8, least_parallel=4,
    split_least=8, chunk_least=4, chunk_most=8, stretch=2, stretched=6, tile=24, rereads=24,
    rows_least=2,
)
