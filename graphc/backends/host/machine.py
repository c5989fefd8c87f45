"""The CPU as the shared passes see it: the same numbers for every CPU, so that every CPU cuts
and combines alike."""

from graphc.ir.machine import Machine

# A launch costs about 0.1 us, an element of light work 0.2 to 1 ns, a core's first cache 32 KiB.
CPU = Machine(
    kind="cpu",
    small=8192,
    parallelism=8,
    chunk_least=4096,
    chunk_most=32768,
    block=16384,
    copy_block=32768,
    columns=64,
    column_rows=16,
    iteration_least=256,
    least_parallel=4,
    alone=65536,
    split_least=32768,
    split_piece=8192,
    split_row=64,
    lanes_outside=64,
    tile=8192,
    template_flops=1 << 19,  # about 5 microseconds
    template_chunks=32,
    dear=8,
    cheap=8,
    unrolled_steps=32,
    unrolled_light=512,
)
