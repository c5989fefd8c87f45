"""In which order the threads of a block run. A right kernel computes the same under all of them."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from typing import Literal

Direction = Literal["ascending", "descending", "shuffled"]
_DIRECTIONS: tuple[Direction, ...] = ("ascending", "descending", "shuffled")


class ScheduleWords(ctypes.Structure):
    """As state.h has it."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("ahead", "direction", "seed", "early", "watch")),
        ("accesses", ctypes.c_longlong),
        ("block", ctypes.c_longlong),
    ]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Threads run one at a time, each until it waits for others.

    `ahead`: one warp runs until it waits for the block, then the next; else all warps in step.
    `early`: asynchronous copies land at once; else as late as the waits allow. `watch`: besides,
    every access is held against those of other threads (races), and bank conflicts are counted.
    A launch of more accesses than `accesses` is one that does not end. `block`: the only one of
    the grid that runs, by its number; -1 for all.
    """

    ahead: bool = False
    direction: Direction = "ascending"
    early: bool = False
    watch: bool = False
    seed: int = 0
    accesses: int = 1 << 30
    block: int = -1

    def words(self) -> ScheduleWords:
        """For the runtime."""
        direction = _DIRECTIONS.index(self.direction)
        return ScheduleWords(
            self.ahead, direction, self.seed, self.early, self.watch, self.accesses, self.block
        )

    def __str__(self) -> str:
        warps = "one warp ahead" if self.ahead else "in step"
        watched = ", watched" if self.watch else ""
        return f"{warps}, {self.direction}, copies {'early' if self.early else 'late'}{watched}"


_ORDERS: tuple[tuple[bool, Direction], ...] = (
    (False, "ascending"), (False, "descending"), (False, "shuffled"),
    (True, "ascending"), (True, "descending"),
)
ALL = tuple(
    Schedule(ahead, direction, early)
    for (ahead, direction), early in itertools.product(_ORDERS, (False, True))
)
