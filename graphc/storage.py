"""torch.storage: what holds a tensor's memory, and how plain pickles of tensors name it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .frontend.device import device as _device
from .frontend.errors import located
from .frontend.functions.dtype_names import TYPE_STRINGS
from .frontend.functions.storages import UntypedStorage as UntypedStorage
from .frontend.promote import get_default_dtype
from .frontend.storage import Storage
from .frontend.tensor import Tensor, from_array
from .ir.dtypes import DType
from .serialization import load


def _load_from_bytes(b: bytes) -> Any:
    """A storage in a plain pickle; what reads the pickle runs what it names already."""
    return load(io.BytesIO(b), weights_only=False)


_MESSAGE = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the "
    "only storage class. To access UntypedStorage directly, use tensor.untyped_storage() instead "
    "of tensor.storage()"
)


class _Warned:
    already = False


def _warn(depth: int) -> None:
    """Once in a process."""
    if not _Warned.already:
        _Warned.already = True
        warnings.warn(_MESSAGE, UserWarning, stacklevel=depth + 1)


class TypedStorage:
    """A tensor's memory as elements of one dtype, shared with it: deprecated in torch, read and
    written by programs of old. Made of a size, a sequence of numbers, or `wrap_storage=` and
    `dtype=`."""

    dtype: DType
    _of_class: DType | None = None

    def __init__(
        self, *args: Any, wrap_storage: UntypedStorage | None = None, dtype: DType | None = None,
        device: Any = None, _internal: bool = False,
    ) -> None:
        if not _internal:
            _warn(2)
        self.dtype = dtype or self._of_class or get_default_dtype()
        if wrap_storage is not None:
            self._untyped = wrap_storage
            return
        if len(args) > 1:
            raise RuntimeError(located(
                f"{type(self).__name__}() takes a size or a sequence, not {len(args)} arguments"
            ))
        given = args[0] if args else 0
        array = np.zeros(given, self.dtype.numpy) if isinstance(given, int) else np.array(
            [_plain(number) for number in given], self.dtype.numpy
        )
        self._untyped = UntypedStorage(Storage(array))

    def _elements(self) -> Tensor:
        """The elements as a flat tensor that shares them."""
        return from_array(self._untyped._graphc_storage.root.flat(self.dtype.numpy))

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped

    @property
    def device(self) -> _device:
        """Where the memory is."""
        return self._untyped.device

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU's."""
        return self._untyped.is_cuda

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.bits // 8 or 1

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.element_size()

    __len__ = size

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        found: list[Any] = self._elements().tolist()
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        found = self._elements()[index]
        if not isinstance(index, slice):
            return found.item()
        raise RuntimeError(located(
            "slices are only supported in UntypedStorage.__getitem__"
        ))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Write one number into every element."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Write another storage's elements, of as many."""
        self._elements().copy_(source._elements())
        return self

    def _to(self, dtype: DType) -> TypedStorage:
        array = self._elements().to(dtype).clone()
        return TypedStorage(wrap_storage=array.untyped_storage(), dtype=dtype, _internal=True)

    def clone(self) -> TypedStorage:
        """A copy."""
        return self._to(self.dtype)

    def float(self) -> TypedStorage:
        """A copy as float32."""
        return self._to(TYPE_STRINGS["FloatTensor"])

    def double(self) -> TypedStorage:
        """A copy as float64."""
        return self._to(TYPE_STRINGS["DoubleTensor"])

    def long(self) -> TypedStorage:
        """A copy as int64."""
        return self._to(TYPE_STRINGS["LongTensor"])

    def share_memory_(self) -> TypedStorage:
        """Move the memory to where processes share it; tensors on it follow."""
        self._untyped.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether other processes can see the memory."""
        return self._untyped.is_shared()

    def __repr__(self) -> str:
        lines = "".join(f" {number}\n" for number in self.tolist())
        return (
            f"{lines}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size "
            f"{self.size()}]"
        )


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, Tensor) else number


class _StorageType(type(TypedStorage)):  # type: ignore[misc]
    """The type of torch.FloatStorage: isinstance() asks for the dtype, and calls make a storage."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(TypedStorage, instance) and (
            cls._of_class in (None, instance.dtype)
        )


TYPES: dict[str, Any] = {
    name.replace("Tensor", "Storage"): _StorageType(
        name.replace("Tensor", "Storage"), (TypedStorage,),
        {"_of_class": dtype, "__module__": "torch"},
    )
    for name, dtype in TYPE_STRINGS.items()
}
globals().update(TYPES)


def is_storage(obj: Any) -> bool:
    """Whether it is what a tensor's storage() or untyped_storage() gives."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def storage(self: Tensor) -> TypedStorage:
    """The memory under the tensor as elements of its dtype. Deprecated: untyped_storage()."""
    _warn(3)
    return TypedStorage(
        wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True
    )
