"""DLPack's capsules: memory that array libraries lend each other, with its shape and its place.
dmlc.github.io/dlpack/latest/c_api.html"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

CPU, CUDA, CUDA_HOST, ROCM_HOST, EXTENSION, CUDA_MANAGED = 1, 2, 3, 11, 12, 13  # kinds of devices
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_KINDS = {
    (_BFLOAT if d is dtypes.bf16 else _BOOL if d is dtypes.bool_ else
     {"int": _INT, "uint": _UINT, "float": _FLOAT, "complex": _COMPLEX}[d.kind], d.itemsize * 8): d
    for d in (*dtypes.ALL, *dtypes.COMPLEX)
}
_CODES = {dtype: code for code, dtype in _KINDS.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )


# name of a capsule that nobody has taken: what it points to, and its name once somebody has
_LAYOUTS: dict[bytes, tuple[type[_Managed] | type[_Versioned], bytes]] = {
    b"dltensor": (_Managed, b"used_dltensor"),
    b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned"),
}
_MAJOR = 1
_READ_ONLY = 1  # of the flags that capsules with a version have
_NAME = b"dltensor"


def _api(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_lent: dict[int, tuple[Any, ...]] = {}  # what is lent stays, by the address of its description
# Capsules without a destructor of their own: it would be Python, called where the exception of
# whoever refused a capsule is pending, and would lose that.
_capsules: list[Any] = []
_OURS = 3  # references to one: the list's, the variable's, the question's


def _back(managed: int) -> None:
    _lent.pop(managed, None)


def _settle() -> None:
    """Takes back what capsules hold that nobody has any more, and that nobody took anything of."""
    for at in reversed(range(len(_capsules))):
        capsule = _capsules[at]
        if sys.getrefcount(capsule) <= _OURS:
            if _is_valid(capsule, _NAME):
                _back(_pointer(capsule, _NAME))
            del _capsules[at]


_returned = _Deleter(_back)


def lend(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType,
    device: tuple[int, int], kept: object,
) -> Any:
    """A capsule of memory at an address, which `kept` keeps as long as somebody has what was taken
    from the capsule; of one that nobody took, until the next is made. `strides`: in elements.
    Raises BufferError for a dtype that DLPack lacks."""
    _settle()
    if dtype not in _CODES:
        raise BufferError(f"DLPack has no {dtype}")
    code, bits = _CODES[dtype]
    words = ctypes.c_int64 * max(len(shape), 1)
    sizes, steps = words(*shape), words(*strides)
    managed = _Managed(
        _Tensor(address, *device, len(shape), code, bits, 1, sizes, steps, 0), None,
        ctypes.cast(_returned, ctypes.c_void_p),
    )
    where = ctypes.addressof(managed)
    _lent[where] = (managed, sizes, steps, kept)
    capsule = _new(where, _NAME, None)
    _capsules.append(capsule)
    return capsule


class Borrowed:
    """Memory of another library at `address`, which gets it back when nobody refers to this."""

    __slots__ = ("__weakref__", "_deleter", "_managed", "address")

    def __init__(self, address: int, managed: int, deleter: int | None) -> None:
        self.address, self._managed, self._deleter = address, managed, deleter

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._managed)


class Found(NamedTuple):
    """What a capsule tells. `strides`: in elements. `writable`: it says that its memory may be
    written; those without a version say nothing."""

    memory: Borrowed
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    writable: bool


def device_of(capsule: Any) -> tuple[int, int]:
    """Kind and number of the device where its memory is. Raises as `borrow` does."""
    tensor = _described(capsule)[1].tensor
    return tensor.device_type, tensor.device_id


def dtype_of(capsule: Any) -> DType | None:
    """Of its elements; None for what tensors do not have. Raises as `borrow` does."""
    tensor = _described(capsule)[1].tensor
    return _KINDS.get((tensor.code, tensor.bits))


def borrow(capsule: Any) -> Found:
    """Takes what a capsule tells; it cannot be taken twice. Raises BufferError for what is no such
    capsule, and for elements that tensors do not have."""
    name, managed, where = _described(capsule)
    tensor = managed.tensor
    dtype = _KINDS.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise BufferError(
            f"DLPack's type {tensor.code} of {tensor.bits} bits, {tensor.lanes} lanes, is no dtype"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _row_major(shape)
    writable = isinstance(managed, _Versioned) and not managed.flags & _READ_ONLY
    memory = Borrowed((tensor.data or 0) + tensor.byte_offset, where, managed.deleter)
    _rename(capsule, _LAYOUTS[name][1])
    device = tensor.device_type, tensor.device_id
    return Found(memory, device, shape, strides, dtype, writable)


class _Interface:
    """Borrowed memory as NumPy asks for arrays, which keep it."""

    def __init__(self, found: Found) -> None:
        self._kept = found.memory
        itemsize = found.dtype.itemsize
        self.__array_interface__ = {
            "version": 3, "shape": found.shape, "typestr": found.dtype.numpy.str,
            "data": (found.memory.address, False),
            "strides": tuple(step * itemsize for step in found.strides),
        }


def array(found: Found) -> np.ndarray:
    """An array on borrowed memory, which has to be the host's."""
    if 0 in found.shape:  # there may be no address
        return np.empty(found.shape, found.dtype.numpy)
    if not found.memory.address:
        raise BufferError("the capsule has elements, and no memory")
    return np.asarray(_Interface(found)).view(found.dtype.numpy)


def _described(capsule: Any) -> tuple[bytes, Any, int]:
    for name, (layout, _) in _LAYOUTS.items():
        if _is_valid(capsule, name):
            where = _pointer(capsule, name)
            found = layout.from_address(where)
            if isinstance(found, _Versioned) and found.major > _MAJOR:
                raise BufferError(f"DLPack {found.major} is newer than {_MAJOR}, which is known")
            return name, found, where
    raise BufferError(
        "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only "
        "once, so you might have already constructed a tensor from it once."
    )


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
