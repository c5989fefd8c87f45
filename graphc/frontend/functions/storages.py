"""torch.UntypedStorage: the bytes under a tensor, mostly to ask who shares them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..storage import Storage, address
from ..tensor import Tensor, concrete


class UntypedStorage:
    """The memory of a tensor as bytes, shared with it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def _bytes(self) -> np.ndarray:
        return self._storage.root.flat().view(np.uint8)

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return address(self._storage.root.flat())

    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self._storage.root.flat().nbytes)

    size = nbytes

    def __len__(self) -> int:
        return self.nbytes()

    def __getitem__(self, index: int) -> int:
        return int(self._bytes()[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        found: list[int] = self._bytes().tolist()
        return found

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage of size {self.nbytes()}]"


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory under the tensor."""
    concrete(self, "untyped_storage()", "ask for it outside the compiled function")
    return UntypedStorage(self._storage)
