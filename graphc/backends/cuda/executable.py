"""A Program on a GPU: its launches, prepared once, are sent one after another. Nothing waits but
what the host itself has to look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from graphc.backends.cuda.apart import epilogue
from graphc.backends.cuda.batches import batched, fits
from graphc.backends.cuda.choice import Chosen
from graphc.backends.cuda.code import Code
from graphc.backends.cuda.driver import Function
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.lease import Lease, Plan
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.remarks import remarks
from graphc.backends.cuda.routines import Routines
from graphc.backends.cuda.source import Source, Stage, Target
from graphc.backends.cuda.status import guarded, kernel_checks
from graphc.backends.cuda.steps import (
    HostStep,
    LibraryCall,
    Line,
    Loop,
    Part,
    parts_of,
    shares,
)
from graphc.ir.device_array import DeviceArray
from graphc.ir.dim import evaluate
from graphc.ir.interpret import Table
from graphc.ir.kernel import BufferRef, Check, Kernel, Launch, Program, Routine, leaves
from graphc.ir.kernel.program import Visit
from graphc.ir.kernel.routine import HostRoutine
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.memory import Array
from graphc.ir.passes.plan.together import Batch, together
from graphc.ir.types import TensorType


class KernelStats(NamedTuple):
    """See graphc.backends.KernelStats."""

    symbol: str
    name: str
    cached: bool


class Stats(NamedTuple):
    """See graphc.backends.Stats."""

    seconds: Mapping[str, float]
    kernels: Sequence[KernelStats]
    remarks: Sequence[str] = ()


class _Kernel(NamedTuple):
    source: Source
    checking: frozenset[str]  # stages
    checks: tuple[Check, ...]
    functions: tuple[Function, ...]


class Built:
    """The kernels of a program. See steps.Kernels."""

    def __init__(
        self, program: Program, gathered: Sequence[Batch], target: Target, code: Code,
        chosen: Chosen,
    ) -> None:
        products = self._products = chosen.products
        kernels = {
            id(step.kernel): step.kernel for step in leaves(program.steps)
            if isinstance(step, Launch)
        }
        start = time.perf_counter()
        self._apart = {
            key for key, kernel in kernels.items() if products is not None and products.take(kernel)
        }
        plain = {
            key: epilogue(kernel) if key in self._apart else
            emit(kernel, target, chosen.plans.get(key))
            for key, kernel in kernels.items()
        }
        emitted = {key: guarded(source) for key, source in plain.items()}
        self._most = {key: fits(kernel, plain[key]) for key, kernel in kernels.items()}
        batches = {
            (id(kernel), count): guarded(batched(kernel, plain[id(kernel)], count))[0]
            for kernel, count in self._batches(gathered)
        }
        middle = time.perf_counter()
        loaded = code.load([*(source for source, _ in emitted.values()), *batches.values()])
        seconds = {"emit": middle - start, "compile": time.perf_counter() - middle}
        self._together = {
            key: (source, found.functions)
            for (key, source), found in zip(batches.items(), loaded[len(kernels) :], strict=True)
        }
        del loaded[len(kernels) :]
        self._kernels = {
            key: _Kernel(*emitted[key], kernel_checks(kernel), found.functions)
            for (key, kernel), found in zip(kernels.items(), loaded, strict=True)
        }
        stats = {
            (symbol := kernel_symbol(kernel)): KernelStats(symbol, kernel.name, found.known)
            for kernel, found in zip(kernels.values(), loaded, strict=True)
        }
        self.stats = Stats(seconds, list(stats.values()))

    def _batches(self, gathered: Sequence[Batch]) -> Iterator[tuple[Kernel, int]]:
        """The kernels that are launched together, and how many times."""
        for batch in gathered:
            launches = [step for step in batch if isinstance(step, Launch)]
            if launches:
                kernel = launches[0].kernel
                for part in shares(launches, self.most(kernel)):
                    if len(part) > 1:
                        yield kernel, len(part)

    def call(self, step: Launch) -> LibraryCall | None:
        if self._products is None or id(step.kernel) not in self._apart:
            return None
        return self._products.call(step)

    def most(self, kernel: Kernel) -> int:
        return self._most[id(kernel)]

    def together(self, kernel: Kernel, count: int) -> tuple[Source, Sequence[Function]]:
        return self._together[id(kernel), count]

    def source(self, kernel: Kernel) -> Source:
        return self._kernels[id(kernel)].source

    def functions(self, kernel: Kernel) -> Sequence[Function]:
        return self._kernels[id(kernel)].functions

    def checked(self, kernel: Kernel, stage: Stage) -> tuple[Check, ...]:
        found = self._kernels[id(kernel)]
        return found.checks if stage.name in found.checking else ()


class Executable:
    """See graphc.backends.Executable."""

    def __init__(
        self, program: Program, memory: CudaMemory, code: Code, target: Target, table: Table,
        graphs: str = "auto", chosen: Chosen | None = None, routines: Routines | None = None,
    ) -> None:
        self._chosen = chosen or Chosen()
        self.program, self.memory, self._target = program, memory, target
        self._gathered = together(program, {})
        self._kernels = Built(program, self._gathered, target, code, self._chosen)
        self._routines = {
            number: HostRoutine(step, table) if routines is None else routines.of(step, table)
            for number, step in enumerate(leaves(program.steps)) if isinstance(step, Routine)
        }
        self._constants = []
        for constant in program.constants:
            assert isinstance(constant, np.ndarray)
            self._constants.append(memory.allocate(constant.shape, constant.dtype))
            memory.write(self._constants[-1], constant)
        self._graphs, self._plan = graphs, self._planned(graphs)

    @property
    def stats(self) -> Stats:
        """See graphc.backends.Stats."""
        self.memory.device.activate()
        said = remarks(self._plan.parts, self._graphs, self.memory.driver)
        return self._kernels.stats._replace(remarks=(*said, *self._chosen.said))

    def _planned(self, graphs: str, single: bool = False) -> Plan:
        parts = parts_of(self.program, self._kernels, self._gathered, single)
        return Plan(self.program, parts, self.memory, self._constants, graphs)

    def run(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
        dims: Sequence[int] = (),
    ) -> None:
        """Begun, when it returns: what a Check names is raised where the host waits."""
        plan = self._plan
        lease = self._placed(plan, inputs, outputs, dims)
        try:
            self._run(plan.parts, lease, _nothing, _nothing)
        finally:
            plan.give_back(lease)
        if self.memory.device.blocking:
            self.memory.synchronise()

    @contextmanager
    def again(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]
    ) -> Iterator[Callable[[], None]]:
        """Begins a call on these buffers, as often as it is called; for a program without dims."""
        plan = self._plan
        lease = self._placed(plan, inputs, outputs, ())
        try:
            yield lambda: self._run(plan.parts, lease, _nothing, _nothing)
        finally:
            lease.end()

    def trace(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], before: Visit,
        after: Visit, dims: Sequence[int] = (),
    ) -> None:
        """A step at a time; what a visitor looks at is waited for."""
        plan = self._planned("0", single=True)
        lease = self._placed(plan, inputs, outputs, dims)
        steps = list(leaves(self.program.steps))

        def fetch(ref: BufferRef, dtype: Any, elements: int) -> Array:
            return self.memory.read(
                self.memory.at(lease.address(ref), (elements,), np.dtype(dtype))
            )

        self._run(
            plan.parts, lease, lambda number: before(number, steps[number], fetch),
            lambda number: after(number, steps[number], fetch),
        )
        self.memory.synchronise()

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """CUDA C."""
        plan = self._chosen.plans.get(id(kernel))
        yield "cu", guarded(emit(kernel, self._target, plan))[0].text

    def _placed(
        self, plan: Plan, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
        dims: Sequence[int],
    ) -> Lease:
        """A lease, for a call with these buffers."""
        program = self.program
        given = len(inputs), len(outputs), len(dims)
        wanted = len(program.input_types), len(program.output_types), len(program.dims)
        if given != wanted:
            raise ValueError(
                f"program {program.name} takes {wanted[0]} inputs, {wanted[1]} outputs and "
                f"{wanted[2]} dims, got {given[0]}, {given[1]} and {given[2]}"
            )
        place = self.memory.place
        for buffer in (*inputs, *outputs):
            if not isinstance(buffer, DeviceArray) or buffer.memory is not self.memory:
                raise RuntimeError(
                    f"backend 'cuda' computes on tensors on {place}. Cure: move them there "
                    f"(.to({place!r})), or leave backend= out"
                )
        lease = plan.lease(self.memory.device.current_stream())
        try:
            lease.place(inputs, outputs, dims)
        except BaseException:
            plan.give_back(lease)
            raise
        return lease

    # --- parts --------------------------------------------------------------------------------

    def _run(self, parts: Sequence[Part], lease: Lease, before: _Around, after: _Around) -> None:
        for part in parts:
            if isinstance(part, Line):
                before(part.number)
                lease.begin(part)
                after(part.number)
            elif isinstance(part, HostStep):
                before(part.number)
                self._on_host(part, lease)
                after(part.number)
            elif isinstance(part, Loop):
                self._repeat(part, lease, before, after)
            else:
                chosen = part.then if self._flag(part.flag, lease) else part.otherwise
                self._run(chosen, lease, before, after)

    def _repeat(self, loop: Loop, lease: Lease, before: _Around, after: _Around) -> None:
        lease.env[loop.var] = 0
        while True:
            lease.moved(loop.var)
            self._run(loop.test, lease, before, after)
            if loop.flag is not None and not self._flag(loop.flag, lease):
                return
            if loop.count is not None and lease.env[loop.var] >= evaluate(loop.count, lease.env):
                return
            self._run(loop.steps, lease, before, after)
            lease.env[loop.var] += 1

    def _flag(self, ref: BufferRef, lease: Lease) -> bool:
        found = self.memory.at(lease.address(ref), (), np.dtype(np.bool_))
        return bool(self.memory.read(found))

    def _on_host(self, step: HostStep, lease: Lease) -> None:
        def buffers(refs: Sequence[BufferRef], types: Sequence[object]) -> list[DeviceArray]:
            found = []
            for ref, type_ in zip(refs, types, strict=True):
                assert isinstance(type_, TensorType)
                shape = [evaluate(size, lease.env) for size in type_.shape]
                found.append(self.memory.at(lease.address(ref), shape, type_.dtype.numpy))
            return found

        routine = step.routine
        self._routines[step.number].run(
            self.memory, buffers(routine.inputs, routine.input_types),
            buffers(routine.outputs, routine.output_types), lease.env,
        )


_Around = Callable[[int], None]


def _nothing(number: int) -> None:
    """Around the steps of a call that nobody traces."""
