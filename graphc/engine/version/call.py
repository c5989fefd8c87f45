"""One call of a version: what it was given, and what was fetched for it."""

from __future__ import annotations

from typing import Any

import numpy as np


class Call:
    """A call on its way: guards are asked of it, native code runs on it, results are made of it."""

    __slots__ = (
        "arguments", "arrays", "before", "dims", "given", "graded", "history", "numbers",
        "results", "said", "sources",
    )

    def __init__(self, arguments: list[Any], given: Any) -> None:
        """`given`: (args, kwargs), whose leaves the arguments are."""
        self.arguments, self.given = arguments, given
        self.arrays: list[np.ndarray] = []  # of the inputs
        # copies of inputs that it overwrites and a backward reads (shortcut.py)
        self.before: dict[int, np.ndarray] = {}
        self.dims: dict[str, int] = {}  # their values
        self.sources: dict[Any, Any] = {}  # the lifted numbers now
        self.numbers: list[tuple[int, np.ndarray]] = []  # as inputs, by their number
        # numbers and texts for Python, by the id of their expression
        self.said: dict[int, Any] = {}
        self.results: list[np.ndarray] = []  # of the native code
        self.graded = False  # gradients are where they belong (shortcut.py)
        self.history: Any = None  # of the results; None: they have none
