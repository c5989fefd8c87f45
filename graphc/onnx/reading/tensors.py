"""TensorProtos as NumPy arrays: sizes are checked against what is there before anything is made."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .errors import refuse

# of TensorProto.DataType: NumPy's dtype, and the field that has elements without raw_data
KINDS: dict[int, tuple[str, Any, str]] = {
    1: ("FLOAT", np.float32, "float_data"), 2: ("UINT8", np.uint8, "int32_data"),
    3: ("INT8", np.int8, "int32_data"), 4: ("UINT16", np.uint16, "int32_data"),
    5: ("INT16", np.int16, "int32_data"), 6: ("INT32", np.int32, "int32_data"),
    7: ("INT64", np.int64, "int64_data"), 9: ("BOOL", np.bool_, "int32_data"),
    10: ("FLOAT16", np.float16, "int32_data"), 11: ("DOUBLE", np.float64, "double_data"),
    12: ("UINT32", np.uint32, "uint64_data"), 13: ("UINT64", np.uint64, "uint64_data"),
    14: ("COMPLEX64", np.complex64, "float_data"), 15: ("COMPLEX128", np.complex128, "double_data"),
    16: ("BFLOAT16", ml_dtypes.bfloat16, "int32_data"),
    17: ("FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn, "int32_data"),
    18: ("FLOAT8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz, "int32_data"),
    19: ("FLOAT8E5M2", ml_dtypes.float8_e5m2, "int32_data"),
    20: ("FLOAT8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz, "int32_data"),
    21: ("UINT4", ml_dtypes.uint4, "int32_data"), 22: ("INT4", ml_dtypes.int4, "int32_data"),
    23: ("FLOAT4E2M1", ml_dtypes.float4_e2m1fn, "int32_data"),
    24: ("FLOAT8E8M0", ml_dtypes.float8_e8m0fnu, "int32_data"),
    25: ("UINT2", ml_dtypes.uint2, "int32_data"), 26: ("INT2", ml_dtypes.int2, "int32_data"),
}
_PACKED = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}  # bits of elements that share bytes, the first lowest
_AS_BITS = frozenset({10, 16, 17, 18, 19, 20, 24})  # floats in a field of integers
# elements that tensors here do not have, for messages
_OTHERS = {0: "UNDEFINED", 8: "STRING"}
MOST_RANK = 64  # NumPy's
_EXTERNAL, _DEFAULT = 1, 0  # TensorProto.DataLocation


def kind_of(data_type: int, where: str) -> np.dtype:
    """NumPy's dtype of a TensorProto.DataType. Raises OnnxError for those without tensors here."""
    if data_type in KINDS:
        return np.dtype(KINDS[data_type][1])
    name = _OTHERS.get(data_type, f"number {data_type}")
    return refuse(
        f"{where} has elements of type {name}, which graphc's tensors do not have",
        "convert the model to float32, float16, bfloat16 or 8-bit integers",
    )


def array_of(proto: Any, where: str, folder: Path | None) -> np.ndarray:
    """The elements, of at most as many bytes as the file (or the file beside it) has.

    `folder`: the model's own, in which external data may be; None for a model without one.
    """
    kind = kind_of(proto.data_type, where)
    dims = tuple(proto.dims)
    if len(dims) > MOST_RANK or any(size < 0 for size in dims):
        refuse(f"{where} has the shape {list(dims[:9])}", "the file is damaged; load another copy")
    count = math.prod(dims)
    bits = _PACKED.get(proto.data_type)
    if bits is not None:
        return _packed(proto, where, folder, kind, bits).reshape(dims)
    if proto.data_location == _EXTERNAL:
        data = _external(proto, where, folder, count * kind.itemsize)
        return np.frombuffer(data, kind.newbyteorder("<")).astype(kind).reshape(dims)
    if proto.HasField("raw_data"):
        have = len(proto.raw_data)
        if have != count * kind.itemsize:
            _mismatch(where, dims, kind, f"{have} bytes")
        return np.frombuffer(proto.raw_data, kind.newbyteorder("<")).astype(kind).reshape(dims)
    return _elements(proto, where, kind, dims, count)


