"""How a recording learns that a Python function starts, in any thread.

Python 3.12 and later tell of it by sys.monitoring, 3.11 by frame evaluation. Code on which the
verdict is always the same (graphc's own, a rewritten copy) is asked about once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol, cast

from ... import backends
from ...backends.host.frames import Evaluation
from ...ir import forks

# (code, globals, who calls): whether to ask again about the same code
Verdict = Callable[[CodeType, dict[str, Any], FrameType | None], bool]


class Starts(Protocol):
    """One way to learn of it; `watch` and `leave` may be nested."""

    OTHER: str  # what is in the way

    def watch(self) -> bool:
        """From now on ask before each start. False: something else is in the way."""

    def leave(self) -> bool:
        """No longer ask. False: something else has got in the way meanwhile."""


class Monitoring:
    """By sys.monitoring."""

    OTHER = "a profiler or debugger that runs (sys.monitoring's tools 3 and 4)"
    TOOLS = (4, 3)  # those that are set aside for no debugger and no profiler

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._lock = forks.lock()
        self._depth, self._tool = 0, -1

    def watch(self) -> bool:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        with self._lock:
            if not self._depth:
                tool = next((t for t in self.TOOLS if monitoring.get_tool(t) is None), None)
                if tool is None:
                    return False
                self._tool = tool
                monitoring.use_tool_id(tool, "graphc")
                monitoring.register_callback(tool, monitoring.events.PY_START, self._started)
                monitoring.set_events(tool, monitoring.events.PY_START)
            self._depth += 1
        return True

    def leave(self) -> bool:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        with self._lock:
            self._depth -= 1
            if not self._depth:
                monitoring.set_events(self._tool, 0)
                monitoring.register_callback(self._tool, monitoring.events.PY_START, None)
                monitoring.free_tool_id(self._tool)
        return True

    def _started(self, code: CodeType, offset: int) -> Any:
        frame = sys._getframe(1)
        if self._verdict(code, frame.f_globals, frame.f_back):
            return None
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]


class FrameEvaluation:
    """By the function that CPython 3.11 calls to run a frame. `helpers`: what the verdict calls."""

    OTHER = "another tool that evaluates frames (PEP 523)"

    def __init__(self, verdict: Verdict, helpers: tuple[Callable[..., Any], ...]) -> None:
        self._verdict, self._helpers = verdict, helpers
        self._lock = forks.lock()
        self._depth = 0

    @functools.cached_property
    def _evaluation(self) -> Evaluation:
        verdict = self._verdict

        def asked(function: FunctionType) -> bool:
            return not verdict(function.__code__, function.__globals__, sys._getframe().f_back)

        evaluation = Evaluation(asked, lambda *text: cast(Any, backends.get("llvm")).link(*text))
        known: tuple[Any, ...] = (asked, verdict, *self._helpers)
        for function in known:
            evaluation.mark(function.__code__)
        return evaluation

    def watch(self) -> bool:
        with self._lock:
            if not self._depth:
                self._evaluation.begin()
            self._depth += 1
        return True

    def leave(self) -> bool:
        with self._lock:
            self._depth -= 1
            return bool(self._depth) or self._evaluation.end()
