"""Which optimizers have made a step: what schedules warn by, and nobody else reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet


class Stepped:
    """A set of optimizers that does not keep them; its writes are no effects of a trace."""

    def __init__(self) -> None:
        self._members: WeakSet[Any] = WeakSet()

    def add(self, optimizer: Any) -> None:
        """Note a step."""
        self._members.add(optimizer)

    @contextmanager
    def all_of(self, optimizers: list[Any]) -> Iterator[None]:
        """Inside, these count as having made a step."""
        new = [optimizer for optimizer in optimizers if optimizer not in self._members]
        self._members.update(new)
        try:
            yield
        finally:
            self._members.difference_update(new)

    def __contains__(self, optimizer: Any) -> bool:
        return optimizer in self._members


stepped = Stepped()
