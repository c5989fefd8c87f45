"""One thread packs the right operand block by block; several pack all of it first."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.target import Target, host_target
from graphc.ir.kernel.blocking import Blocking
from graphc.ir.kernel.plan_contraction import plan_template
from graphc.ir.kernel.text import kernel_symbol

from .contractions import Gemm, guarded, narrow_targets, unharmed
from .native import function_of

TARGETS = [*narrow_targets(), host_target()]


def computed(gemm: Gemm, target: Target, threads: int) -> tuple[Blocking, np.ndarray, int]:
    """Its plan, the result, and how many bytes of scratch were written."""
    kernel = gemm.kernel()
    assert kernel.template is not None
    plan = plan_template(kernel.template, target.machine, {})
    assert isinstance(plan, Blocking)
    operands = gemm.in_memory(*gemm.operands(np.random.default_rng(0)))
    _, result = guarded(gemm.m * gemm.n, np.dtype(np.float32))
    memory, scratch = guarded(plan.scratch(threads), np.dtype(np.uint8), 1 << 12)
    words = [each.ctypes.data for each in (*operands, result)]
    args = (ctypes.c_int64 * 3)(*words)
    status = (ctypes.c_int64 * 6)(0, 0, 0, 0, scratch.ctypes.data, threads)
    cache = ObjectCache()
    objects = [cache.compile(emit(kernel, target), target)]
    for name in template_libraries(kernel, target):
        objects.append(cache.compile(emit_library(name, target).text(), target))
    function = function_of(objects, kernel_symbol(kernel), target, threads)
    function(ctypes.addressof(args), ctypes.addressof(status))
    assert unharmed(memory, 1 << 12)
    written = np.flatnonzero(scratch != 7)
    return plan, result, int(written[-1]) + 1 if written.size else 0


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize(
    "sizes", [(128, 512, 1500), (200, 520, 301), (131, 333, 4200), (560, 520, 301)]
)
def test_a_thread_by_itself_packs_what_it_multiplies(
    target: Target, sizes: tuple[int, int, int]
) -> None:
    """A copy of all of the operand leaves the second cache before it is read (128 rows, 3072
    steps, 768 columns on a Zen 3: 5% to 9% of the time). Blocks, and so bits, are the same."""
    assert target.machine.tiling is not None
    far = target.machine.tiling.far
    if far is not None and sizes[0] < 2 * far.shared_tiles * target.machine.tiling.rows:
        pytest.skip("so few rows are not shared out")
    gemm = Gemm(*sizes, b_t=True)
    plan, alone, written = computed(gemm, target, 1)
    assert plan.right_packed and plan.split_m > 1
    _, together, all_of_it = computed(gemm, target, 2)
    np.testing.assert_array_equal(alone.view(np.int32), together.view(np.int32))
    copy = gemm.k * gemm.n * 4
    assert all_of_it >= copy
    if target.machine.tiling.packs_alone and plan.split_k == 1:
        assert written <= target.machine.tiling.pack_bytes * 3 // 2 + (1 << 12) < copy
    else:
        assert written >= copy
