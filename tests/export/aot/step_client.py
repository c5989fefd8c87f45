"""A training step's library by ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from .client import DTYPES, Context, Library


class StepLibrary(Library):
    """The functions of a training step's library, typed."""

    CALL = "step"

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        pointer, code, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        for each, result, arguments in (
            ("state_data", pointer, [pointer, code]), ("state_bytes", size, []),
            ("state_save", code, [pointer, pointer, size]),
            ("state_load", code, [pointer, pointer, size]),
            ("state_save_file", code, [pointer, ctypes.c_char_p]),
            ("state_load_file", code, [pointer, ctypes.c_char_p]),
            ("seed", code, [pointer, ctypes.c_uint64]),
        ):
            function = getattr(self.code, f"{name}_{each}")
            function.restype, function.argtypes = result, arguments
            setattr(self, each, function)

    def context(self, **options: Any) -> StepContext:
        return StepContext(self, **options)


class StepContext(Context):
    """A context with a state."""

    def state(self) -> dict[str, np.ndarray]:
        """Where the state lies, as arrays: what is written to them, the next step finds."""
        found = {}
        for i in range(self.library.states()):
            entry = self.library.state(i).contents
            dtype, shape = DTYPES[entry.dtype], tuple(entry.shape[: entry.rank])
            size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            place = self.library.state_data(self.pointer, i)
            memory = (ctypes.c_uint8 * size).from_address(place)
            found[entry.name.decode()] = np.frombuffer(memory, dtype).reshape(shape)
        return found

    def save(self) -> bytes:
        """The state as a file."""
        memory = ctypes.create_string_buffer(self.library.state_bytes())
        self.checked(self.library.state_save(self.pointer, memory, len(memory)))
        return memory.raw

    def load(self, data: bytes) -> None:
        """Goes on from a file. Raises Failed."""
        memory = np.frombuffer(data + b"\0", np.uint8).copy()  # no more behind it than one byte
        self.checked(self.library.state_load(self.pointer, memory.ctypes.data, len(data)))

    def seed(self, seed: int) -> None:
        """manual_seed."""
        self.checked(self.library.seed(self.pointer, seed))

    def save_file(self, path: Path) -> None:
        """The state into a file."""
        self.checked(self.library.state_save_file(self.pointer, str(path).encode()))

    def load_file(self, path: Path) -> None:
        """Goes on from a file. Raises Failed."""
        self.checked(self.library.state_load_file(self.pointer, str(path).encode()))
