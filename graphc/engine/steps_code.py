"""Native code for functions of each number by itself, in NumPy's steps (eager_rows.py), in this
process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from .. import backends, config
from ..backends.host.inner_loops import loop_for
from ..backends.host.listed_text import PLACE
from ..backends.host.methods import address_of, bound, method
from ..backends.host.steps_text import CHUNK, ENTRY, OWN, text
from ..backends.numpy.recorded import CAST, SELECT, Skip, Step, in_order, recorded
from . import pipeline

Function = Callable[..., Any]  # see rows_code.py
_ROOMS = 96  # stretches of numbers between the steps
_SIZES = {"?": 1, "f": 4, "d": 8, "l": 8}
OWN_LOOPS = {
    (SELECT, "?dd->d"): "select", (SELECT, "?ll->l"): "select",
    (SELECT, "?ff->f"): "select_small", (SELECT, "???->?"): "select_bool",
    (CAST, "f->d"): "widen", (CAST, "d->f"): "narrow",
    (CAST, "?->f"): "of_bool_small", (CAST, "?->d"): "of_bool",
    (CAST, "l->f"): "of_integer_small", (CAST, "l->d"): "of_integer",
    (CAST, "f->l"): "to_integer_small", (CAST, "d->l"): "to_integer",
    (CAST, "?->l"): "integer_of_bool",
}


class Code:
    """Functions for Python; none where there is no compiler, or NumPy is not as expected."""

    def __init__(self) -> None:
        self._lists: dict[Any, Any] = {}
        self._own: dict[str, int] = {}
        self._method: Any = None
        self._room = np.empty(_ROOMS * CHUNK)
        symbols = {name: address_of(name) for name in ("Py_IncRef", "PyLong_AsVoidPtr")}
        link = cast(Any, backends.get("llvm")).link
        try:
            self._library = link("steps", text, symbols, pipeline.host(config.current()))
        except (ImportError, OSError, RuntimeError):  # no compiler for this machine
            return
        self._own = {name: self._library.address(f"graphc_{name}") for name in OWN}
        self._method = method("steps", self._library.address("graphc_steps"))

    def function(
        self, key: Any, function: Callable[..., Any], given: Sequence[tuple[str, bool]], count: int
    ) -> Function | None:
        """Of arrays, and one for the result. `given`: their dtypes' characters, and whether it is
        one number; the others have so many. `key`: of what the function does."""
        if self._method is None:
            return None
        key = key, given
        if key not in self._lists:
            self._lists[key] = self._list(function, given)
        words = self._lists[key]
        if words is None:
            return None
        record = (ctypes.c_int64 * 3)(id(None), ctypes.addressof(words[0]), count)
        return bound(self._method, ctypes.addressof(record), record, words, self)

    def _list(self, function: Callable[..., Any], given: Sequence[tuple[str, bool]]) -> Any:
        found = recorded(function, *[np.dtype(char) for char, _ in given])
        if found is None:
            return None
        recording, result = found
        if result.dtype.char not in _SIZES:
            return None
        steps = [0 if alone else _SIZES[char] for char, alone in given]
        return self._words(recording.values, result.number, [*steps, _SIZES[result.dtype.char]])

    def _words(self, values: Sequence[Any], result: int, steps: Sequence[int]) -> Any:
        """The list (steps_text.py), and its constants; None: it has steps that there is no loop
        for. `steps`: from one number of each array to the next, in bytes."""
        inputs = len(steps) - 1
        entries = in_order(values, result)
        rooms = _rooms(values, entries, result)
        if rooms is None:
            return None
        constants = np.zeros(len(values))
        for number, value in enumerate(values):
            if type(value) is np.ndarray:
                constants[number : number + 1].view(value.dtype)[0] = value
        places: list[tuple[int, int]] = []  # (a word of the entries, which array)
        words: list[int] = []
        start = self._room.ctypes.data

        def put(at: int, number: int) -> None:
            """The address of a value into a word."""
            if number < inputs or number == result:
                places.append((at, min(number, inputs)))
            elif type(values[number]) is Step:
                words[at] = start + 8 * CHUNK * rooms[number]
            else:
                words[at] = constants.ctypes.data + 8 * number

        for entry in entries:
            at = len(words)
            words += [0] * ENTRY
            if type(entry) is Skip:
                words[at + 1], words[at + 6] = entry.entries, int(entry.number)
                put(at + 2, entry.mask)
                continue
            step = values[cast(int, entry)]
            loop = self._loop(step)
            if loop is None:
                return None
            words[at], words[at + 1] = loop
            operands = [*step.operands, entry]
            kinds = step.types.replace("->", "")
            for i, (number, kind) in enumerate(zip(operands, kinds, strict=True)):
                put(at + 2 + i, number)
                alone = type(values[number]) is np.ndarray or (
                    number < inputs and steps[number] == 0
                )
                words[at + 6 + i] = 0 if alone else _SIZES[kind]
        head = [len(steps), len(places), len(entries)]
        found = (ctypes.c_int64 * (len(head) + PLACE * len(places) + len(words)))()
        first = ctypes.addressof(found) + 8 * (len(head) + PLACE * len(places))
        found[:] = [
            *head,
            *[word for at, which in places for word in (first + 8 * at, which, steps[which])],
            *words,
        ]
        return found, constants

    def _loop(self, step: Step) -> tuple[int, int] | None:
        if not set(step.types) <= set(_SIZES) | {"-", ">"}:
            return None
        own = OWN_LOOPS.get((step.function, step.types))
        if own is not None:
            return self._own[own], 0
        return loop_for(step.function, step.types)


def _rooms(values: Sequence[Any], entries: Sequence[Any], result: int) -> dict[int, int] | None:
    """Which room each step's result has until it was used for the last time; None: there are too
    few."""
    last: dict[int, int] = {}
    for at, entry in enumerate(entries):
        for number in (entry.mask,) if type(entry) is Skip else values[entry].operands:
            last[number] = at
    free, rooms = list(range(_ROOMS)), {}
    for at, entry in enumerate(entries):
        if type(entry) is Skip:
            continue
        if entry != result:
            if not free:
                return None
            rooms[entry] = free.pop()
        for number in set(values[entry].operands):
            if last[number] == at and number in rooms:
                free.append(rooms[number])
    return rooms
