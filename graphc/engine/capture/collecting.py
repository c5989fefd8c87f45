"""What Python's garbage collector runs while something is recorded is no part of the recording.

Finalizers, callbacks of weak references and other libraries' `gc.callbacks` run at any time, in any
thread, between two operations of a user's function: eagerly, unseen and uncounted. Objects that die
because the function itself lets go of them are its own doing.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

from ...frontend.context import local
from .observer import running


class _Kept(threading.local):
    """What a collection in this thread has put aside."""

    state: tuple[Any, ...] | None = None


_kept = _Kept()


def _begins(phase: str, info: dict[str, int]) -> None:
    recorded = local.trace is not None or local.counted is not None
    if phase == "start" and recorded and _kept.state is None:
        _kept.state = local.trace, local.enter, local.nested, local.counted, running.observer
        local.trace = local.enter = local.nested = local.counted = running.observer = None


def _ends(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and _kept.state is not None:
        state, _kept.state = _kept.state, None
        local.trace, local.enter, local.nested, local.counted, running.observer = state


def keep_apart() -> None:
    """From now on a collection is no part of what is recorded: all callbacks that there are run
    between ours."""
    callbacks = gc.callbacks
    if callbacks and callbacks[0] is _begins and callbacks[-1] is _ends:
        return
    for ours in (_begins, _ends):
        if ours in callbacks:
            callbacks.remove(ours)
    callbacks.insert(0, _begins)
    callbacks.append(_ends)
