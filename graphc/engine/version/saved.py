"""What a compiled call saves for its backward, and writes to memory that this lies in."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...frontend.folded import FoldedNode


class SavingNode(FoldedNode):
    """A folded node with saved values, some of which are memory that the user can write to."""

    saved: list[np.ndarray] | None
    stamps: dict[int, tuple[Any, int]]  # by place in `saved`: the storage and the version then

    def reads(self, place: int) -> bool:
        """Whether the rules of eager mode read the value saved at a place, too."""
        raise NotImplementedError

    def watch(self, places: Mapping[int, Any]) -> None:
        """Note which saved values lie in memory that the user is handed: in which storages."""
        reference = weakref.ref(self)
        for place, storage in places.items():
            self.stamps[place] = storage, storage.version
            storage.readers = [*(storage.readers or ()), reference]

    def keep(self, storage: Any) -> None:
        """`storage` is about to be written to. What eager mode would not read there is copied:
        only the compiled backward computes it again from there."""
        for place, (watched, version) in list(self.stamps.items()):
            if watched is storage and version == storage.version and not self.reads(place):
                self._copy(place)

    def keep_former(self, storage: Any) -> None:
        for place, (watched, version) in list(self.stamps.items()):
            if watched is storage and version == storage.version:
                self._copy(place)

    def _copy(self, place: int) -> None:
        if self.saved is not None:
            self.saved[place] = self.saved[place].copy()
            del self.stamps[place]
