"""What is read, and asked for, a line of the caches at a time where a register is less than one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graphc.backends.llvm.gemm_pack import Source, emit_gemm_pack
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.libraries import emit_library
from graphc.backends.llvm.microkernel import LINE, Tile, emit_kernel
from graphc.backends.llvm.target import Target, make_target
from graphc.backends.llvm.text import Module
from graphc.ir import dtypes

from .contractions import Gemm, guarded, narrow_targets, run, unharmed

LINUX = "x86_64-unknown-linux-gnu"
NARROW = make_target(LINUX, features="+avx2,+fma")
WIDE = make_target(LINUX, features="+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma")
TARGETS = pytest.mark.parametrize("target", [NARROW, WIDE], ids=["avx2", "avx512"])


@TARGETS
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16], ids=str)
def test_rows_are_packed_by_lines(target: Target, dtype: dtypes.DType) -> None:
    """With less than a line at a time, lines of rows that evict each other are read twice."""
    tile, module = Tile("f32", target), Module()
    emit_gemm_pack(module, Source(dtype, tile), "rows")
    stores = rf"^ *store {re.escape(tile.vector)}"
    blocks = re.split(r"^[\w.]+:", module.text(), flags=re.MULTILINE)
    widest = max(len(re.findall(stores, block, flags=re.MULTILINE)) for block in blocks)
    assert widest * target.vector_bytes == LINE


@TARGETS
def test_a_tile_asks_for_each_line_of_the_result_once(target: Target) -> None:
    tile, module = Tile("f32", target), Module()
    emit_kernel(module, tile, tile.rows, tile.vectors)
    asked = len(re.findall(r"call void @llvm.prefetch.p0\(ptr %\w+, i32 1", module.text()))
    assert asked == tile.rows * tile.vectors * target.vector_bytes // LINE


@TARGETS
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_steps_of_few_multiply_adds_share_a_loop_s_instructions(target: Target, name: str) -> None:
    """Beside 12 multiply-adds those take so long that a core whose other half computes, too, goes
    by them."""
    tile, module = Tile(name, target), Module()
    emit_kernel(module, tile, tile.rows, tile.vectors)
    blocks = re.split(r"^[\w.]+:", module.text(), flags=re.MULTILINE)
    loops = [len(re.findall(r"= call [^@]+@llvm.fma", block)) for block in blocks]
    found = sorted({count for count in loops if count})
    assert found == {32: [12, 48, 96], 64: [24]}[target.vector_bytes]  # 48: of packed rows
    spilled = re.compile(r"vmov\w+\s+(?:%ymm\d+, -?\d*\(%rsp\)|-?\d*\(%rsp\), %ymm)")
    assert not spilled.search(compile_assembly(module.text(), target))


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda target: target.cpu)
@pytest.mark.parametrize(("m", "n", "ks", "transposed"), [
    (13, 40, range(1, 27), False), (13, 40, range(1, 27), True), (303, 136, range(57, 67), True),
])
def test_any_number_of_steps_is_multiplied(
    target: Target, m: int, n: int, ks: range, transposed: bool
) -> None:
    """The last ones have a left operand that is packed."""
    rng = np.random.default_rng(0)
    for k in ks:
        gemm = Gemm(m, n, k, a_t=transposed, b_t=not transposed)
        a, b = (rng.integers(-9, 9, (1, *size)).astype(np.float32) for size in ((m, k), (k, n)))
        memory, result = guarded(m * n, np.dtype(np.float32))
        run(gemm.kernel(), [*gemm.in_memory(a, b), result], target=target)
        assert unharmed(memory)
        np.testing.assert_array_equal(result.reshape(m, n), (a @ b)[0])


@TARGETS
def test_windows_are_asked_for_where_a_line_is_several_registers(target: Target) -> None:
    """Rows of a piece lie in other planes each: a core does not ask for what follows by itself."""
    text = emit_library("conv_window_rows.f32.f32", target).text()
    assert ("call void @llvm.prefetch" in text) == (target.vector_bytes < LINE)
