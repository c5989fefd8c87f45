"""An exported program's part of a library: what callers see, and its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.backends.host.interface import Interface, Level, Place
from graphc.config import current
from graphc.export.aot.compiled import code, ones_of
from graphc.export.aot.described import Described, described
from graphc.export.aot.stock import Stock
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.ir import dtypes
from graphc.ir.memory import on_host


class ProgramLibrary:
    """`stock`: where weights are put. `sizes`: the largest of free sizes. `freeze`: what hangs on
    weights alone is computed now. Raises ExportError for what a library cannot hold."""

    def __init__(
        self, program: ExportedProgram, stock: Stock, sizes: Mapping[str, Any], freeze: bool
    ) -> None:
        _refuse_writes(program)
        self._program, self._stock, self._freeze = program, stock, freeze
        self._arrays = {
            name: np.asarray(on_host(tensor._graphc_array), order="C")
            for name, tensor in program._weights.items()
        }
        self.about: Described = described(
            program.graph, program.signature, sizes, self._described
        )

    def interface(self, name: str) -> Interface:
        """What callers see."""
        about = self.about
        return Interface(name, about.inputs, about.outputs, about.results, about.sizes)

    def level(self, name: str, backend: Any) -> Level:
        """The code for one kind of CPU: a program for each set of free sizes that are 1."""
        return Level(name, tuple(
            code(self._program, self._arrays, self.about, ones, backend, current(), self._freeze,
                 self._stock.stored, self._stock.data)
            for ones in ones_of(self._program.graph, self.about)
        ))

    def _described(self, name: str) -> tuple[dtypes.DType, tuple[int, ...], Place]:
        array = self._arrays[name]
        return dtypes.from_numpy(array.dtype), array.shape, self._stock.stored(name, array)


def _refuse_writes(program: ExportedProgram) -> None:
    for variant in program.variants:
        for write in variant.signature.writes:
            what = write.get("weight", "an argument")
            raise ExportError(
                f"the program writes to {what}, which a library's calls do not: it was exported in "
                "train mode. Cure: export(model.eval(), args), or export_step() of what trains it"
            )