def _elements(
    proto: Any, where: str, kind: np.dtype, dims: tuple[int, ...], count: int
) -> np.ndarray:
    """From the typed fields: one number an element, two for complex ones, bits for halves."""
    field = KINDS[proto.data_type][2]
    found = getattr(proto, field)
    if len(found) != count * (2 if kind.kind == "c" else 1):
        _mismatch(where, dims, kind, f"{len(found)} numbers in {field}")
    if kind.kind == "c":
        parts = np.array(found, np.float32 if kind.itemsize == 8 else np.float64)
        return parts.view(kind).reshape(dims)
    if proto.data_type in _AS_BITS:
        bits = np.array(found, np.int64).astype(np.uint16 if kind.itemsize == 2 else np.uint8)
        return bits.view(kind).reshape(dims)
    wide = np.array(found, np.uint64 if field == "uint64_data" else None)
    return wide.astype(kind).reshape(dims)


def _packed(
    proto: Any, where: str, folder: Path | None, kind: np.dtype, bits: int
) -> np.ndarray:
    """Elements of less than a byte."""
    count = math.prod(proto.dims)
    size = -(-count * bits // 8)
    if proto.data_location == _EXTERNAL:
        data = np.frombuffer(_external(proto, where, folder, size), np.uint8)
    elif proto.HasField("raw_data"):
        data = np.frombuffer(proto.raw_data, np.uint8)
    else:
        data = np.array(proto.int32_data, np.int64).astype(np.uint8)
    if data.size != size:
        _mismatch(where, tuple(proto.dims), kind, f"{data.size} bytes")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found = ((data[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if kind in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.int2)):
        half = 1 << bits - 1
        return ((found ^ half).astype(np.int8) - half).astype(kind)
    if kind == ml_dtypes.float4_e2m1fn:
        return found.view(kind)
    return found.astype(kind)


def _mismatch(where: str, dims: tuple[int, ...], kind: np.dtype, have: str) -> None:
    refuse(
        f"{where} is {kind}{list(dims)}, which is {math.prod(dims)} elements, but has {have}",
        "the file is damaged; load another copy",
    )


def _external(proto: Any, where: str, folder: Path | None, size: int) -> bytes:
    """The bytes of a tensor whose data lies in a file of the model's own folder."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    name = entries.get("location", "")
    if folder is None:
        refuse(
            f"{where} has its data in the file {name!r}, and a model of bytes has no folder",
            "load it by its path",
        )
    path = _inside(name, where, folder)
    offset = _whole(entries.get("offset", "0"), where)
    length = _whole(entries.get("length", str(size)), where)
    if length != size:
        refuse(
            f"{where} has {length} bytes of external data, and its shape wants {size}",
            "the file is damaged; load another copy",
        )
    # no link is followed, and what is opened is what was looked at
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        refuse(f"{where}: {name!r} cannot be opened ({error})", "put it beside the model")
    status = os.fstat(handle)
    have = status.st_size
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        refuse(f"{where}: {name!r} is no file", "put its data beside the model")
    with os.fdopen(handle, "rb") as file:
        if offset + size > have:
            refuse(
                f"{where} wants the bytes {offset} to {offset + size} of {name!r}, which has "
                f"{have}",
                "the file is damaged; load another copy",
            )
        file.seek(offset)
        data = file.read(size)
    if len(data) != size:
        refuse(f"{name!r} ends early", "load another copy")
    return data


def _inside(name: str, where: str, folder: Path) -> Path:
    """A file below the folder, on the way to which there is no link."""
    parts = name.replace("\\", "/").split("/")
    while parts and parts[0] == ".":
        parts = parts[1:]
    if not parts or any(part in ("", "..", ".") for part in parts) or ":" in name or "\0" in name:
        refuse(
            f"{where} has its data in {name!r}, which is no path below the model's own folder",
            "put the data beside the model, and name it without directories above",
        )
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            refuse(
                f"{where} has its data in {name!r}, and {path.name!r} is a link",
                "copy the file to the model's own folder",
            )
    return path


def _whole(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        refuse(
            f"{where}: {text!r} is no offset or length", "the file is damaged; load another copy"
        )
    return int(text)
