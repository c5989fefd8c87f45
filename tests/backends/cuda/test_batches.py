"""Launches of one kernel as one, on the emulated driver: the results of the single launches."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.cuda.batches import batched, fits, words
from graphc.backends.cuda.driver import DEFAULT_STREAM, pack
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule, Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.machine import GPU
from graphc.backends.numpy import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel, Launch
from graphc.ir.kernel.interpret import run_kernel

from ...ir import kernel_cases as cases
from . import needs


def adam() -> Kernel:
    """A flat kernel of any length."""
    def function(p, g, m):
        new = m * 0.9 + g * 0.1
        return p - new * 0.01, new

    graph = cases.build(function, (50,), (50,), (50,))
    (kernel,) = cases.kernels(cases.compiled(graph, machine=GPU))
    return kernel


def split_sum() -> Kernel:
    """Two stages of different numbers of blocks, with shared memory and scratch buffers."""
    graph = cases.build(lambda x: cases.total(x, (0,)), (70_000,))
    (kernel,) = cases.kernels(cases.compiled(graph, machine=GPU))
    assert len(kernel.stages) == 2
    return kernel


CASES = {"adam": (adam, [(1,), (300,), (2049,), (5000,), (7,)]), "sum": (split_sum, [()] * 3)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schedule", (ALL[1], ALL[8], Schedule(watch=True)), ids=str)
@pytest.mark.parametrize("most", (1, 1 << 20))
def test_as_single_launches(
    name: str, schedule: Schedule, most: int, toolchain: Toolchain
) -> None:
    """In one block that walks on, and in as many as there are."""
    make, launches = CASES[name]
    kernel = make()
    source = emit(kernel)
    one = batched(kernel, source, len(launches))
    driver = EmulatedDriver(toolchain, schedule=schedule)
    module = driver.load(toolchain.compile({"text": one.text}).path.read_bytes())
    rng = np.random.default_rng(0)

    def put(array: np.ndarray) -> int:
        place = driver.allocate(array.nbytes)
        driver.copy_in(place, array.ctypes.data, array.nbytes, DEFAULT_STREAM)
        return place

    wants, places = [], []
    for dims in launches:
        env = dict(zip(kernel.dims, dims, strict=True))
        arrays = [
            rng.standard_normal(evaluate(p.size, env)).astype(p.dtype.numpy) for p in kernel.params
        ]
        places.append([put(array) for array in arrays])
        run_kernel(kernel, arrays, dims, TABLE)
        wants.append(arrays)
    status = put(np.zeros(4, np.int64))
    steps = [Launch(kernel, (), dims) for dims in launches]
    for stage in one.stages:
        rows, blocks = words(stage, steps)
        arguments = [*(place for each in places for place in each), *rows, status]
        driver.launch(driver.prepare(
            driver.function(module, stage.name), (min(evaluate(blocks, {}), most), 1, 1),
            (stage.threads, 1, 1), pack("q" * len(arguments), arguments), stage.shared,
        ), DEFAULT_STREAM)
    for arrays, addresses in zip(wants, places, strict=True):
        for want, place, param in zip(arrays, addresses, kernel.params, strict=True):
            got = np.empty_like(want)
            driver.copy_out(got.ctypes.data, place, got.nbytes, DEFAULT_STREAM)
            if param.access == "out":
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
def test_the_compiler_takes_it(architecture: str) -> None:
    """As many launches as there may be: no word is copied to a stack, nothing spills."""
    for make, _ in CASES.values():
        kernel = make()
        source = emit(kernel)
        most = fits(kernel, source)
        assert most > 30
        one = batched(kernel, source, most)
        uses = needs.compiler(12).compile(one.text, architecture).uses
        for stage in one.stages:
            assert uses[stage.name].stack == 0 and not uses[stage.name].spilled
