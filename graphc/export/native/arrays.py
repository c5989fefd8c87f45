"""Anybody's arrays as NumPy's, in place: inputs to be read, outputs to be written."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.export.native.functions import Port
from graphc.export.signature import refuse, type_text
from graphc.frontend.tensor import Tensor
from graphc.ir import dlpack

_ON_HOST = frozenset({dlpack.CPU, dlpack.CUDA_HOST, dlpack.ROCM_HOST})
_DEVICES = {
    dlpack.CUDA: "a CUDA device", dlpack.CUDA_MANAGED: "CUDA's managed memory", 7: "Vulkan",
    8: "Metal", 10: "a ROCm device", 14: "a oneAPI device",
}
_VERSION = (1, 0)  # of DLPack: from it on capsules say whether they may be written


def given(value: Any, port: Port) -> np.ndarray:
    """An input's elements, row by row: its own memory, or a copy of what lies otherwise. Raises
    TypeError for what is no array, ValueError for one of another dtype, rank or device."""
    array, _ = _array(value, port)
    _check(array, port)
    if not (array.flags.c_contiguous and array.flags.aligned):
        return np.array(array, order="C")
    return array


def room(value: Any, port: Port) -> np.ndarray:
    """An output's memory, which is the value's own. Raises as `given` does, and for memory that may
    not be written, or where elements do not lie row by row."""
    array, writable = _array(value, port)
    if isinstance(value, Tensor):  # whoever reads it then knows that others write its memory
        value._graphc_storage.expose()
    _check(array, port)
    if not writable or not array.flags.writeable:
        raise ValueError(f"{port.name} may not be written, or does not say that it may. Cure: "
                         "numpy.empty(shape, dtype)")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"{port.name} has the strides {array.strides} in bytes, and results are "
                         "written row by row. Cure: numpy.empty(shape, dtype)")
    return array


def _array(value: Any, port: Port) -> tuple[np.ndarray, bool]:
    """A value's memory as an array, and whether its owner lets it be written."""
    if isinstance(value, Tensor):
        refuse([value])
        found = value._graphc_array
        if not isinstance(found, np.ndarray):
            raise ValueError(f"{port.name} is on {value.device}, and the code runs on the CPU. "
                             "Cure: x.cpu()")
        return found, True
    if isinstance(value, np.ndarray):
        return np.asarray(value), True
    if hasattr(value, "__dlpack__"):
        return _lent(value, port)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value), False  # maybe a copy
    raise TypeError(f"{port.name} must be an array or a tensor, got a {type(value).__name__}. "
                    f"Cure: numpy.asarray(x, {port.dtype.numpy.name!r})")


def _lent(value: Any, port: Port) -> tuple[np.ndarray, bool]:
    kind, index = map(int, value.__dlpack_device__())
    if kind not in _ON_HOST:
        where = _DEVICES.get(kind, f"a device of DLPack's kind {kind}")
        raise ValueError(f"{port.name} is on {where} (number {index}), and the code runs on the "
                         "CPU. Cure: a copy on the CPU")
    try:
        try:
            capsule = value.__dlpack__(max_version=_VERSION)
        except TypeError:  # of a library that knows no versions
            capsule = value.__dlpack__()
        found = dlpack.borrow(capsule)
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"{port.name} cannot be shared: {error}") from None
    return dlpack.array(found), found.writable


def _check(array: np.ndarray, port: Port) -> None:
    if array.dtype != port.dtype.numpy or array.ndim != len(port.shape):
        cast = "" if array.dtype == port.dtype.numpy else f". Cure: convert it to {port.dtype}"
        raise ValueError(f"{port.name} must be {port}, got {type_text(array)}{cast}")
