"""Numbers that are known only at the end of a call: what the steps of schedules have changed, and
what the clock says then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...frontend.late import LateSource
from ...frontend.number_expr import NumberExpr, sources_of
from ..capture.clocks import Clock


class LateNumbers:
    """The late numbers of a version, and the steps before the last of them."""

    def __init__(
        self, said: list[NumberExpr], deferred: Sequence[Callable[[], None]]
    ) -> None:
        """`said`: the numbers and texts that the user gets; `deferred`: what ends each call."""
        self._expressions = list(dict.fromkeys(each for each in said if each.late))
        found = sources_of(self._expressions)
        sources = [source for source in found if type(source) is LateSource]
        clocks = [source for source in found if type(source) is Clock and source.late]
        self._clocks = sorted(clocks, key=lambda clock: clock.number)
        self._after = [[s for s in sources if s.step is action] for action in deferred]
        # how many of `deferred` find() does
        self.done = max((i + 1 for i, found in enumerate(self._after) if found), default=0)
        self._steps = deferred[: self.done]

    def find(self, said: dict[int, Any], dims: dict[str, int]) -> None:
        """Make the steps and compute the numbers; `said` has, by the id of each expression, the
        other numbers of the call."""
        if not self._expressions:
            return
        late: dict[Any, Any] = {}
        for step, sources in zip(self._steps, self._after, strict=False):
            step()
            late.update({source: source.fetch() for source in sources})
        late.update({clock: clock.fetch() for clock in self._clocks})
        for expression in self._expressions:
            said[id(expression)] = expression.evaluate({**said[id(expression)], **late}, dims)
