"""A Backend that runs the CUDA backend's code on the emulator, in the host's memory: whole graphs
and training steps without a GPU. Kernels of all programs built since the last call are compiled
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.backends import Host
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Library, Schedule, Toolchain
from graphc.backends.cuda.source import OLDEST, Source, Target, grid
from graphc.backends.cuda.status import kernel_checks
from graphc.backends.host.memory import HOST
from graphc.backends.numpy.ops import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.failure import check_error
from graphc.ir.kernel import (
    BufferRef,
    Check,
    Kernel,
    Launch,
    Leaf,
    Program,
    Routine,
    leaves,
    run_steps,
)
from graphc.ir.kernel.program import Visit, unseen
from graphc.ir.kernel.routine import HostRoutine
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]
NAME = "emulated cuda"  # conftest.py registers it
SCHEDULES = (*ALL[::2], Schedule(watch=True))  # loops have no asynchronous copies


class EmulatedBackend(CudaBackend):
    """See Backend. `schedule` may be changed between calls."""

    memory = HOST  # type: ignore[assignment]

    def __init__(self, toolchain: Toolchain, target: Target = OLDEST) -> None:
        super().__init__()
        self.toolchain, self.target = toolchain, target
        self.schedule = Schedule()
        self.optimized = True  # see Toolchain.compile
        self.worst = 0  # wavefronts of an access of shared memory, in launches that were watched
        self.kernels: dict[str, Kernel] = {}
        self.sources: dict[str, Source] = {}
        self._texts: dict[str, str] = {}  # the symbol of the first kernel with a text
        self._pending: dict[str, str] = {}
        self._libraries: dict[str, Library] = {}

    def add(self, kernel: Kernel) -> str:
        """The symbol of a kernel, which is compiled at the next call."""
        symbol = kernel_symbol(kernel)
        if symbol not in self.sources:
            self.kernels[symbol] = kernel
            source = self.sources[symbol] = emit(kernel, self.target)
            if source.text not in self._texts:
                self._pending[symbol] = source.text
            self._texts.setdefault(source.text, symbol)
        return symbol

    def build(self, program: Program, host: Host) -> Executable:  # type: ignore[override]
        return Executable(program, self)

    def library(self, symbol: str) -> Library:
        if self._pending:
            library = self.toolchain.compile(self._pending, self.optimized)
            self._libraries.update(dict.fromkeys(self._pending, library))
            self._pending.clear()
        return self._libraries[symbol]

    def launch(self, kernel: Kernel, buffers: Sequence[Array], dims: Sequence[int]) -> None:
        """All stages. Raises what a Check names."""
        source = self.sources[self.add(kernel)]
        library = self.library(self._texts[source.text])
        status = np.zeros(4, np.int64)
        named = list(zip(kernel.dims, dims, strict=True))
        sizes = [evaluate(size, dict(named)) for size in source.sizes]
        arguments = [*buffers, *dims, *sizes, status]
        if source.scratch:
            arguments.append(np.full(evaluate(source.scratch, dict(named)), 0xFF, np.uint8))  # NaN
        for stage in source.stages:
            counts = library.launch(
                stage.name, (grid(stage, named),), (stage.threads,), arguments, stage.shared,
                self.schedule,
            )
            self.worst = max(self.worst, counts.worst)
            if status[0]:
                raise CheckFalse(kernel_checks(kernel)[status[2]], int(status[3]))


class CheckFalse(Exception):
    def __init__(self, check: Check, value: int) -> None:
        super().__init__(check.message.replace("{value}", str(value)))


class KernelStats(NamedTuple):
    symbol: str
    cached: bool


class Stats(NamedTuple):
    seconds: Mapping[str, float]
    kernels: Sequence[KernelStats]
    remarks: Sequence[str] = ()


class Executable:
    """See graphc.backends.Executable."""

    def __init__(self, program: Program, backend: EmulatedBackend) -> None:
        self.program, self.backend = program, backend
        steps = list(leaves(program.steps))
        symbols = {backend.add(s.kernel) for s in steps if isinstance(s, Launch)}
        self.stats = Stats({"emit": 0.0}, [KernelStats(symbol, False) for symbol in symbols])
        self.constants = [np.ascontiguousarray(constant) for constant in program.constants]

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any], dims: Sequence[int] = ()) -> None:
        self.trace(inputs, outputs, unseen, unseen, dims)

    def trace(
        self, inputs: Sequence[Any], outputs: Sequence[Any], before: Visit, after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        env = dict(zip(self.program.dims, dims, strict=True))
        arena = np.full(evaluate(self.program.arena_bytes, env) + 64, 0xA5, np.uint8)
        spaces = {"input": inputs, "output": outputs, "const": self.constants, "arena": [arena]}

        def fetch(ref: BufferRef, dtype: Any, elements: int) -> Array:
            flat: Array = spaces[ref.space][ref.index].reshape(-1).view(np.uint8)
            start = evaluate(ref.offset, env)
            return flat[start : start + elements * np.dtype(dtype).itemsize].view(dtype)

        def leaf(number: int, step: Leaf) -> None:
            before(number, step, fetch)
            if isinstance(step, Launch):
                self._launch(step, env, fetch)
            else:
                _run_routine(step, env, fetch)
            after(number, step, fetch)

        run_steps(self.program.steps, env, lambda ref: bool(fetch(ref, bool, 1)[0]), leaf)

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        yield "cu", self.backend.emit(kernel)

    def _launch(self, step: Launch, env: Mapping[str, int], fetch: Any) -> None:
        dims = [evaluate(size, env) for size in step.dims]
        sizes = dict(zip(step.kernel.dims, dims, strict=True))
        buffers = [
            fetch(ref, param.dtype.numpy, evaluate(param.size, sizes))
            for ref, param in zip(step.buffers, step.kernel.params, strict=True)
        ]
        try:
            self.backend.launch(step.kernel, buffers, dims)
        except CheckFalse as failed:
            raise check_error(str(failed), step.locs) from None


def _run_routine(step: Routine, env: Mapping[str, int], fetch: Any) -> None:
    def shaped(refs: Sequence[BufferRef], types: Sequence[object]) -> list[Array]:
        found = []
        for ref, type_ in zip(refs, types, strict=True):
            assert isinstance(type_, TensorType)
            shape = [evaluate(size, env) for size in type_.shape]
            found.append(fetch(ref, type_.dtype.numpy, int(np.prod(shape))).reshape(shape))
        return found

    inputs = shaped(step.inputs, step.input_types)
    results = HostRoutine(step, TABLE).results(inputs, env)
    for output, result in zip(shaped(step.outputs, step.output_types), results, strict=True):
        output[...] = result
