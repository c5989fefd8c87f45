"""A GPU as the shared passes see it: the same numbers for every model, so that every model cuts
and combines alike. Not measured yet: no kernel has run on one."""

from graphc.ir.machine import Machine, Sorting

# Many multiprocessors with wide lanes: nothing is too small to share, chunks are short.
GPU = Machine(
    kind="gpu",
    small=0,
    parallelism=1024,
    chunk_least=256,
    chunk_most=1 << 16,
    block=1024,
    copy_block=1024,
    columns=256,
    column_rows=32,
    iteration_least=32,
    stretch=256,
    stretched=1 << 30,
    least_parallel=128,
    alone=2048,
    split_least=1 << 16,
    split_piece=2048,
    split_row=256,
    lanes_outside=1 << 30,
    tile=8192,
    rereads=1 << 14,
    lane_steps=256,
    piece_steps=32,
    rows_least=8,
    hoists=True,
    template_flops=1 << 19,
    template_chunks=1024,
    dear=16,
    cheap=12,
    alignment=64,
    unrolled_steps=32,
    unrolled_light=512,
    lasting=64 << 10,
    # counters of 128 lanes for 64 digits are 32 KiB of a block's shared memory
    sorting=Sorting(
        lanes=128, each=64, digit=6, scanned=64, in_turn=64, beside=1 << 16, ranked=256
    ),
    sorts=True,
    by_counter=True,
    tf32=True,
    channels_last=8,  # 16 bytes of 16-bit floats
    pitched=16 << 10,
    halves=True,
    across=1 << 20,
    partial_rows=64,  # of the smallest tile whose rows may be many
)
