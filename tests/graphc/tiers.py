"""Which tier the segments of a test run in: decided as for users, or one of them throughout."""

from __future__ import annotations

import pytest

from graphc.engine.segments import foreseen, tiers
from graphc.engine.segments.segments import Segments

MODES = ("as decided", "compiled", "second time", "operator by operator")


def use(mode: str, patch: pytest.MonkeyPatch) -> None:
    """Set the mode for a test."""
    if mode == "as decided":
        return
    patch.setattr(tiers.Tiers, "end_call", lambda *rest: False)
    patch.setattr(Segments, "turned", lambda *rest: None)
    patch.setattr(foreseen, "values_needed", lambda *rest: frozenset())
    if mode == "compiled":
        patch.setattr(tiers.Tiers, "compiles", lambda *rest: True)
    patch.setattr(tiers, "PRICE", 1 << 30 if mode == "operator by operator" else 0)
