"""The reference Backend: the host's kernels, run by their interpreter. Slow; what native code has
to mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.backends import Backend, Finding, Host, KernelStats
from graphc.backends.host.machine import CPU
from graphc.backends.host.memory import HOST
from graphc.ir.failure import check_error
from graphc.ir.graph import Node
from graphc.ir.interpret import Table
from graphc.ir.kernel import Kernel, Program, Template
from graphc.ir.kernel.interpret import CheckFailed, run_program
from graphc.ir.kernel.program import Visit, unseen
from graphc.ir.kernel.text import print_kernel
from graphc.ir.machine import Machine
from graphc.ir.memory import Array


class NumpyBackend:
    """See Backend. Kernels are those of the CPU."""

    machine = CPU
    memory = HOST

    def claims(self, node: Node, machine: Machine) -> bool:
        """Nothing."""
        return False

    def computes(self, node: Node) -> bool:
        """Every operator that fusion takes."""
        return True

    def renders(self, template: Template) -> bool:
        """Each has a meaning in NumPy."""
        return True

    def emit(self, kernel: Kernel) -> str:
        """A kernel's own text: there is no other code."""
        return print_kernel(kernel)

    def build(self, program: Program, host: Host) -> Interpreted:
        """Nothing is compiled."""
        return Interpreted(program, host.table)

    def adapt(self, host: Host) -> None:
        """Nothing: one thread."""

    def draws(self, host: Host) -> Mapping[str, Callable[..., Any]]:
        """None: NumPy's are the host's."""
        return {}

    def findings(self, host: Host) -> Sequence[Finding]:
        """NumPy."""
        return (Finding("NumPy", np.__version__, needed=True),)


class NothingBuilt(NamedTuple):
    """The Stats of an interpreted program."""

    seconds: Mapping[str, float] = {}
    kernels: Sequence[KernelStats] = ()
    remarks: Sequence[str] = ()


class Interpreted:
    """A Program on NumPy, step by step."""

    stats = NothingBuilt()

    def __init__(self, program: Program, table: Table) -> None:
        self.program, self._table = program, table

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], dims: Sequence[int] = ()
    ) -> None:
        """See Executable."""
        self.trace(inputs, outputs, unseen, unseen, dims)

    def trace(
        self, inputs: Sequence[Array], outputs: Sequence[Array], before: Visit, after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        """See Executable."""
        named = dict(zip(self.program.dims, dims, strict=True))
        try:
            results = run_program(self.program, inputs, self._table, named, before, after)
        except CheckFailed as failed:
            raise check_error(str(failed), failed.locs) from None
        for output, result in zip(outputs, results, strict=True):
            if output is not result:
                output[...] = result

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """None beside the kernel's own."""
        return iter(())


BACKEND: Backend = NumpyBackend()
