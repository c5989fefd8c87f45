"""Writes under a trace that a tensor decides upon: the memory is as it was where it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .context import local
from .functions import where
from .grad_mode import no_grad
from .tensor import Tensor
from .trace import Trace


def exported() -> Trace | None:
    """The trace that becomes a file, whose Python never asks for a tensor's value; None: there is
    none, and who wants to decide by one does so in Python."""
    return local.trace if local.exporting else None


@contextmanager
def kept_where(trace: Trace, kept: Tensor) -> Iterator[None]:
    """Around writes to tensors from outside the trace, which are undone where `kept` (bool, without
    dimensions) is true: bit for bit, whatever was to be written."""
    before = {id(storage): storage.node for _, storage in trace.sources}
    yield
    with no_grad():
        for source, storage in list(trace.sources):
            old = before.get(id(storage), source.node)
            if storage.node is old:
                continue
            new = trace.wrap(storage.node)
            storage.rebind(trace.read(where(kept, trace.wrap(old), new)), tracked=True)
