"""Native code for programs on few numbers (eager_program.py), in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from .. import backends, config
from ..backends.host.inner_loops import loop_for
from ..backends.host.listed_text import PLACE
from ..backends.host.methods import address_of, bound, method
from ..backends.host.program_text import ENTRY, HEAD, SIZES, text
from ..backends.host.steps_text import OWN
from . import pipeline
from .steps_code import OWN_LOOPS

Array = np.ndarray[Any, Any]
_OPERANDS = 4  # of an entry, the result among them


class Entry(NamedTuple):
    """A loop over so many numbers: where each operand begins, and from one to the next."""

    loop: tuple[int, int]  # code, data
    times: int
    addresses: Sequence[int]
    steps: Sequence[int]


class Code:
    """What runs programs; nothing where there is no compiler, or NumPy is not as expected."""

    def __init__(self) -> None:
        self._method: Any = None
        self._own: dict[str, int] = {}
        self._loops: dict[Any, tuple[int, int] | None] = {}
        symbols = {name: address_of(name) for name in ("Py_IncRef", "PyLong_AsVoidPtr")}
        link = cast(Any, backends.get("llvm")).link
        try:
            self._library = link("programs", text, symbols, pipeline.host(config.current()))
        except (ImportError, OSError, RuntimeError):  # no compiler for this machine
            return
        names = [*OWN, "product"]
        names += [f"{name}{size}" for name in ("move", "lookup") for size in SIZES]
        self._own = {name: self._library.address(f"graphc_{name}") for name in names}
        self._method = method("program", self._library.address("graphc_program"))

    def __bool__(self) -> bool:
        return self._method is not None

    def own(self, name: str, data: int) -> tuple[int, int]:
        """A move or a lookup with what it reads."""
        return self._own[name], data

    def loop(self, function: Any, types: str) -> tuple[int, int] | None:
        """What does a step of recorded.py; None: nothing."""
        key = function, types
        if key not in self._loops:
            own = OWN_LOOPS.get(key)
            self._loops[key] = (
                (self._own[own], 0) if own is not None else
                None if type(function) is not np.ufunc else loop_for(function, types)
            )
        return self._loops[key]

    def function(
        self, entries: Sequence[Entry], given: Sequence[Array], flag: Array, keep: Any
    ) -> Callable[..., Any]:
        """Entries as a function of arrays that take the place of `given`: operands lie in these,
        or stay where they are. `flag` gets the address of the word that lookups set; `keep`: what
        else must live as long."""
        starts = [(a.ctypes.data, a.nbytes) for a in given]
        places: list[tuple[int, int, int]] = []
        words: list[int] = []
        for loop, count, operands, steps in entries:
            missing = [0] * (_OPERANDS - len(operands))
            addresses = [*operands, *missing]
            for i, address in enumerate(operands):
                for which, (start, size) in enumerate(starts):
                    if start <= address < start + size:
                        places.append((len(words) + 3 + i, which, address - start))
                        addresses[i] = 0
            words += [*loop, count, *addresses, *steps, *missing]
        assert len(words) == ENTRY * len(entries)
        head = [len(given), len(places), len(entries), 0]
        found = np.empty(HEAD + PLACE * len(places) + len(words), np.int64)
        first = found.ctypes.data + 8 * (HEAD + PLACE * len(places))
        found[:] = [
            *head, *[w for at, which, off in places for w in (first + 8 * at, which, off)], *words
        ]
        flag[0] = found.ctypes.data + 8 * (HEAD - 1)
        record = (ctypes.c_int64 * 2)(id(None), found.ctypes.data)
        return bound(
            self._method, ctypes.addressof(record), record, found, entries, keep, self
        )
