"""Whether the user's Python would catch what an operator raises.

A segment's operators run where it ends, when Python may have left the try statement that the
operator stands in.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar, cast

from .context import local
from .errors import is_hidden

F = TypeVar("F", bound=Callable[..., Any])

# the code that calls a recorded function of the user's
entries: set[CodeType] = set()


def raises_at_once(what: str) -> Callable[[F], F]:
    """Decorator: inside of a try statement the function runs between segments, not in one."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            trace = local.trace
            if trace is None or not _is_caught() or not trace.runs_eagerly(what):
                return function(*args, **kwargs)
            with trace.eager(what):
                return function(*args, **kwargs)

        return cast(F, call)

    return decorate


def _is_caught() -> bool:
    """Whether a function between here and the recorded one has an except clause around its call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in entries:
        code = frame.f_code
        if not is_hidden(code.co_filename) and _has_except(code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=4096)
def _has_except(code: CodeType, offset: int) -> bool:
    """Whether an except clause of the code is told of what the instruction at `offset` raises.
    Those of finally and with, which raise it again, are passed on the way out."""
    handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    found = list(dis.get_instructions(code))
    steps = {step.offset: i for i, step in enumerate(found)}
    seen: set[int] = set()
    while True:
        target = next((e.target for e in handlers if e.start <= offset < e.end), None)
        if target is None or target in seen:
            return False
        seen.add(target)
        names = [step.opname for step in found[steps[target] : steps[target] + 24]]
        for name in names:
            if name in ("WITH_EXCEPT_START", "RERAISE"):
                break
            if name == "CHECK_EXC_MATCH":
                return True
        if names[:2] == ["PUSH_EXC_INFO", "POP_TOP"]:  # except:
            return True
        offset = target
