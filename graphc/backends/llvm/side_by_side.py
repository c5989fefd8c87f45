"""Jobs that mostly run LLVM's code generator, which leaves the GIL to others, on several cores."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from graphc.backends.host import cpus

T = TypeVar("T")
MOST = 8  # threads
# several files are read for it, which takes longer than to start a thread
_at_hand = functools.cache(cpus.available)


def side_by_side(jobs: Sequence[Callable[[], T]], most: int = MOST) -> list[T]:
    """Their results, in order. What one of them raises is raised once those that have begun are
    over; of several, the first in order. `most`: threads, this one among them."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    waiting = iter(range(len(jobs)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = None if errors else next(waiting, None)
            if number is None:
                return
            try:
                results[number] = jobs[number]()
            except BaseException as error:
                errors[number] = error

    others = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(len(jobs), most, _at_hand(), MOST) - 1)
    ]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(jobs))]
