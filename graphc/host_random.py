"""The random streams of Python and NumPy, which a compiled graph cannot draw from.

A number that a function draws from them is a constant in its graph: the draw has to happen at
every call. A function seen to draw therefore runs in segments, where its Python does run.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from .frontend.errors import TraceError, located


class HostStreams:
    """Where the streams were at the start of a trace."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy = _numpy_state()

    def refuse_draws(self, name: str) -> None:
        """Raise TraceError if a stream has moved since."""
        if random.getstate() != self.python:
            drawn = "Python's random module"
        elif _moved(self.numpy):
            drawn = "numpy.random's global generator"
        else:
            return
        raise TraceError(located(
            f"compiled {name}() draws from {drawn}, whose numbers would be constants of the graph. "
            "Cure: draw with graphc's generator (torch.rand, torch.randint), or pass the number in"
        ))  # fmt: skip

    def restore(self) -> None:
        """Put the streams back to where they were."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)


def _numpy_state() -> dict[str, Any] | None:
    """The global generator's state; None where nothing has loaded it."""
    module = sys.modules.get("numpy.random")
    return None if module is None else module.get_state(legacy=False)


def _moved(before: dict[str, Any] | None) -> bool:
    now = _numpy_state()
    if before is None or now is None:
        return False
    words, others = before["state"], {**before, "state": None}
    if others != {**now, "state": None} or words.keys() != now["state"].keys():
        return True
    return any(not np.array_equal(words[part], now["state"][part]) for part in words)
