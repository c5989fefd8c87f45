"""Under a debugger functions on trial run as they were written, line by line.

`run --compile` is told of debuggers by sys.settrace(), which pdb and tools like it call. While any
thread is traced, all functions have their own code; then calls go where they went before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Protocol
from weakref import WeakSet

from ..engine.detour import redirect, restore


class Detour(Protocol):
    """A function whose calls go elsewhere."""

    function: FunctionType
    target: Callable[..., Any]
    ended: bool


class Debugged:
    """The functions of a process whose calls go elsewhere, and who traces it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # what traces may look at itself
        self._detours: WeakSet[Any] = WeakSet()
        self._waiting: list[tuple[Detour, CodeType]] = []  # while somebody traces; their code then
        self._tracing: set[int] = set()  # threads

    def add(self, detour: Detour) -> None:
        """A function's calls go elsewhere from now on, until `ended`."""
        with self._lock:
            self._detours.add(detour)
            if self._tracing:
                self._wait(detour)
            else:
                redirect(detour.function, detour.target)

    def traced(self, function: Any) -> None:
        """What this thread's sys.settrace() is given."""
        with self._lock:
            was, here = bool(self._tracing), threading.get_ident()
            (self._tracing.discard if function is None else self._tracing.add)(here)
            if self._tracing and not was:
                for detour in self._detours:
                    if not detour.ended:
                        restore(detour.function)
                        self._wait(detour)
            elif was and not self._tracing:
                for detour, code in self._waiting:
                    if not detour.ended and detour.function.__code__ is code:
                        redirect(detour.function, detour.target)
                self._waiting = []

    def _wait(self, detour: Detour) -> None:
        self._waiting.append((detour, detour.function.__code__))

    def listen(self) -> None:
        """From now on sys.settrace() tells."""
        settrace: Callable[[Any], None] = sys.settrace

        def told(function: Any, /) -> None:
            self.traced(function)
            settrace(function)

        sys.settrace = told


debugged = Debugged()
