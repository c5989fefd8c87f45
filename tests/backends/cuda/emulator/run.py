"""One kernel through a Driver, stage by stage, on arrays of the host."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from graphc.backends.cuda.driver import Driver, Module, pack
from graphc.backends.cuda.emit import BLOCK, Source, grid
from graphc.ir.kernel import Kernel

Array = np.ndarray


def run(
    driver: Driver, module: Module, source: Source, kernel: Kernel, buffers: Sequence[Array],
    dims: Sequence[int],
) -> Array:
    """Runs a kernel on buffers, in place; returns the status words."""
    stream = driver.create_stream()
    status = np.zeros(4, np.int64)
    arrays = [*buffers, status]
    places = [driver.allocate(array.nbytes) for array in arrays]
    for place, array in zip(places, arrays, strict=True):
        driver.copy_in(place, array.ctypes.data, array.nbytes, stream)
    kinds = f"{len(buffers) * 'P'}{len(dims) * 'q'}P"
    arguments = pack(kinds, (*places[:-1], *dims, places[-1]))
    named = list(zip(kernel.dims, dims, strict=True))
    for stage in source.stages:
        function = driver.function(module, stage.name)
        blocks = (grid(stage, named), 1, 1)
        driver.launch(driver.prepare(function, blocks, (BLOCK, 1, 1), arguments), stream)
    for place, array in zip(places, arrays, strict=True):
        driver.copy_out(array.ctypes.data, place, array.nbytes, stream)
    for place in places:
        driver.free(place)
    driver.destroy_stream(stream)
    return status


def same_bits(results: Sequence[Sequence[Array]]) -> bool:
    """Whether runs agree to the bit."""
    return all(
        a.tobytes() == b.tobytes()
        for first, second in itertools.pairwise(results)
        for a, b in zip(first, second, strict=True)
    )
