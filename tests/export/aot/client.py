"""A library by ctypes, as another program's code sees it: nothing of graphc is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = [np.dtype(each) for each in (
    np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16,
    np.float32, np.float64,
)]
(OK, ARGUMENT, DTYPE, RANK, SHAPE, RANGE, BYTES, OVERLAP, MEMORY, FILE, VALUE, CPU, BUSY,
 THREADS) = range(14)


class Size(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64))


class Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class Options(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_int32), ("threads", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("weights_path", ctypes.c_char_p),
        ("weights", ctypes.c_void_p), ("weights_bytes", ctypes.c_int64),
        ("memory", ctypes.c_void_p), ("memory_bytes", ctypes.c_int64), ("cpu", ctypes.c_char_p),
        ("message", ctypes.c_char_p), ("message_bytes", ctypes.c_int64),
    )


class Failed(Exception):
    """A code, and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


def tensor_of(array: np.ndarray) -> Tensor:
    """A tensor that is an array's memory, which the caller keeps."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    made = Tensor(array.ctypes.data, array.nbytes, DTYPES.index(array.dtype), array.ndim, shape)
    made._kept = array, shape
    return made


class Library:
    """The functions of a library, typed."""

    CALL = "run"

    def __init__(self, path: Path, name: str) -> None:
        self.code, self.name = ctypes.CDLL(str(path)), name
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        for each, result, arguments in (
            ("abi", number, []), ("inputs", number, []), ("outputs", number, []),
            ("sizes", number, []), ("states", number, []), ("text", ctypes.c_char_p, [number]),
            ("input", ctypes.POINTER(Entry), [number]),
            ("output", ctypes.POINTER(Entry), [number]),
            ("state", ctypes.POINTER(Entry), [number]), ("size", ctypes.POINTER(Size), [number]),
            ("bytes", ctypes.c_int64, [pointer]), ("create", number, [pointer, pointer]),
            ("destroy", None, [pointer]), ("set_threads", number, [pointer, number]),
            ("cpu", ctypes.c_char_p, [pointer]), ("shapes", number, [pointer] * 3),
            (self.CALL, number, [pointer] * 3), ("message", ctypes.c_char_p, [pointer]),
        ):
            function = getattr(self.code, f"{name}_{each}")
            function.restype, function.argtypes = result, arguments
            setattr(self, each, function)

    def entries(self, kind: str) -> list[tuple[str, np.dtype, list[int]]]:
        """Names, dtypes and shapes of "input", "output" or "state"."""
        count, get = getattr(self, f"{kind}s")(), getattr(self, kind)
        assert not get(count) and not get(-1)
        return [
            (e.name.decode(), DTYPES[e.dtype], list(e.shape[: e.rank]))
            for e in (get(i).contents for i in range(count))
        ]

    def named_sizes(self) -> list[tuple[str, int, int]]:
        """Names and ranges."""
        found = [self.size(i).contents for i in range(self.sizes())]
        return [(each.name.decode(), each.least, each.most) for each in found]

    def unload(self) -> None:
        """dlclose."""
        import _ctypes

        _ctypes.dlclose(self.code._handle)

    def context(self, **options: Any) -> Context:
        """A context; raises Failed with the text that create writes."""
        return Context(self, **options)


class Context:
    """One context."""

    def __init__(self, library: Library, **options: Any) -> None:
        self.library = library
        self._message = ctypes.create_string_buffer(512)
        sizes = options.pop("sizes", None)
        if sizes is not None:
            options["sizes"] = (ctypes.c_int64 * len(sizes))(*sizes)
        self.options = Options(abi=1, **options)
        self.options.message = ctypes.cast(self._message, ctypes.c_char_p)
        self.options.message_bytes = 512
        self.pointer = ctypes.c_void_p()
        code = library.create(ctypes.byref(self.options), ctypes.byref(self.pointer))
        if code:
            assert not self.pointer
            raise Failed(code, self._message.value.decode())

    def close(self) -> None:
        """destroy."""
        self.library.destroy(self.pointer)
        self.pointer = ctypes.c_void_p()

    def checked(self, code: int) -> None:
        """Raises Failed."""
        text = self.library.message(self.pointer).decode()
        if code:
            assert text, code
            raise Failed(code, text)
        assert text == ""

    def outputs(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Memory for the outputs of such inputs, filled with bytes that are no result."""
        given = (Tensor * len(inputs))(*map(tensor_of, inputs))
        count = self.library.outputs()
        told = (Tensor * count)()
        shapes = [(ctypes.c_int64 * self.library.output(i).contents.rank)() for i in range(count)]
        for each, shape in zip(told, shapes, strict=True):
            each.shape = shape
        self.checked(self.library.shapes(self.pointer, given, told))
        found = []
        for each, shape in zip(told, shapes, strict=True):
            array = np.empty(tuple(shape), DTYPES[each.dtype])
            assert array.nbytes == each.bytes and array.ndim == each.rank
            array.reshape(-1).view(np.uint8)[:] = 0xAB
            found.append(array)
        return found

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """A run into fresh memory."""
        outputs = self.outputs(inputs)
        self.run(inputs, outputs)
        return outputs

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Raises Failed."""
        given = (Tensor * len(inputs))(*map(tensor_of, inputs))
        taken = (Tensor * len(outputs))(*map(tensor_of, outputs))
        self.checked(getattr(self.library, self.library.CALL)(self.pointer, given, taken))
