"""What is emitted for a kernel, with buffers of its own on a device: launched, timed, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np

from graphc.backends.cuda.driver import DEFAULT_STREAM, SHARED_DEFAULT, Function, Stream, pack
from graphc.backends.cuda.source import Source, grid
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel

from .bed import Bed


class Placed:
    """A kernel's launches on copies of arrays. Closed by `with`."""

    def __init__(
        self, bed: Bed, kernel: Kernel, source: Source, functions: Mapping[str, Function],
        arrays: Sequence[np.ndarray], dims: Sequence[int] = (),
    ) -> None:
        self.bed = bed
        named = list(zip(kernel.dims, dims, strict=True))
        env = dict(named)
        self._arrays = arrays
        self._buffers = [bed.put(array) for array in arrays]
        self._held = [*self._buffers, bed.put(np.zeros(4, np.int64))]
        words = [*self._buffers, *dims, *(evaluate(size, env) for size in source.sizes)]
        words.append(self._held[-1])
        kinds = f"{len(arrays)}P{len(words) - len(arrays) - 1}qP"
        if source.scratch != 0:
            self._held.append(bed.driver.allocate(max(evaluate(source.scratch, env), 1)))
            words.append(self._held[-1])
            kinds += "P"
        self._launches = []
        for stage in source.stages:
            function = functions[stage.name]
            if stage.shared > SHARED_DEFAULT:
                bed.driver.allow_shared(function, stage.shared)
            self._launches.append(bed.driver.prepare(
                function, (grid(stage, named), 1, 1), (stage.threads, 1, 1), pack(kinds, words),
                stage.shared,
            ))

    def begin(self, stream: Stream = DEFAULT_STREAM) -> None:
        """All stages, in order."""
        for launch in self._launches:
            self.bed.driver.launch(launch, stream)

    def found(self) -> list[np.ndarray]:
        """The buffers behind what was begun."""
        self.bed.driver.synchronise()
        pairs = zip(self._buffers, self._arrays, strict=True)
        return [self.bed.get(place, array) for place, array in pairs]

    def __enter__(self) -> Placed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for place in self._held:
            self.bed.driver.free(place)
