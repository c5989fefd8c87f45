"""All that a function can reach as it is now, to be put back: what "on copies" means.

The objects themselves stay the ones they are, so that whatever holds or names them (closures,
globals, weak references, `is`) sees the same state in each run.
"""

from __future__ import annotations

from typing import Any

from ..frontend import state_version
from ..frontend.grad_mode import grad_mode, set_grad_mode
from ..frontend.promote import Defaults
from .reach import Rule
from .walk import Roots, walk

_QUIET = frozenset("_thread.lock _thread.RLock _thread._localdummy builtins.mappingproxy".split())


class Snapshot:
    """The state of everything that `roots` reach."""

    def __init__(self, roots: Roots) -> None:
        self.known: dict[int, str] = {}  # where each object was found, by id
        self._kept: list[tuple[Any, Rule, Any]] = []
        self._moving: list[tuple[Any, Rule, Any, str]] = []
        self.uncopied: list[str] = []  # of which nothing tells whether it has moved
        for visit in walk(roots, inner=True):
            path, value, rule = visit[:3]
            if rule is None or visit.again >= 0:
                continue
            self.known[id(value)] = path
            if rule.moved is None:
                # kept even without a state, so that its id stays taken
                self._kept.append((value, rule, rule.save and rule.save(value)))
                continue
            position = rule.moved(value)
            self._moving.append((value, rule, position, path))
            name = f"{type(value).__module__}.{type(value).__qualname__}"
            if position is None and name not in _QUIET:
                self.uncopied.append(f"{path} ({name})")
        self._modes = grad_mode(), Defaults.dtype

    def restore(self) -> None:
        """Put everything back, but for what `moved` names."""
        for value, rule, state in self._kept:
            if rule.save is not None:
                rule.restore(value, state)
        mode, Defaults.dtype = self._modes
        set_grad_mode(*mode)
        state_version.bump()

    def moved(self) -> str:
        """What is no longer where it was and cannot be put back: "the generator stream"; "" if
        nothing is."""
        for value, rule, position, path in self._moving:
            if rule.moved is not None and rule.moved(value) != position:
                return f"the {type(value).__name__} {path}"
        return ""
