"""A Routine step on the GPU, by CuPy; where CuPy does not go on, by NumPy as without it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.memory import CudaMemory
from graphc.backends.cuda.routines.complex_table import COMPLEX
from graphc.backends.cuda.routines.library import CuPy, Session, found
from graphc.backends.cuda.routines.table import DTYPES, TABLE, Function, Unfit
from graphc.ir.device_array import DeviceArray
from graphc.ir.graph import Node
from graphc.ir.interpret import Table, resolve_attrs
from graphc.ir.kernel import Routine
from graphc.ir.kernel.routine import HostRoutine
from graphc.ir.types import TupleType


class Routines:
    """Of one device. `find`: gives CuPy at the first question, or None."""

    def __init__(self, device: Callable[[], Device], find: Callable[[], CuPy | None] = found):
        self._device, self._find = device, find

    @functools.cached_property
    def library(self) -> CuPy | None:
        """CuPy, imported at the first question."""
        return self._find()

    @functools.cached_property
    def _session(self) -> Session:
        assert self.library is not None
        return Session(self.library, self._device())

    def claims(self, node: Node) -> bool:
        """Whether CuPy, which is imported then, computes a node."""
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        given = [x.dtype for x in node.inputs]
        if node.op.name in TABLE:
            known = all(dtype in DTYPES for dtype in given)
        else:
            touched = any(dtype.is_complex for dtype in (*given, *(t.dtype for t in types)))
            known = touched and node.op.name in COMPLEX and bool(given)
        return known and self.library is not None

    def of(self, step: Routine, table: Table) -> DeviceRoutine | HostRoutine:
        """What runs a step."""
        host = HostRoutine(step, table)
        return DeviceRoutine(step, host, self._session) if step.claimed else host


def function_of(op: str) -> Function:
    """What CuPy computes of an operator."""
    return TABLE.get(op) or COMPLEX[op]


def would(op: str) -> bool:
    """Whether CuPy would run an operator, if it were installed."""
    return op in TABLE or op in COMPLEX


class DeviceRoutine:
    """See HostRoutine. `host` runs what CuPy does not."""

    def __init__(self, step: Routine, host: HostRoutine, session: Session) -> None:
        self._op, self._attrs = step.op, dict(step.attrs)
        self._host, self._session = host, session
        self._lacks = False  # libraries that CuPy needs

    def run(
        self, memory: CudaMemory, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
        dims: Mapping[str, int],
    ) -> None:
        """The step on buffers of a memory. Raises what has failed before, where something may."""
        memory.look()
        empty = not all(buffer.size for buffer in (*inputs, *outputs))
        if empty or self._lacks or not self._begun(memory, inputs, outputs, dims):
            self._host.run(memory, inputs, outputs, dims)

    def _begun(
        self, memory: CudaMemory, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
        dims: Mapping[str, int],
    ) -> bool:
        """Whether CuPy computes it."""
        session, attrs = self._session, resolve_attrs(self._attrs, dims)
        library = session.library
        try:
            with session.begun(), library.cupyx.errstate(linalg="raise"):
                given, wanted = (
                    [session.array(memory.address(each), each) for each in buffers]
                    for buffers in (inputs, outputs)
                )
                made = function_of(self._op)(library, *given, **attrs)
                results = made if isinstance(made, tuple) else (made,)
                if _meet(memory, inputs, outputs):  # results may be views of what is written
                    results = tuple(result.copy() for result in results)
                for to, result in zip(wanted, results, strict=True):
                    to[...] = result
        except (Unfit, np.linalg.LinAlgError):
            return False
        except ImportError as missing:
            self._lacks = True
            warnings.warn(
                f"CuPy cannot compute {self._op}, NumPy does instead: {missing}. Cure: CuPy's "
                "extra `ctk` (pip install 'cupy-cuda12x[ctk]', or 13x) has the libraries it needs",
                RuntimeWarning, stacklevel=2,
            )
            return False
        return True


def _meet(
    memory: CudaMemory, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]
) -> bool:
    """Whether an output lies where an input does."""
    def range_of(buffer: DeviceArray) -> tuple[int, int]:
        start = memory.address(buffer)
        return start, start + buffer.nbytes

    written = [range_of(buffer) for buffer in outputs]
    return any(
        start < stop_ and start_ < stop
        for start, stop in map(range_of, inputs) for start_, stop_ in written
    )
