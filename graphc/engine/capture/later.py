"""Python that a later backward pass runs: hooks, custom Functions, checkpoint's second run.

The recording differentiates what leaves the function once, and the version's backward stands for
that. So what such Python reads beside the tape's own values must be what no call changes, and it
must do nothing that lasts: eager mode runs it again in every backward pass, as things are then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...frontend.context import local
from ...frontend.errors import TraceError, located
from ..version.guards import Code, Entry, Guard, Result, Type
from .class_members import members_in_order
from .kinds import Kind, kind_of
from .observer import Observer, running


@contextmanager
def later(observer: Observer) -> Iterator[None]:
    """Record what a backward pass runs. Raises TraceError where each might do something else."""
    before = len(observer.guards.records)
    outer, running.observer = running.observer, observer
    entered, local.enter = local.enter, observer.entry
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
        observer.later = False
        running.observer, local.enter = outer, entered
    for guard in observer.guards.records[before:]:
        if not _lasts(guard):
            observer.taint(guard.path)
            observer.open(f"reading {guard.path} in what a later backward() runs,")


def _lasts(guard: Guard) -> bool:
    """Whether a guard is about which objects and code there are, not about values in them: those
    may change between the call, which asks its guards, and the pass."""
    if isinstance(guard, Entry):
        return guard.identity and kind_of(type(guard.value)) is not Kind.TENSOR
    return isinstance(guard, (Code, Type)) or (
        isinstance(guard, Result)
        and (guard.function is members_in_order or guard.arguments[1:] == ("__doc__",))
    )
