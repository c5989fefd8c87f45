"""Shared memory is a number of the target: what has no room there lies in global memory, and the
bits are the same. What takes long and is the same for a block is computed by one warp."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graphc.backends.cuda.batches import batched, fits
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import Schedule, Toolchain
from graphc.backends.cuda.loops import plan
from graphc.backends.cuda.source import Target, grid
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel

from ...ir import kernel_cases as cases
from .test_loops import KERNELS, NORM, ROWS, STEP, N, buffers_of

EVEN = N // 200 * 200
# rows of doubles, which no GPU has room for
WIDE = ROWS.format(rows=3, row=20000, total=3 * 20000).replace("f32", "f64")
TURNED = """kernel turned(a: f32[n] in, o: f32[n] out) dims (n) {
  stage { parallel p in [n // 200] chunk [1] {
    vector v in [200] { store o[200*p + v] = a[p + (n // 200)*v] }
  } } }"""


def kernels() -> dict[str, Kernel]:
    texts = {name: KERNELS[name] for name in ("SHORT_ROWS", "ODD_ROWS", "LONG_NORM", "SHIFT")}
    texts["NORM"] = NORM.format(row=1000, total=1000 * 40, groups=10, four=4000, sums=10000)
    return {name: parse_kernel(text) for name, text in (texts | {"TURNED": TURNED}).items()}


@pytest.mark.parametrize("limit", (600, 1300, 5400, 99 << 10))
def test_the_bits_are_those_of_any_room(limit: int, toolchain: Toolchain) -> None:
    found = {name: (k, emit(k, Target("sm_80", limit))) for name, k in kernels().items()}
    library = toolchain.compile({name: source.text for name, (_, source) in found.items()})
    for kernel, source in found.values():
        dims = dict.fromkeys(kernel.dims, EVEN)
        buffers = [b[:EVEN] if kernel.dims else b for b in buffers_of(kernel)]
        want = [b.copy() for b in buffers]
        run_kernel(kernel, want, list(dims.values()), TABLE)
        for schedule in (Schedule(ahead=True, direction="descending"), Schedule(watch=True)):
            got = [b.copy() for b in buffers]
            arguments = [*got, *dims.values(), np.zeros(4, np.int64)]
            if source.scratch != 0:
                arguments.append(np.full(evaluate(source.scratch, dims), 0xFF, np.uint8))
            for stage in source.stages:
                assert stage.shared <= limit
                blocks = grid(stage, list(dims.items()))
                library.launch(
                    stage.name, (blocks,), (stage.threads,), arguments, stage.shared, schedule
                )
            for g, w, param in zip(got, want, kernel.params, strict=True):
                cases.assert_close(g, w, param.dtype)
        spilled = any(mapping.spilled for mapping in plan(kernel, Target("sm_80", limit)))
        assert spilled == (source.scratch != 0)
        assert fits(kernel, source) == 1 or not spilled


def test_architectures_have_rooms() -> None:
    wide = parse_kernel(WIDE)
    rooms = {name: Target(name).shared >> 10 for name in ("sm_80", "sm_86", "sm_90a", "sm_120")}
    assert rooms == {"sm_80": 163, "sm_86": 99, "sm_90a": 227, "sm_120": 99}
    spilled = {name: bool(emit(wide, Target(name)).scratch) for name in rooms}
    assert spilled == {"sm_80": False, "sm_86": True, "sm_90a": False, "sm_120": True}


def test_what_takes_long_is_computed_by_a_warp(toolchain: Toolchain) -> None:
    """Alone, and where launches are one: a power for a block, whatever its grid is."""
    kernel = parse_kernel(STEP)
    source = emit(kernel)
    text = source.text[source.text.index('extern "C"') :]
    assert re.search(r"if \(threadIdx.x < 32\) \{\s+[^}]*pow\(", text)
    double = batched(kernel, source, 2)
    library = toolchain.compile({"one": source.text, "two": double.text})
    (stage,), (both,) = source.stages, double.stages
    rng = np.random.default_rng(0)
    b, g, o = rng.random(1) + 1, rng.random(N).astype("f4"), rng.random(N).astype("f4")
    want = o + g * np.float32(b**7)
    for schedule in (Schedule(ahead=True, direction="descending"), Schedule(watch=True)):
        for blocks in (1, 7, 1200):
            got = o.copy()
            library.launch(
                stage.name, (blocks,), (stage.threads,), [b, g, got, N, np.zeros(4, "i8")],
                stage.shared, schedule,
            )
            np.testing.assert_array_equal(got, want)
    assert both.shared == stage.shared >= 4
