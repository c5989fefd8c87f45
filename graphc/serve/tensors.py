"""Tensors on the wire: from JSON or bytes to arrays, whose every element is checked, and back."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphc.ir.dtypes import DType
from graphc.serve.documents import Numbers
from graphc.serve.errors import Refused, malformed, shown

FEW = 4096  # numbers: what is turned into text in one go

# --- from requests -----------------------------------------------------------------------------


def from_bytes(data: memoryview, dtype: DType, shape: tuple[int, ...], name: str) -> np.ndarray:
    """An array on a copy of raw little-endian bytes, or on the bytes themselves where they lie
    well. Raises Refused where their number is not what the shape says."""
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise malformed(
            f"input {name!r} of shape {list(shape)} takes {wanted} bytes, and has {len(data)}"
        )
    raw = np.frombuffer(data, np.uint8)
    if dtype.kind == "bool" and raw.size and raw.max() > 1:
        place = int(np.argmax(raw > 1))
        raise malformed(f"input {name!r}: byte {place} is {raw[place]}, and a BOOL is 0 or 1")
    array = raw.view(dtype.numpy).reshape(shape)
    return array if array.flags.aligned else array.copy()


def from_json(data: Any, dtype: DType, shape: tuple[int, ...], name: str) -> np.ndarray:
    """An array of the numbers of JSON, flat or nested as its shape is. Raises Refused."""
    count = math.prod(shape)
    if isinstance(data, Numbers):
        if data.count != count or not data.fits(shape):
            raise _wrong_form(name, shape)
        return _filled(data.pieces(), dtype, shape, name)
    if not isinstance(data, list):
        raise malformed(f"the data of input {name!r} is {shown(data)}, and must be a list")
    nested = any(isinstance(item, list) for item in data)
    flat = _flat(data, shape, name) if nested else data
    if len(flat) != count:
        raise _wrong_form(name, shape)
    return _filled([flat], dtype, shape, name)


def shape_of(data: Any) -> tuple[int, ...]:
    """The shape that nested lists of JSON have; of their first items, where they differ."""
    if isinstance(data, Numbers):
        return data.shape()
    sizes: list[int] = []
    while isinstance(data, list):
        sizes.append(len(data))
        data = data[0] if data else None
    return tuple(sizes)


def of_shape(data: Any, dtype: DType, shape: tuple[int, ...], name: str) -> np.ndarray:
    """from_json, of a number without brackets, too."""
    if not shape and not isinstance(data, (list, Numbers)):
        return _filled([[data]], dtype, (), name)
    return from_json(data, dtype, shape, name)


def _wrong_form(name: str, shape: tuple[int, ...]) -> Refused:
    return malformed(
        f"the data of input {name!r} is not {math.prod(shape)} numbers, flat or nested as the "
        f"shape {list(shape)} is"
    )


def _flat(data: list[Any], shape: tuple[int, ...], name: str) -> list[Any]:
    """The numbers of nested lists."""
    rows: list[Any] = [data]
    for size in shape:
        if not all(isinstance(row, list) and len(row) == size for row in rows):
            raise _wrong_form(name, shape)
        rows = [item for row in rows for item in row]
    return rows


def _filled(
    pieces: Iterable[list[Any]], dtype: DType, shape: tuple[int, ...], name: str
) -> np.ndarray:
    flat = np.empty(math.prod(shape), dtype.numpy)
    done = 0
    for piece in pieces:
        if done + len(piece) > flat.size:
            raise _wrong_form(name, shape)
        flat[done : done + len(piece)] = _numbers(piece, dtype, name, done)
        done += len(piece)
    if done != flat.size:
        raise _wrong_form(name, shape)
    return flat.reshape(shape)


def _numbers(items: list[Any], dtype: DType, name: str, first: int) -> np.ndarray:
    """The numbers of one piece, each of which the dtype has. `first`: the number of its first."""
    kinds = set(map(type, items))
    allowed = {bool} if dtype.kind == "bool" else {int, float}
    if not kinds <= allowed:
        place = next(i for i, item in enumerate(items) if type(item) not in allowed)
        what = "true or false" if dtype.kind == "bool" else "a number"
        raise malformed(
            f"the data of input {name!r} has {shown(items[place])} at {first + place}, which is "
            f"not {what}"
        )
    if dtype.kind == "bool":
        return np.array(items, np.bool_)
    if dtype.is_integer:
        return _integers(items, dtype, name, first)
    try:
        wide = np.array(items, np.float64)
    except OverflowError:
        wide = np.array([_float(item) for item in items])
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype.numpy)
    bad = ~np.isfinite(narrow.astype(np.float32) if dtype.bits == 16 else narrow)
    if bad.any():
        raise _beyond(items, bad, dtype, name, first)
    return narrow


def _float(item: int | float) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf


def _integers(items: list[Any], dtype: DType, name: str, first: int) -> np.ndarray:
    """Whole numbers; one that is written 3.0 is whole, too."""
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    whole: list[Any] = items
    if float in set(map(type, items)):
        whole = [int(x) if type(x) is float and x.is_integer() else x for x in items]
    if not (low <= min(whole, default=0) and max(whole, default=0) <= high
            and all(type(x) is int for x in whole)):
        bad = np.array([type(x) is not int or not low <= x <= high for x in whole], bool)
        raise _beyond(items, bad, dtype, name, first)
    return np.array(whole, dtype.numpy)


def _beyond(
    items: list[Any], bad: np.ndarray, dtype: DType, name: str, first: int
) -> Refused:
    place = int(np.argmax(bad))
    return malformed(
        f"the data of input {name!r} has {shown(items[place])} at {first + place}, which "
        f"{dtype.torch_name} does not have"
    )


def from_npy(data: bytes, dtype: DType, name: str) -> np.ndarray:
    """The array of a .npy file. Raises Refused for what is none, and for another dtype."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0,
                  (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, found = reader(file)
    except (ValueError, KeyError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise malformed(f"the body is not a .npy file that can be read: {error}") from None
    if found != dtype.numpy:
        raise malformed(
            f"input {name!r} is an array of {found} and must be one of {dtype.numpy}. Cure: "
            f"x.astype({str(dtype.numpy)!r})"
        )
    if any(size < 0 for size in shape):
        raise malformed(f"the body is a .npy file of shape {shape}")
    order = tuple(reversed(shape)) if fortran else shape
    array = from_bytes(memoryview(data)[file.tell() :], dtype, order, name)
    return np.ascontiguousarray(array.T) if fortran else array


# --- to answers --------------------------------------------------------------------------------


def to_bytes(array: np.ndarray) -> memoryview:
    """The array's elements as raw bytes, row-major."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def quoted(text: str) -> bytes:
    """A string of JSON."""
    return json.dumps(text).encode()


def flat_text(array: np.ndarray, name: str) -> Iterator[bytes]:
    """The array as a flat list of JSON, a piece at a time. Raises Refused for what JSON lacks."""
    flat = _sayable(array, name).reshape(-1)
    yield b"["
    for start in range(0, flat.size, FEW):
        text = json.dumps(flat[start : start + FEW].tolist(), separators=(",", ":"))
        yield (b"," if start else b"") + text[1:-1].encode()
    yield b"]"


def nested_text(array: np.ndarray, name: str) -> Iterator[bytes]:
    """The array as nested lists of JSON, a piece at a time. Raises Refused for what JSON lacks."""
    yield from _nested(_sayable(array, name))


def _nested(array: np.ndarray) -> Iterator[bytes]:
    if array.size <= FEW:
        yield json.dumps(array.tolist(), separators=(",", ":")).encode()
        return
    yield b"["
    if array.ndim == 1:
        for start in range(0, array.size, FEW):
            text = json.dumps(array[start : start + FEW].tolist(), separators=(",", ":"))
            yield (b"," if start else b"") + text[1:-1].encode()
    else:
        for number, part in enumerate(array):
            if number:
                yield b","
            yield from _nested(part)
    yield b"]"


def _sayable(array: np.ndarray, name: str) -> np.ndarray:
    """The array in a dtype that Python's numbers have. Raises Refused for NaN and infinities."""
    if array.dtype.kind in "biu":
        return array
    wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
    if not np.isfinite(wide).all():
        raise Refused(422, f"the output {name!r} has NaN or an infinity, which JSON cannot say. "
                           "Cure: ask for binary data (binary_data_output, or Accept: "
                           "application/x-npy)")
    return wide
