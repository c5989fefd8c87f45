"""The safetensors file format: an 8-byte header length, a JSON header, raw little-endian data.

Source: the format's published description. Reading checks every length and offset before it
touches the data, so a truncated or corrupt file is an error and nothing else.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping

import numpy as np

from ..ir import dtypes

_NAMES = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64",
    "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "c64": "C64",
}
_DTYPES = {spelling: dtypes.by_name(name) for name, spelling in _NAMES.items()}
_MAX_HEADER = 100_000_000


class SafetensorsError(ValueError):
    """The bytes are not a safetensors file."""


def holds(arrays: Iterable[np.ndarray]) -> bool:
    """Whether the format has a word for the dtype of each array."""
    return all(dtypes.from_numpy(array.dtype).name in _NAMES for array in arrays)


def dumps(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """Serialise arrays by name. Raises TypeError for a dtype that the format lacks."""
    if not holds(arrays.values()):
        wrong = next(name for name, array in arrays.items() if not holds([array]))
        raise TypeError(f"safetensors has no word for the {arrays[wrong].dtype} of {wrong!r}")
    types = {
        name: (dtypes.from_numpy(array.dtype), array.shape) for name, array in arrays.items()
    }
    data = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return header(types, metadata) + b"".join(data)


def header(
    types: Mapping[str, tuple[dtypes.DType, tuple[int, ...]]],
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """What a file begins with that has tensors of these types, in this order."""
    found: dict[str, object] = {}
    if metadata:
        found["__metadata__"] = dict(metadata)
    offset = 0
    for name, (dtype, shape) in types.items():
        end = offset + math.prod(shape) * dtype.itemsize
        found[name] = {
            "dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(found, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def loads(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name and the metadata. Raises SafetensorsError on anything malformed."""
    if len(data) < 8:
        raise SafetensorsError(f"{len(data)} bytes are too few for a safetensors header")
    (length,) = struct.unpack("<Q", data[:8])
    if length > _MAX_HEADER or 8 + length > len(data):
        raise SafetensorsError(f"header of {length} bytes does not fit a file of {len(data)}")
    try:
        header = json.loads(data[8 : 8 + length].decode())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SafetensorsError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise SafetensorsError("the header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + length :]
    _check_tiling(header, len(body))
    return {name: _array(name, entry, body) for name, entry in header.items()}, metadata


def _check_tiling(header: Mapping[str, object], size: int) -> None:
    """Tensors follow each other without gaps or overlaps, so that a small file stays small."""
    spans = [
        (entry["data_offsets"], name) for name, entry in header.items()
        if isinstance(entry, dict) and isinstance(entry.get("data_offsets"), list)
        and len(entry["data_offsets"]) == 2 and all(type(o) is int for o in entry["data_offsets"])
    ]
    end = 0
    for (begin, stop), name in sorted(spans):
        if begin != end or stop < begin:
            raise SafetensorsError(f"tensor {name!r} does not begin where the one before it ends")
        end = stop
    if len(spans) == len(header) and end != size:
        raise SafetensorsError(f"tensors of {end} bytes in a file with {size} bytes of data")


def _array(name: str, entry: object, body: memoryview) -> np.ndarray:
    try:
        assert isinstance(entry, dict)
        dtype = _DTYPES[entry["dtype"]]
        shape = tuple(int(size) for size in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise SafetensorsError(f"bad entry for tensor {name!r}: {error}") from None
    count = math.prod(shape)
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(body):
        raise SafetensorsError(f"tensor {name!r} lies outside the file")
    if end - begin != count * dtype.itemsize:
        raise SafetensorsError(
            f"tensor {name!r} of shape {shape} needs {count * dtype.itemsize} bytes, "
            f"has {end - begin}"
        )
    return np.frombuffer(body[begin:end], dtype.numpy).reshape(shape).copy()
