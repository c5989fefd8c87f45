"""The native code of eager_rows.py in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from .. import backends, config
from ..backends.host.inner_loops import loop_of
from ..backends.host.methods import Method, address_of, bound, method
from ..backends.host.small_rows_body import LOOPS, ROOMS
from ..backends.host.small_rows_text import KINDS, NAMES, text
from . import pipeline

# of arrays: the last of them, or None where they are not for this code
Function = Callable[..., Any]


class Code:
    """Functions for Python over NumPy's inner loops; none where these are not as expected."""

    def __init__(self, most: int) -> None:
        """`most`: numbers that a function is given."""
        self._tables: dict[str, Any] = {}
        self._library: Any = None
        self._methods: dict[str, Method] = {}
        self._room = np.empty(most * ROOMS)
        for char in KINDS:
            found = [loop_of(getattr(np, loop), np.dtype(char)) for loop in LOOPS]
            if None not in found:
                words = [number for pair in found for number in pair or ()]
                words.append(self._room.ctypes.data)
                self._tables[char] = (ctypes.c_int64 * len(words))(*words)
        if self._tables:
            self._load(most)

    def _load(self, most: int) -> None:
        symbols = {name: address_of(name) for name in ("Py_IncRef", "PyLong_AsVoidPtr")}
        link = cast(Any, backends.get("llvm")).link
        try:
            self._library = link(
                f"rows of {most} numbers", lambda: text(most), symbols,
                pipeline.host(config.current()),
            )
        except (ImportError, OSError, RuntimeError):  # no compiler for this machine
            return
        for name in (f"{name}_{char}" for name in NAMES for char in self._tables):
            self._methods[name] = method(name, self._library.address(f"graphc_rows_{name}"))

    def function(self, name: str, char: str, words: Sequence[int]) -> Function | None:
        """One with a record of its own (without the first two words)."""
        found = self._methods.get(f"{name}_{char}")
        if found is None:
            return None
        record = (ctypes.c_int64 * (len(words) + 2))(
            id(None), ctypes.addressof(self._tables[char]), *words
        )
        return bound(found, ctypes.addressof(record), record, self)
