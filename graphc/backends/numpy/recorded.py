"""Functions of arrays, number by number, as lists of NumPy's ufuncs that native code can run.

A function is called on a Recorded, which stands for an array of any size: what it does to each
number is noted, whichever numbers there are. `mask.any()` is true, `x[mask]` is all of x, and
`out[mask] = y` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .common import Array, Followed

SELECT, CAST = "select", "cast"
_MOST = 2000  # steps
# exponents for which NumPy's arrays have functions of their own
_OWN_POWERS = (-1, 0, 0.5, 1, 2)


class Unfollowed(Exception):
    """The function does what is no step on numbers."""


class Step(NamedTuple):
    """What comes of values: a ufunc's loop, or a choice of two by a mask, or another dtype."""

    function: Any
    types: str  # the characters of the operands' dtypes and of the result's: "dd->d"
    operands: tuple[int, ...]


class Recording:
    """Values by their numbers: what is given; then constants without dims, and what comes of steps.
    What is computed twice is one value."""

    def __init__(self, given: int = 1) -> None:
        self.values: list[Array | Step | None] = [None] * given
        self._known: dict[Any, int] = {}

    def constant(self, value: Any, dtype: Any) -> int:
        array = np.array(value, dtype)
        if array.ndim:
            raise Unfollowed
        return self._number((dtype, array.tobytes()), array)

    def step(self, function: Any, types: str, operands: Sequence[int]) -> int:
        made = Step(function, types, tuple(operands))
        if len(self.values) >= _MOST:
            raise Unfollowed
        return self._number(made, made)

    def _number(self, key: Any, value: Array | Step) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.values)
            self.values.append(value)
        return found

    def operand(self, value: Any, dtype: Any) -> int:
        """The number of an operand that is taken in this dtype."""
        if not isinstance(value, Recorded):
            return self.constant(value, dtype)
        if value.dtype != dtype:
            raise Unfollowed
        return value.number

    def call(self, ufunc: np.ufunc, inputs: Sequence[Any], out: Any) -> Recorded:
        if ufunc.nout != 1 or (ufunc is np.power and _is_own_power(inputs[1])):
            raise Unfollowed
        asked = [getattr(x, "dtype", type(x)) for x in inputs]
        resolve: Any = ufunc.resolve_dtypes
        *given, result = resolve((*asked, None))
        operands = [self.operand(x, dtype) for x, dtype in zip(inputs, given, strict=True)]
        types = "".join([dtype.char for dtype in given]) + "->" + result.char
        number = self.step(ufunc, types, operands)
        if out is None:
            return Recorded(self, number, result)
        (target,) = out
        if not isinstance(target, Recorded) or target.dtype != result:
            raise Unfollowed
        target.number = number
        return target

    def chosen(self, mask: Any, a: Any, b: Any) -> Recorded:
        """np.where(mask, a, b)."""
        if not isinstance(mask, Recorded) or mask.dtype != np.bool_:
            raise Unfollowed
        dtype = np.result_type(*[getattr(x, "dtype", x) for x in (a, b)])
        operands = [self.operand(x, dtype) for x in (a, b)]
        types = f"?{dtype.char}{dtype.char}->{dtype.char}"
        return Recorded(self, self.step(SELECT, types, [mask.number, *operands]), dtype)


def _is_own_power(exponent: Any) -> bool:
    return not isinstance(exponent, Recorded) and exponent in _OWN_POWERS


