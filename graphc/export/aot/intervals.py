"""Numbers of which bounds alone are known: the rule of `ir/kernel/blocking.py`, run on them, bounds
the plans for all sizes of a range at once.

What is known exactly is an int, or a bool. A comparison that both answers are possible for is an
EITHER, of which both sides are taken; where Python has to go one way, Undecided is raised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

Bounded: TypeAlias = "int | Between"
Answer: TypeAlias = "bool | Either"


class Undecided(Exception):
    """It hangs on which of the numbers it is."""


def interval(low: int, high: int) -> Bounded:
    """A number between two, or of one value."""
    return low if low == high else Between(low, high)


def low(number: Any) -> int:
    """No value is smaller."""
    return number.low if isinstance(number, Between) else int(number)


def high(number: Any) -> int:
    """No value is larger."""
    return number.high if isinstance(number, Between) else int(number)


class Between:
    """An integer from `low` to `high`, which differ."""

    __slots__ = ("high", "low")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __repr__(self) -> str:
        return f"{self.low}..{self.high}"

    def __add__(self, other: Any) -> Bounded:
        return interval(self.low + low(other), self.high + high(other))

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        return interval(-self.high, -self.low)

    def __sub__(self, other: Any) -> Bounded:
        return interval(self.low - high(other), self.high - low(other))

    def __rsub__(self, other: int) -> Bounded:
        return interval(other - self.high, other - self.low)

    def __mul__(self, other: Any) -> Bounded:
        return _corners(operator.mul, self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Bounded:
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> Bounded:
        return _quotient(other, self)

    def __mod__(self, other: Any) -> Bounded:
        if low(other) < 1:
            raise Undecided
        if isinstance(other, int) and self.low // other == self.high // other:
            return interval(self.low % other, self.high % other)
        return interval(0, high(other) - 1)

    def least(self, other: Any) -> Bounded:
        """The smaller one."""
        return interval(min(self.low, low(other)), min(self.high, high(other)))

    def most(self, other: Any) -> Bounded:
        """The larger one."""
        return interval(max(self.low, low(other)), max(self.high, high(other)))

    def quotient_up_of(self, other: Any) -> Bounded:
        """The other divided by this one, rounded up."""
        return -_quotient(-other, self)

    def __lt__(self, other: Any) -> Answer:
        return _answer(self.high < low(other), self.low < high(other))

    def __le__(self, other: Any) -> Answer:
        return _answer(self.high <= low(other), self.low <= high(other))

    def __gt__(self, other: Any) -> Answer:
        return _answer(self.low > high(other), self.high > low(other))

    def __ge__(self, other: Any) -> Answer:
        return _answer(self.low >= high(other), self.high >= low(other))

    def __eq__(self, other: Any) -> Any:
        return _answer(False, self.low <= high(other) and low(other) <= self.high)

    def __ne__(self, other: Any) -> Any:
        return _answer(self.low > high(other) or low(other) > self.high, True)

    equals = __eq__

    def __bool__(self) -> bool:
        if self.low <= 0 <= self.high:
            raise Undecided
        return True

    def __int__(self) -> int:
        raise Undecided

    __index__ = __int__


def _corners(combine: Callable[[int, int], int], a: Any, b: Any) -> Bounded:
    found = [combine(x, y) for x in (low(a), high(a)) for y in (low(b), high(b))]
    return interval(min(found), max(found))


def _quotient(a: Any, b: Any) -> Bounded:
    if low(b) < 1:
        raise Undecided
    return _corners(operator.floordiv, a, b)


def _answer(always: bool, perhaps: bool) -> Answer:
    if always or not perhaps:
        return always
    return EITHER


class Either:
    """True or False."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "EITHER"

    def __and__(self, other: Answer) -> Answer:
        return False if other is False else self

    def __or__(self, other: Answer) -> Answer:
        return True if other is True else self

    __rand__, __ror__ = __and__, __or__

    def choose(self, a: Any, b: Any) -> Any:
        """Either."""
        return interval(min(low(a), low(b)), max(high(a), high(b)))

    def __bool__(self) -> bool:
        raise Undecided


EITHER = Either()
