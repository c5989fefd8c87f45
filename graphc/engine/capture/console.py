"""print() inside a compiled function: it prints at every call, as in eager mode.

While anything is being traced, `builtins.print` is one that ends the attempt to make a single
graph: the function then runs in segments.
"""

from __future__ import annotations

import builtins
import threading
from types import TracebackType
from typing import Any

from ...frontend.context import local

_lock = threading.Lock()
_depth = 0
_print: Any = None


def _traced_print(*args: Any, **kwargs: Any) -> None:
    """builtins.print, noticed."""
    trace = local.trace
    if trace is not None and trace.whole:
        cure = f"take the print out of the compiled function{trace.otherwise}"
        trace.end_segment("print()", cure)
    _print(*args, **kwargs)


class NoticedPrint:
    """A context in which a trace notices that user code prints."""

    def __enter__(self) -> None:
        global _depth, _print
        with _lock:
            _depth += 1
            if _depth == 1:
                _print, builtins.print = builtins.print, _traced_print

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _depth
        with _lock:
            _depth -= 1
            if _depth == 0 and builtins.print is _traced_print:
                builtins.print = _print
