"""torch._dynamo.explain: of how many graphs a function is, and why of no fewer."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple


class BreakReason(NamedTuple):
    """Why a graph ends, and the user's line."""

    reason: str
    user_stack: list[traceback.FrameSummary]


class ExplainOutput(NamedTuple):
    """What explain() found. `explanation`: graphc.explain()'s, which knows more; str() is a report
    like torch's."""

    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakReason]
    explanation: Any

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
            "Break Reasons:",
        ]
        for i, each in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {each.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in each.user_stack]
        return "\n".join(lines) + "\n"


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` says what torch.compile(f) makes of a call with these arguments.

    The call is looked at as graphc.explain() does: it is recorded, its code is not run. Graphs end
    where Python needs a value, or does what no graph can; each place counts once.
    """
    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        found = _explain()(f, *args, **kwargs)
        reasons = [BreakReason(f"{p.what}. Cure: {p.cure}", _stack(p.loc)) for p in found.open]
        whole = not reasons
        return ExplainOutput(1 if whole else len(reasons) + 1, len(reasons), reasons, found)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _explain() -> Callable[..., Any]:
    found: Callable[..., Any] = importlib.import_module("graphc").explain
    return found


def _stack(loc: Any) -> list[traceback.FrameSummary]:
    if loc is None:
        return []
    return [traceback.FrameSummary(loc.file, loc.line, loc.function or "<module>")]
