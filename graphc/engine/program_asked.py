"""When what a replayed function comes to becomes a program of native code (eager_program.py): once
it has been asked for so often that loading it pays, a call counting for its operators, or for its
time: a function of sixty asks after some dozens of calls. Nothing is loaded before."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..frontend.tensor import Tensor
from .eager_rows import native

Run = Callable[[list[Tensor]], list[Tensor]]
_OPERATOR = 2000  # nanoseconds, about, of one operator of few numbers
_MOST_CALLS = 1000  # that a call counts for
_TIMED = 8  # calls: others may have interrupted some


def program(
    codes: Sequence[Any], results: Sequence[int], ready: Run, install: Callable[..., None]
) -> Run:
    """See Eager.program."""
    work = sum(view is None for _, view, _, _ in codes)
    timed, least = 0, _MOST_CALLS

    def waiting(tensors: list[Tensor]) -> list[Tensor]:
        nonlocal timed, least
        if timed < _TIMED:
            begin = time.perf_counter_ns()
            found = ready(tensors)
            took = (time.perf_counter_ns() - begin) // _OPERATOR
            timed, least = timed + 1, min(least, max(work, took))
        else:
            found = ready(tensors)
        code = native.program(least)
        if code is not None:
            begun = importlib.import_module(".eager_program", __package__).begun
            begun(code, codes, results, ready, install, tensors)
        return found

    return waiting
