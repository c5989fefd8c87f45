"""What happens beside a compilation: verification, value checks, GRAPHC_DEBUG output, dumps."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.config import (
    ASSEMBLY,
    GRAPHS,
    KERNELS,
    PASSES,
    TIMES,
    VALUES,
    VERIFY,
    Config,
)
from graphc.engine.built import Built
from graphc.ir.graph import Graph, Node
from graphc.ir.interpret import Table
from graphc.ir.kernel import Kernel, Launch, Program, leaves
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.program_text import print_program
from graphc.ir.kernel.text import print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.late import late
from graphc.ir.machine import Machine
from graphc.ir.passes.lower import Lowered
from graphc.ir.passes.partition import Split
from graphc.ir.verify import verify

if TYPE_CHECKING:
    from graphc.inspect import native_check, report, value_check
else:
    native_check = late("graphc.inspect.native_check")
    report = late("graphc.inspect.report")
    value_check = late("graphc.inspect.value_check")

Array = np.ndarray[Any, Any]

NEVER = 6  # a pass that changed nothing is only dumped
REDRAWING = frozenset({"counter_random"})  # passes that mean to change values: random ones

_compilations = itertools.count(1)


class Observer:
    """Watches one compilation, as its Config asks; with everything off it costs nothing."""

    def __init__(
        self, config: Config, name: str, table: Table, example: Sequence[Array] | None = None
    ) -> None:
        self.config = config
        self.name = name
        self.table = table
        self.values: value_check.ValueCheck | None = None
        self._example = example
        self._folder: Path | None = None
        self._files = itertools.count()

    # --- the stages ------------------------------------------------------------------------

    def begin(self, graph: Graph) -> None:
        """The graph as it was traced."""
        if self.config.dump is not None:
            self._folder = _new_folder(self.config.dump, re.sub(r"\W+", "_", self.name))
        if self.config.check >= VERIFY:
            verify(graph)
        if self.config.check >= VALUES:
            self.values = value_check.ValueCheck(graph, self.table, self._example)
        self._graph(GRAPHS, "traced", graph)

    def after_pass(self, name: str, before: Graph, after: Graph) -> None:
        """Called by the pass driver. Raises VerifyError or ValueChangedError naming the pass."""
        if after is not before:
            if self.config.check >= VERIFY:
                verify(after, name)
            if self.values is not None:
                if name in REDRAWING:
                    self.values = value_check.ValueCheck(after, self.table, self.values.inputs)
                else:
                    self.values.after_pass(name, before, after)
        level = GRAPHS if name == "fuse" else PASSES
        if level == PASSES and self.config.debug >= PASSES and str(after) == str(before):
            level = NEVER
        self._graph(level, name, after)

    def split_example(
        self, parts: Split, forward_inputs: int
    ) -> tuple[list[Array] | None, list[Array] | None]:
        """Example inputs of the forward and the backward, from the joint graph's."""
        if self.values is None:
            return None, None
        forward, cotangents = (
            self.values.inputs[:forward_inputs],
            self.values.inputs[forward_inputs:],
        )
        check = value_check.ValueCheck(parts.forward, self.table, forward)
        if check.expected is None:
            return forward, None
        sources = {"input": forward, "output": check.expected}
        saved = [sources[space][i] for space, i in parts.saved]
        return forward, [*saved, *cotangents]

    def lowered(self, kernels: Mapping[Node, Lowered]) -> None:
        """The kernels of the fused graph, before any of them is made to write in place."""
        distinct = {id(lowered.kernel): lowered.kernel for lowered in kernels.values()}
        if self.config.check >= VERIFY:
            for kernel in distinct.values():
                verify_kernel(kernel)
        if self._wants(KERNELS):
            text = "\n".join(map(print_kernel, distinct.values()))
            self._show(KERNELS, "lower.kernels", text)

    def program(self, program: Program, graph: Graph, fused: Graph, machine: Machine) -> None:
        """The program planned for a machine: verify its kernels, and interpret it against the
        graph."""
        if self.config.check >= VERIFY:
            for kernel in kernels_of(program):
                verify_kernel(kernel)
        if self.values is not None and self.values.expected is not None:
            inputs = [np.array(a) for a in self.values.inputs]
            found = run_program(program, inputs, self.table, self.values.dims)
            self.values.program(found, graph)
        if not self._wants(KERNELS):
            return
        self._show(KERNELS, "plan.program", print_program(program))
        uses = report.kernel_uses(program, fused, machine)
        for kernel in kernels_of(program):
            lines = [*(f"# {use}" for use in uses[id(kernel)]), print_kernel(kernel)]
            self._show(KERNELS, f"{kernel.name}.kernel", "\n".join(lines))

    def finish(self, built: Built) -> None:
        """The finished executable: run it against the graph, show its code and times."""
        self._native(built)
        if self.values is not None and self.values.expected is not None:
            self._run_executable(built)
        if self.config.debug >= TIMES:
            total = sum(built.times.values())
            parts = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in built.times.items())
            print(f"graphc: {self.name}: {1e3 * total:.1f} ms ({parts})", file=sys.stderr)

    def _run_executable(self, built: Built) -> None:
        """One call on copies of the example, each step compared with the interpreted kernel."""
        assert self.values is not None and self.values.expected is not None
        program = built.program
        inputs = [np.array(a, order="C") for a in self.values.inputs]
        outputs = [
            inputs[program.outputs_in_place[i]]
            if i in program.outputs_in_place
            else np.empty_like(array, order="C")
            for i, array in enumerate(self.values.expected)
        ]
        native_check.check_native(
            program, built.executable, built.backend.memory, inputs, outputs, self.table,
            self.values.dims,
        )

    def _native(self, built: Built) -> None:
        if not self._wants(KERNELS):
            return
        levels = (KERNELS, ASSEMBLY) if self._wants(ASSEMBLY) else (KERNELS,)
        for kernel in kernels_of(built.program):
            texts = built.executable.texts(kernel)
            for level, (suffix, text) in zip(levels, texts, strict=False):
                self._show(level, f"{kernel.name}.{suffix}", text)

    # --- output ----------------------------------------------------------------------------

    def _graph(self, level: int, stage: str, graph: Graph) -> None:
        if self._wants(level):
            self._show(level, f"{stage}.graph", str(graph))

    def _wants(self, level: int) -> bool:
        return self.config.debug >= level or self._folder is not None

    def _show(self, level: int, title: str, text: str) -> None:
        """Print to stderr at a debug level, and write a numbered file to the dump folder."""
        if self.config.debug >= level:
            print(f"--- {self.name}: {title} ---\n{text}", file=sys.stderr)
        if self._folder is not None:
            # A dump is a help, never a reason to fail.
            with contextlib.suppress(OSError):
                plain = re.sub(r"[^\w.-]+", "_", title)[:100]
                (self._folder / f"{next(self._files):03}_{plain}.txt").write_text(text)


def _new_folder(parent: Path, name: str) -> Path | None:
    """A folder with the next free number; None where none can be made."""
    while True:
        folder = parent / f"{next(_compilations):04}_{name}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue  # of an earlier process
        except OSError:
            return None
        return folder


def kernels_of(program: Program) -> list[Kernel]:
    """The distinct kernels of a program, in order of first use."""
    found: dict[int, Kernel] = {}
    for step in leaves(program.steps):
        if isinstance(step, Launch):
            found.setdefault(id(step.kernel), step.kernel)
    return list(found.values())
