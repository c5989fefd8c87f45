"""Machines that no backend makes, so that the shared passes are seen to ask."""

from dataclasses import replace

from graphc.backends.host.machine import CPU

# Little shapes take the paths of big ones.
TINY = replace(
    CPU, small=4, chunk_least=4, chunk_most=8, block=4, columns=4, split_least=8, split_piece=4,
    lanes_outside=3,
)

# Many cores with wide lanes, such as a GPU's: nothing is too small to share, chunks are short.
WIDE = replace(
    CPU, kind="gpu", small=0, parallelism=1024, chunk_least=256, chunk_most=1024, block=1024,
    copy_block=1024, columns=256, column_rows=32, iteration_least=32, least_parallel=128,
    alone=2048, split_least=16384, split_piece=2048, split_row=256, lanes_outside=0, tile=2048,
    dear=16, cheap=12,
)