class Recorded(NDArrayOperatorsMixin, Followed):
    """An array of numbers of which nothing is known; its number changes as it is written to."""

    shape, strides, ndim = (2,), (8,), 1

    def __init__(self, recording: Recording, number: int, dtype: Any) -> None:
        self.recording, self.number, self.dtype = recording, number, np.dtype(dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **others: Any
    ) -> Recorded:
        if method != "__call__" or not others.keys() <= {"dtype"}:
            raise Unfollowed
        if "dtype" not in others:
            return self.recording.call(ufunc, inputs, out)
        wanted = np.dtype(others["dtype"])  # operands are cast first
        found = self.recording.call(ufunc, [
            x.astype(wanted) if isinstance(x, Recorded) else x for x in inputs
        ], out)
        if found.dtype != wanted:
            raise Unfollowed
        return found

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        rule = _RULES.get(function)
        if rule is None:
            raise Unfollowed
        return rule(self.recording, *args, **kwargs)

    def _same(self) -> Recorded:
        return Recorded(self.recording, self.number, self.dtype)

    def any(self) -> bool:
        return True

    def copy(self, order: str = "C") -> Recorded:
        return self._same()

    def reshape(self, *shape: Any) -> Recorded:
        return self

    def view(self, dtype: Any) -> Recorded:
        if np.dtype(dtype).itemsize != self.dtype.itemsize:
            raise Unfollowed
        return Recorded(self.recording, self.number, dtype)

    def astype(self, dtype: Any, copy: bool = True) -> Recorded:
        to = np.dtype(dtype)
        if to == self.dtype:
            return self._same() if copy else self
        types = f"{self.dtype.char}->{to.char}"
        return Recorded(self.recording, self.recording.step(CAST, types, [self.number]), to)

    def __getitem__(self, mask: Any) -> Recorded:
        if not isinstance(mask, Recorded) or mask.dtype != np.bool_:
            raise Unfollowed
        return self._same()

    def __setitem__(self, mask: Any, value: Any) -> None:
        if mask is Ellipsis:
            self.number = self.recording.operand(value, self.dtype)
            return
        found = self.recording.chosen(mask, value, self)
        if found.dtype != self.dtype:
            raise Unfollowed
        self.number = found.number

    def __bool__(self) -> bool:
        raise Unfollowed

    def __iter__(self) -> Any:
        raise Unfollowed


def _full(recording: Recording, like: Recorded, value: Any = 0) -> Recorded:
    return Recorded(recording, recording.constant(value, like.dtype), like.dtype)


_RULES: dict[Any, Callable[..., Any]] = {
    np.where: lambda recording, *args: recording.chosen(*args),
    np.full_like: _full, np.empty_like: _full, np.zeros_like: _full,
    np.ones_like: lambda recording, like: _full(recording, like, 1),
    np.ravel: lambda recording, x: x,
    np.broadcast_arrays: lambda recording, *args: args,
}


# --- the order of steps --------------------------------------------------------------------------


class Skip(NamedTuple):
    """Leave out so many of the entries that follow, if all numbers of a mask are this one."""

    mask: int
    number: bool
    entries: int


def recorded(
    function: Callable[..., Any], *dtypes: Any
) -> tuple[Recording, Recorded] | None:
    """What a function does to arrays of these dtypes, and what it gives; None: it is not to be
    followed, or does nothing."""
    recording = Recording(len(dtypes))
    try:
        result = function(*[Recorded(recording, i, dtype) for i, dtype in enumerate(dtypes)])
    except Exception:  # whatever comes of what a Recorded has not
        return None
    if not isinstance(result, Recorded) or type(recording.values[result.number]) is not Step:
        return None
    return recording, result


_WORTH = 4  # steps that take longer than to look at a mask


def in_order(values: Sequence[Any], result: int) -> list[int | Skip]:
    """The numbers of the steps that a value needs, in an order in which they can be done; what is
    needed where a choice falls on it alone, behind a Skip."""
    uses: dict[int, set[int]] = {result: set()}
    for number in range(result, 0, -1):
        if number in uses and type(values[number]) is Step:
            for operand in values[number].operands:
                uses.setdefault(operand, set()).add(number)

    def alone(choice: int, side: int) -> list[int]:
        """What is needed for one side of a choice and for nothing else."""
        first = values[choice].operands[side]
        if uses[first] != {choice} or values[choice].operands.count(first) > 1:
            return []
        found = {first}
        for number in range(first - 1, 0, -1):
            if number in uses and uses[number] <= found:
                found.add(number)
        return sorted(n for n in found if type(values[n]) is Step)

    def ordered(numbers: Sequence[int]) -> list[int | Skip]:
        sides: dict[int, list[tuple[bool, list[int]]]] = {}
        later: set[int] = set()
        for number in sorted(numbers, reverse=True):
            if number in later or values[number].function != SELECT or (
                type(values[values[number].operands[0]]) is not Step
            ):
                continue
            for side, skipped_if in ((1, False), (2, True)):
                steps = alone(number, side)
                if len(steps) >= _WORTH:
                    sides.setdefault(number, []).append((skipped_if, steps))
                    later.update(steps)
        found: list[int | Skip] = []
        for number in sorted(set(numbers) - later):
            for skipped_if, steps in sides.get(number, ()):
                entries = ordered(steps)
                found.append(Skip(values[number].operands[0], skipped_if, len(entries)))
                found += entries
            found.append(number)
        return found

    return ordered([n for n in uses if type(values[n]) is Step])
