"""torch.UntypedStorage: the bytes under a tensor, mostly to ask who shares them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir.memory import on_host

from ..device import device
from ..placement import device_of, place_of
from ..shared_memory import is_shared as is_shared
from ..shared_memory import share, share_tensors
from ..storage import Storage, address
from ..tensor import Tensor, from_array, held


class UntypedStorage:
    """The memory of a tensor as bytes, shared with it."""

    def __init__(self, storage: Storage) -> None:
        self._graphc_storage = storage

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """The first `nbytes` bytes of a file, mapped into memory.

        shared: writes go to the file, which grows to `nbytes`; otherwise they stay in the process.
        """
        if shared:
            with open(filename, "ab") as file:
                if file.tell() < nbytes:
                    file.truncate(nbytes)
        if nbytes == 0:
            return cls(Storage(np.zeros(0, np.uint8)))
        mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        return cls(Storage(np.asarray(mapped)))

    def _bytes(self) -> np.ndarray:
        return self._graphc_storage.root.flat().view(np.uint8)

    @property
    def device(self) -> device:
        """Where the memory is."""
        return device_of(self._graphc_storage.array)

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU's."""
        return self.device.type == "cuda"

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """A copy on a GPU, or the storage itself where it is there. Raises RuntimeError where there
        is none."""
        place = place_of("cuda" if device is None else device)
        assert place is not None
        if self.device == place.device:
            return self
        return UntypedStorage(Storage(place.put(on_host(self._bytes()))))

    def cpu(self) -> UntypedStorage:
        """A copy on the CPU, or the storage itself where it is there."""
        if self.device.type == "cpu":
            return self
        return UntypedStorage(Storage(on_host(self._bytes()).copy()))

    def share_memory_(self) -> UntypedStorage:
        """Move the memory to where processes share it; tensors on it follow."""
        share([self._graphc_storage])
        return self

    def is_shared(self) -> bool:
        """Whether other processes can see the memory."""
        return self._graphc_storage.root.segment is not None

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return address(self._graphc_storage.root.flat())

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self._graphc_storage.root.flat().nbytes)

    size = nbytes

    def __len__(self) -> int:
        return self.nbytes()

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return int(on_host(self._bytes())[index])
        if index.step not in (None, 1):
            raise RuntimeError(
                f"Trying to slice with a step of {index.step}, but only a step of 1 is supported"
            )
        return UntypedStorage(Storage(self._bytes()[index]))

    def untyped(self) -> UntypedStorage:
        """The storage itself."""
        return self

    def as_tensor(self) -> Tensor:
        """The bytes as a uint8 tensor that shares them."""
        return from_array(self._bytes())

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        found: list[int] = on_host(self._bytes()).tolist()
        return found

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage of size {self.nbytes()}]"


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory under the tensor."""
    held(self, "untyped_storage()", "ask for it outside the compiled function")
    return UntypedStorage(self._graphc_storage)


def share_memory_(self: Tensor) -> Tensor:
    """Move the memory to where processes share it; views and other aliases follow.

    NumPy arrays on the memory stay with the old values, as in torch.
    """
    share_tensors([self])
    return self
