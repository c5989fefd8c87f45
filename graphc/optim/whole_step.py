"""When an optimizer's step, outside of any trace, is made as native code (engine/update/).

Counted, as which segments are compiled: compiling waits until eager steps have cost more than it
does. Nothing here looks at a clock.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import Any

from .. import config
from ..frontend.plain import is_unwatched
from .optimizer import with_grad

# what is counted: operators on small tensors that take as long as compiling the first update of a
# process, and one of those after it
FIRST, LATER = 40_000, 8_000
OPERATORS = 12  # of a parameter's update
NUMBERS = 1 << 14  # numbers that an operator moves in the time that calling it takes
SOON = 4  # steps in which an optimizer's would be compiled anyway, so that the first one is
_COMPILER = "graphc.engine.stages"
_WAIT = 64  # steps after which a step that could not be made so is tried again; doubles


class Waits:
    """How long an optimizer's steps are eager."""

    __slots__ = ("left", "wait", "work")

    def __init__(self) -> None:
        self.work = 0
        self.left = 0
        self.wait = 1

    def refuse(self) -> None:
        """A step could not be made as native code: the next ones are not tried."""
        self.left = self.wait
        self.wait = min(2 * self.wait, _WAIT)


_known: dict[int, tuple[weakref.ref[Any], Waits]] = {}


def whole_step(optimizer: Any, counts: tuple[str, ...]) -> bool:
    """Make a step as native code. False: nothing has happened, the caller makes it. `counts`: the
    states without dimensions, whose numbers Python works with."""
    switches = config.current()
    mode = switches.steps
    if mode == "0" or switches.check >= 3 or not is_unwatched():
        return False
    waits = _waits(optimizer)
    if waits.left:
        waits.left -= 1
        return False
    if mode == "auto" and waits.work < _price():
        first, work = waits.work == 0, _work(optimizer)
        waits.work += work
        if not (first and SOON * work >= _price() and _made_states(optimizer)):
            return False
        waits.work += _price()
    if waits.work == 0:  # the first step makes state
        waits.work = 1
        return False
    done: bool = importlib.import_module("graphc.engine.update.steps").step(optimizer, counts)
    if done:
        waits.wait = 1
    else:
        waits.refuse()
    return done


def _made_states(optimizer: Any) -> bool:
    """Make the states of a first step: on large parameters, operators one by one would need the
    memory of several for what is between them. False: it is not known how."""
    if optimizer._graphc_state is None:
        return False
    for group in optimizer.param_groups:
        for param, _ in with_grad(group):
            optimizer._graphc_state(group, param)
    return True


def _waits(optimizer: Any) -> Waits:
    number = id(optimizer)
    found = _known.get(number)
    if found is None:
        reference = weakref.ref(optimizer, lambda _: _known.pop(number, None))
        found = _known[number] = reference, Waits()
    return found[1]


def _price() -> int:
    return LATER if _COMPILER in sys.modules else FIRST


def _work(optimizer: Any) -> int:
    """What an eager step costs, in operators on small tensors."""
    total = 0
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                total += OPERATORS * (1 + param.numel() // NUMBERS)
    return total
