"""Locks that a forked process begins with free: what another thread held at the fork, nobody there
would ever give back. What they guard is left by that thread as it was."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> Any:
    """threading.Lock(); the thread that forks does not hold it."""
    return _noted(threading.Lock())


def rlock() -> Any:
    """threading.RLock(), which the thread that forks goes on holding."""
    return _noted(threading.RLock())


def _noted(made: Any) -> Any:
    _locks.add(made)
    return made


def _in_child() -> None:
    for each in list(_locks):
        if not (hasattr(each, "_is_owned") and each._is_owned()):
            each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
