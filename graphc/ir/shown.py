"""What notebooks show of the IR: graphc says how (graphc/inspect/), which is not seen from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Shown:
    """`svg`: of a Graph; `html`: of a Kernel or a Program. None: its text is shown, as by print."""

    svg: Callable[[Any], str | None] = staticmethod(lambda thing: None)
    html: Callable[[Any], str | None] = staticmethod(lambda thing: None)
