"""What a compiled call saves for its backward, and writes to memory that this lies in.

Eager mode saves what its rules read. A compiled backward reads that, too, and sees what is written
there without autograd's knowledge (`.data`), as torch does; but it also computes again, from
inputs, what eager mode saves, and there such a write must not be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...frontend.folded import FoldedNode
from ...frontend.storage import reads_later, reads_no_more


class SavingNode(FoldedNode):
    """A folded node with saved values, some of which are memory that the user can write to."""

    saved: list[np.ndarray] | None
    stamps: dict[int, tuple[Any, int]]  # by place in `saved`: the storage and the version then

    def __init__(self, edges: Any, types: Any) -> None:
        super().__init__(edges, types)
        reads_later(self)

    def release(self) -> None:
        self.saved = None
        self.stamps = {}
        reads_no_more(self)

    def reads(self, place: int) -> bool:
        """Whether the rules of eager mode read the value saved at a place, too."""
        raise NotImplementedError

    def computes_from(self, place: int) -> bool:
        """Whether what eager mode saves may be computed again from the value at a place."""
        raise NotImplementedError

    def watch(self, places: Mapping[int, Any]) -> None:
        """Note which saved values lie in memory that the user is handed: in which storages."""
        for place, storage in places.items():
            self.stamps[place] = storage, storage.version

    def keep(self, storage: Any, tracked: bool) -> None:
        """`storage` is about to be written to. What eager mode would not read there is copied.
        What it reads, and autograd will not miss, is left where nothing else comes from it."""
        root = storage.root
        for place, (watched, version) in list(self.stamps.items()):
            if watched.root is not root or version != watched.version:
                continue
            if not self.reads(place):
                self._copy(place)
            elif not (tracked and watched is storage) and self.computes_from(place):
                self.unfold()
                return

    def keep_former(self, storage: Any) -> None:
        for place, (watched, version) in list(self.stamps.items()):
            if watched is storage and version == storage.version:
                self._copy(place)

    def _copy(self, place: int) -> None:
        if self.saved is not None:
            self.saved[place] = self.saved[place].copy()
            del self.stamps[place]
            self.copied(place, self.saved[place])

    def copied(self, place: int, array: np.ndarray) -> None:
        """The value at a place is a copy now."""
        raise NotImplementedError
