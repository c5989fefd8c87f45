"""A Routine step on the host: its operator's function in NumPy, between reads and writes of the
Memory that its buffers lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .. import op
from ..interpret import has_dims, resolve_attrs, run_control
from ..memory import Buffer, Memory
from .lanes import Array, Table
from .program import Routine


class HostRoutine:
    """What one step does. Raises NotImplementedError where `table` has no function for it."""

    def __init__(self, step: Routine, table: Table) -> None:
        self._op, self._attrs, self._table = step.op, dict(step.attrs), table
        self._sized = any(has_dims(value) for value in self._attrs.values())
        self._function = table.get(step.op)
        if self._function is None and "graphs" not in self._attrs:
            where = f" ({', '.join(step.locs)})" if step.locs else ""
            raise NotImplementedError(
                f"operator {step.op!r} has neither native code nor a function in NumPy{where}"
            )

    def results(self, arrays: Sequence[Array], dims: Mapping[str, int]) -> Sequence[Array]:
        """The step's results; `dims` are the values of the program's dims."""
        attrs = resolve_attrs(self._attrs, dims) if self._sized else self._attrs
        with np.errstate(all="ignore"):
            if self._function is None:
                result = run_control(op.get(self._op), arrays, attrs, self._table, dims)
            else:
                result = self._function(*arrays, **attrs)
        return result if isinstance(result, tuple | list) else (result,)

    def run(
        self, memory: Memory, inputs: Sequence[Buffer], outputs: Sequence[Buffer],
        dims: Mapping[str, int],
    ) -> None:
        """The step on buffers of a memory."""
        results = self.results([memory.read(buffer) for buffer in inputs], dims)
        for buffer, result in zip(outputs, results, strict=True):
            memory.write(buffer, result)
