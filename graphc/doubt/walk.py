"""All that a function can reach: arguments, cells, globals, Modules, optimizers, random streams."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..frontend.random_state import default_generator, drawing_places, generator_at
from .reach import UNNAMED, Rule, rule_of

Roots = tuple[tuple[str, Any], ...]  # (path, object)


class Visit(NamedTuple):
    """An object that a walk meets: for the first time, or `again` (its number then).

    `holder` is what it was found in, `step` the last of its path; None and "" for a root.
    """

    path: str
    value: Any
    rule: Rule | None
    again: int
    holder: Any
    step: str


def streams() -> Roots:
    """The random streams that code reaches without naming an object."""
    return (
        ("torch's default generator", default_generator),
        *((f"torch's default generator of {place.device}", generator_at(place))
          for place in drawing_places()),
        ("the random module", random._inst),
        ("numpy.random", np.random.mtrand._rand),
    )


def walk(roots: Roots, inner: bool) -> Iterator[Visit]:
    """All that the roots hold, in one order; `inner`: with what nobody sees."""
    met: dict[int, int] = {}
    kept: list[Any] = []  # ids are names only as long as their objects live
    stack = [(path, value, None, "") for path, value in reversed(roots)]
    while stack:
        path, value, holder, step = stack.pop()
        rule = rule_of(value)
        named = rule is not None and not issubclass(type(value), UNNAMED)
        number = met.get(id(value), -1) if named else -1
        yield Visit(path, value, rule, number, holder, step)
        if rule is None or number >= 0:
            continue
        met[id(value)] = len(kept)
        kept.append(value)
        parts = [*rule.parts(value), *(rule.inner(value) if inner else ())]
        stack += reversed([(_join(path, step), part, value, step) for step, part in parts])


def _join(path: str, step: str) -> str:
    return step[1:] if step.startswith("|") else _MODULE_PART.sub(r".\2", path + step)


_MODULE_PART = re.compile(r"\._(parameters|buffers|modules)\['(\w+)'\]$")
