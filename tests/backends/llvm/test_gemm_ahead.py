"""What products ask the memory for while they compute."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

import numpy as np
import pytest

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.microkernel import LINE, MR, RUN_STEPS
from graphc.backends.llvm.target import host_target
from graphc.ir import dtypes
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.blocking import Blocking
from graphc.ir.kernel.plan_contraction import plan_template
from graphc.ir.kernel.text import kernel_symbol

from .contractions import Gemm, guarded
from .native import function_of
from .test_panels import laid_out

HOST = host_target()


def noted(text: str, notes: ctypes.Array[ctypes.c_int64]) -> str:
    """A library whose tiles write down what they ask for to be read; the first word counts."""
    asks = r"call void @llvm\.prefetch\.p0\(ptr (%\w+), i32 0, i32 2, i32 1\)"
    text, count = re.subn(asks, r"call void @note(ptr \1)", text)
    first = f"inttoptr (i64 {ctypes.addressof(notes)} to ptr)"
    return text if not count else f"""{text}
define internal void @note(ptr %p) noinline {{
  %n = load i64, ptr {first}
  %more = add i64 %n, 1
  store i64 %more, ptr {first}
  %at = getelementptr i64, ptr {first}, i64 %more
  %value = ptrtoint ptr %p to i64
  store i64 %value, ptr %at
  ret void
}}
"""


def asked(
    kernel: Kernel, sizes: tuple[int, int, int]
) -> tuple[Blocking, np.ndarray, np.ndarray]:
    """Runs a product of ones of (rows, columns, k): its plan, the bytes that it asked for, behind
    the beginnings of the left and of the right operand, in that order. Columns beside the last are
    1, too."""
    rows, columns, k = sizes
    template = kernel.template
    assert isinstance(template, Product)
    plan = plan_template(template, HOST.machine, {})
    assert isinstance(plan, Blocking)
    left, result = np.ones(rows * k, np.float32), np.empty(rows * columns, np.float32)
    _, right = guarded(columns * k, np.dtype(np.float32))
    right[:] = 1
    _, scratch = guarded(plan.scratch(1), np.dtype(np.uint8))
    notes = (ctypes.c_int64 * (1 << 22))()
    cache = ObjectCache()
    objects = [cache.compile(emit(kernel, HOST), HOST)]
    for name in template_libraries(kernel, HOST):
        objects.append(cache.compile(noted(emit_library(name, HOST).text(), notes), HOST))
    operands = {template.left.buffer: left, template.right.buffer: right}
    buffers = [operands.get(param.name, result) for param in kernel.params]
    args = (ctypes.c_int64 * len(buffers))(*(buffer.ctypes.data for buffer in buffers))
    status = (ctypes.c_int64 * 6)(0, 0, 0, 0, scratch.ctypes.data, 2)  # as if for two threads
    function = function_of(objects, kernel_symbol(kernel), HOST, 1)
    function(ctypes.addressof(args), ctypes.addressof(status))
    assert (result == k).all()
    places = np.array(notes[1:notes[0] + 1], np.int64)
    found = [places - operand.ctypes.data for operand in (left, right)]
    bytes_left, bytes_right = (
        each[(each >= 0) & (each < operand.nbytes)]
        for each, operand in zip(found, (left, right), strict=True)
    )
    return plan, bytes_left, bytes_right


def of_panels(rows: int, columns: int, k: int) -> Kernel:
    return laid_out(rows, columns, k, dtypes.f32, HOST)[0]


def of_rows(rows: int, columns: int, k: int) -> Kernel:
    return Gemm(rows, columns, k).kernel()


@pytest.mark.parametrize(("make", "sizes"), [
    (of_panels, (40, 256, 905)), (of_panels, (128, 512, 512)), (of_panels, (150, 6400, 70)),
    (of_panels, (12, 512, 512)),
    (of_rows, (18, 2604, 528)), (of_rows, (9, 1024, 600)), (of_rows, (100, 1000, 1805)),
])
def test_the_memory_is_asked_for_each_panel_before_its_turn(
    make: Callable[[int, int, int], Kernel], sizes: tuple[int, int, int]
) -> None:
    """What lies in the memory would else come while the first tile waits for it: an encoder of 128
    tokens ran at 86% of the multiply-adds of a Zen 5, and at 90% with it. Threads go along
    neighbouring chunks: what is asked for is the next one's."""
    rows, columns, k = sizes
    plan, _, places = asked(make(*sizes), sizes)
    if make is of_rows and (not plan.right_in_place or plan.block_k <= RUN_STEPS):
        pytest.skip("this CPU packs such an operand, or goes along its rows")
    lines, count = places // LINE, -(-columns * k * 4 // LINE)
    found, times = np.unique(lines, return_counts=True)
    first = np.zeros(count, bool)  # nobody asks for those of the first block
    if make is of_panels:
        first[: plan.block_k * plan.chunk_n * 4 // LINE + 1] = True
    else:
        starts = np.arange(plan.block_k) * columns * 4
        for start in starts:
            first[start // LINE: (start + min(plan.block_n, plan.chunk_n) * 4) // LINE + 1] = True
    missing = ~first
    missing[found] = False
    # blocks of k differ by a step, and the last columns are no whole panel
    assert missing.sum() <= count / 50
    # once for each tile of rows, or, where a tile asks for one line a step, twice
    assert np.median(times[~first[found]]) <= plan.split_m * (2 if rows > 4 * MR else 1)


@pytest.mark.parametrize(("sizes", "a_t"), [
    ((64, 130, 40), False), ((200, 300, 500), False), ((61, 96, 77), True),
])
def test_rows_of_the_next_tile_are_asked_for(sizes: tuple[int, int, int], a_t: bool) -> None:
    """Short runs of rows that lie far from one another waited for the memory: 4096 rows of 64 by
    4096 columns ran at 74% of the multiply-adds of a Zen 3, and at 82% with it."""
    rows, columns, k = sizes
    assert HOST.machine.tiling is not None
    plan, places, _ = asked(Gemm(rows, columns, k, a_t=a_t).kernel(), sizes)
    assert not plan.left_packed
    if not HOST.machine.tiling.asks_left:
        assert not places.size
        return
    steps, of_row = (places // 4 // rows, places // 4 % rows) if a_t else (
        places // 4 % k, places // 4 // k
    )
    wanted = np.zeros((rows, k), bool)
    wanted[of_row, steps] = True
    own = np.arange(rows) % plan.chunk_m >= MR  # nobody asks for a chunk's first tile
    # an iteration of several steps asks once, for less than a line
    together = 1 if a_t else HOST.machine.tiling.unrolled
    assert together * 4 < LINE
    for _ in range(together - 1):
        wanted[:, 1:] |= wanted[:, :-1]
    assert wanted[own].all()
