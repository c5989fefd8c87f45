"""The file format of PyTorch before 1.6: pickles one after another, then the storages.

    magic number, protocol version, system's sizes: one pickle each
    the object: tensors name their storage by a persistent id
    the list of the storages' keys
    for each key: the number of elements (int64), its raw elements
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np

from .frontend.storage import Storage
from .ir.dtypes import DType
from .ir.memory import on_host
from .unpickle import Reader, UnpicklingError

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
FIRST_BYTES = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."

Place = tuple[Storage, DType]
# (file, resolver of persistent ids) -> the object in the next pickle
Unpickle = Callable[[IO[bytes], Callable[[Any], Any]], Any]


def is_legacy(file: IO[bytes]) -> bool:
    """Whether the file begins with the magic number; it is left where it was."""
    at = file.tell()
    begin = file.read(len(FIRST_BYTES))
    file.seek(at)
    return begin == FIRST_BYTES


def write(file: IO[bytes], pickled: bytes, storages: Iterable[tuple[str, Storage, DType]]) -> None:
    """Write an object that is pickled already, with the storages that it names."""
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {"protocol_version": _VERSION, "little_endian": True, "type_sizes": sizes}
    for plain in (_MAGIC, _VERSION, system):
        pickle.dump(plain, file, 2)
    file.write(pickled)
    found = sorted(storages, key=lambda each: each[0])
    pickle.dump([key for key, _, _ in found], file, 2)
    for _, storage, dtype in found:
        flat = on_host(storage.flat(dtype.numpy))
        file.write(struct.pack("<q", flat.size))
        if sys.byteorder == "big":
            flat = flat.byteswap()
        file.write(flat.view(np.uint8).data)


class Legacy:
    """One file; `loaded` makes what a persistent id resolves to, `locate` checks a location."""

    def __init__(
        self, file: IO[bytes], loaded: Callable[[Storage, DType], Any],
        locate: Callable[[str, Storage], None],
    ) -> None:
        self.file, self.loaded, self.locate = file, loaded, locate
        self.storages: dict[str, Place] = {}
        at = file.tell()
        self.limit = file.seek(0, 2)
        file.seek(at)

    def read(self, unpickle: Unpickle) -> Any:
        """The object. Raises UnpicklingError for a file that is damaged."""
        if self._plain() != _MAGIC or self._plain() != _VERSION:
            raise UnpicklingError("not a file of torch.save, or of an unknown version")
        if self._plain().get("little_endian") is not True:
            raise UnpicklingError("the file was written on a big-endian machine")
        result = unpickle(self.file, self.storage)
        for key in self._plain():
            self._fill(key)
        return result

    def _plain(self) -> Any:
        return Reader({}, {}, _no_storage).load(self.file)

    def storage(self, saved_id: Any) -> Any:
        """The storage of ("storage", type, key, location, count, view); the class of ("module",
        class, file, source), which whole modules name."""
        if isinstance(saved_id, tuple) and len(saved_id) == 4 and saved_id[0] == "module":
            return saved_id[1]
        if not isinstance(saved_id, tuple) or len(saved_id) != 6 or saved_id[0] != "storage":
            raise UnpicklingError(f"unknown persistent id {saved_id!r}")
        _, dtype, key, location, count, view = saved_id
        if not isinstance(dtype, DType) or not isinstance(key, str) or type(count) is not int:
            raise UnpicklingError(f"unknown kind of storage {saved_id!r}")
        if view is not None:
            raise UnpicklingError("storages that are views of others are not read")
        if not 0 <= count * dtype.itemsize <= self.limit:
            raise UnpicklingError(f"a storage of {count} elements in a file of {self.limit} bytes")
        found = self.storages.get(key)
        if found is None:
            found = (Storage(np.zeros(count, dtype.numpy)), dtype)
            self.storages[key] = found
            self.locate(str(location), found[0])
        if found[1] is not dtype:
            raise UnpicklingError(f"storage {key} is both {found[1]} and {dtype}")
        return self.loaded(*found)

    def _fill(self, key: Any) -> None:
        if key not in self.storages:
            raise UnpicklingError(f"no object has storage {key!r}")
        storage, _ = self.storages[key]
        flat = storage.flat()
        head = self.file.read(8)
        if len(head) != 8 or struct.unpack("<q", head)[0] != flat.size:
            raise UnpicklingError(f"storage {key} has another size than its tensors")
        data = self.file.read(flat.nbytes)
        if len(data) != flat.nbytes:
            raise UnpicklingError(f"the file ends in storage {key}")
        flat.view(np.uint8)[:] = np.frombuffer(data, np.uint8)


def _no_storage(saved_id: Any) -> Any:
    raise UnpicklingError("a storage where none can be")
