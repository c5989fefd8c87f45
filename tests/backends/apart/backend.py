"""A backend in this process that behaves as another machine's: see memory.py.

Its kernels are the CPU's code for a Machine with wide lanes and no serial work, run by the
device's worker. It has no float64, claims nothing and lacks some operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphc.backends import Host
from graphc.backends.host.memory import HOST
from graphc.backends.llvm import executable
from graphc.backends.llvm.backend import LlvmBackend
from graphc.ir.device_array import DeviceArray
from graphc.ir.graph import Node
from graphc.ir.kernel import Kernel, Program, Template
from graphc.ir.kernel.program import Visit
from graphc.ir.record import replaced

from ...ir.machines import WIDE
from .memory import ApartMemory

LACKING = frozenset({"lgamma", "digamma", "erfinv"})  # operators that the host computes


class ApartBackend(LlvmBackend):
    """See Backend."""

    # a counter takes f64
    machine = replaced(WIDE, by_counter=False)

    def __init__(self) -> None:
        super().__init__()
        self.memory = ApartMemory()

    def computes(self, node: Node) -> bool:
        return node.op.name not in LACKING

    def renders(self, template: Template) -> bool:
        return False

    def build(self, program: Program, host: Host) -> Any:
        native = executable.build(
            program, pool=self.pool(host), target=self._target, cache=self.cache(host),
            memory=HOST, table=host.table,
        )
        return Executable(native, self.memory)


class Executable:
    """Native code that the device's worker runs."""

    def __init__(self, native: executable.Executable, memory: ApartMemory) -> None:
        self._native, self._memory = native, memory
        self.stats = native.stats

    def run(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
        dims: Sequence[int] = (),
    ) -> None:
        """Queued: what a Check names is raised when the host waits."""
        given, made, sizes = self._checked(inputs), self._checked(outputs), tuple(dims)
        numbers = self._memory.numbers
        self._memory.queue.put(lambda: self._native.run(
            [numbers(b) for b in given], [numbers(b) for b in made], sizes
        ))

    def trace(
        self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], before: Visit,
        after: Visit, dims: Sequence[int] = (),
    ) -> None:
        given, made, sizes = self._checked(inputs), self._checked(outputs), tuple(dims)
        numbers = self._memory.numbers
        self._memory.queue.put(lambda: self._native.trace(
            [numbers(b) for b in given], [numbers(b) for b in made], before, after, sizes
        ))
        self._memory.queue.wait()

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        yield from self._native.texts(kernel)

    def _checked(self, buffers: Sequence[DeviceArray]) -> list[DeviceArray]:
        for buffer in buffers:
            assert type(buffer) is DeviceArray and buffer.memory is self._memory, buffer
            assert buffer.flags.c_contiguous
        return list(buffers)
