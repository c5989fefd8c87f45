"""Python that a later backward pass runs: hooks, custom Functions, checkpoint's second run.

The recording differentiates what leaves the function once, and the version's backward stands for
that. So what such Python reads beside the tape's own values must be what no call changes, and it
must do nothing that lasts: eager mode runs it again in every backward pass, as things are then.
What the call has read or written before is read anew here; only checkpoint's second run, which
torch lets read nothing else than the first, may rely on guards that the call has asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...frontend.captured import TensorInput
from ...frontend.context import local
from ...frontend.errors import TraceError, located
from ...frontend.functionalize import TracedStorage
from ...frontend.saved_hooks import unpacking
from ...ir.graph import Node
from ..version.guards import Code, Entry, Guard, Result, Type
from .class_members import members_in_order
from .kinds import Kind, kind_of
from .observer import Observer, running


class _Anew(set[Any]):
    """What was read, from now on; in the second run of something, from the start."""

    def __init__(self, before: set[Any]) -> None:
        super().__init__()
        self._before = before

    def __contains__(self, token: object) -> bool:
        return super().__contains__(token) or (unpacking.again and token in self._before)


@contextmanager
def later(observer: Observer) -> Iterator[None]:
    """Record what a backward pass runs. Raises TraceError where each might do something else."""
    guards = len(observer.guards.records)
    outer, running.observer = running.observer, observer
    entered, local.enter = local.enter, observer.entry
    before = observer.reads
    observer.reads = _Anew(before[0]), _Anew(before[1])
    values = {root: root.node for _, root in observer.trace.sources}
    observer.later = True
    try:
        yield
    except TraceError:
        raise
    except Exception as error:  # it may never run, and then nobody sees its error
        what = f"a later backward pass raises {type(error).__name__} ({error})"
        observer.taint(what)
        raise TraceError(located(f"{what}, so this cannot be compiled as one graph")) from None
    finally:
        observer.later, observer.reads = False, before
        running.observer, local.enter = outer, entered
    _memory_stays(observer, values)
    for guard in observer.guards.records[guards:]:
        if not _lasts(guard):
            _refuse(observer, f"reading {guard.path}")


def _memory_stays(observer: Observer, before: dict[TracedStorage, Node]) -> None:
    """No memory is read that the call itself has not read, and none is written to: tensors of a
    hook's, random states."""
    trace = observer.trace
    tangents = [isinstance(s, TensorInput) and s.kind == "tangent" for s in trace.inputs]
    if True in tangents and not all(tangents[tangents.index(True):]):
        _refuse(observer, "reading a tensor, or drawing random numbers,")
    if any(root.node is not before.get(root, source.node) for source, root in trace.sources):
        _refuse(observer, "writing to a tensor, or drawing random numbers,")


def _refuse(observer: Observer, what: str) -> None:
    observer.taint(what)
    observer.open(f"{what} in what a later backward() runs,")


def _lasts(guard: Guard) -> bool:
    """Whether a guard is about which objects and code there are, not about values in them: those
    may change between the call, which asks its guards, and the pass."""
    if isinstance(guard, Entry):
        return guard.identity and kind_of(type(guard.value)) is not Kind.TENSOR
    return isinstance(guard, (Code, Type)) or (
        isinstance(guard, Result)
        and (guard.function is members_in_order or guard.arguments[1:] == ("__doc__",))
    )
