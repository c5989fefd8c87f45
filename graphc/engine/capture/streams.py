"""Streams of random numbers that Python or NumPy keeps: each call draws anew.

A drawn number is a run-time number. A version draws what its recording drew, in the same order and
from the generators as they are then, before its native code runs; where it turns out not to fit,
the generators get their states back. What is decided upon a drawn number is a guard on the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...frontend.number_expr import NumberExpr
from .kinds import full_name
from .places import Place

RANDOM, LEGACY, GENERATOR = (
    "random.Random", "numpy.random.mtrand.RandomState", "numpy.random._generator.Generator",
)
# methods that draw one Python number, and how many numbers they take
DRAWS: dict[str, dict[str, int]] = {
    RANDOM: {
        "random": 0, "getrandbits": 1, "uniform": 2, "randint": 2, "randrange": 3, "gauss": 2,
        "normalvariate": 2, "lognormvariate": 2, "expovariate": 1, "triangular": 3,
        "betavariate": 2, "gammavariate": 2, "paretovariate": 1, "weibullvariate": 2,
        "vonmisesvariate": 2, "_randbelow": 1,
    },
    LEGACY: {
        "rand": 0, "randn": 0, "random": 0, "random_sample": 0, "standard_normal": 0, "uniform": 2,
        "normal": 2, "randint": 2, "exponential": 1, "lognormal": 2, "beta": 2,
    },
    GENERATOR: {
        "random": 0, "standard_normal": 0, "uniform": 2, "normal": 2, "exponential": 1,
        "lognormal": 2, "beta": 2,
    },
}


class Stream(Place):
    """The state of a generator."""

    __slots__ = ()

    def __init__(self, generator: Any, path: str) -> None:
        super().__init__(generator, _STATE, path)

    def get(self) -> Any:
        """The state now."""
        kind = full_name(type(self.container))
        if kind == RANDOM:
            return self.container.getstate()
        if kind == LEGACY:
            return self.container.get_state(legacy=False)
        return self.container.bit_generator.state

    def set(self, value: Any) -> None:
        """Take up a state again."""
        kind = full_name(type(self.container))
        if kind == RANDOM:
            self.container.setstate(value)
        elif kind == LEGACY:
            self.container.set_state(value)
        else:
            self.container.bit_generator.state = value


class Draw:
    """One number that is drawn at each call: the source of a lifted number."""

    __slots__ = ("arguments", "kind", "name", "stream")

    def __init__(
        self, stream: Stream, name: str, arguments: tuple[NumberExpr, ...], kind: type
    ) -> None:
        self.stream, self.name, self.arguments, self.kind = stream, name, arguments, kind

    def now(self, sources: Mapping[Any, Any], dims: Mapping[str, int]) -> Any:
        """Draw it. Raises ValueError where it is another kind of number than it was."""
        given = [each.evaluate(sources, dims) for each in self.arguments]
        value = getattr(self.stream.container, self.name)(*given)
        if type(value) is not self.kind:
            raise ValueError(f"{self!r} gave a {type(value).__name__}")
        return value

    def __repr__(self) -> str:
        return f"{self.stream.path}.{self.name}()"


def is_draw(value: Any, name: str) -> bool:
    """Whether a method of a generator draws a number, in a way that is understood."""
    kind = full_name(type(value))
    return name in DRAWS.get(kind, ()) or (name == "choice" and kind == RANDOM)


def states(draws: Iterable[Draw]) -> list[tuple[Stream, Any]]:
    """The generators of these draws, and their states now."""
    return [(stream, stream.get()) for stream in {draw.stream: None for draw in draws}]


def put_back(kept: Iterable[tuple[Stream, Any]]) -> None:
    """Give generators the states that states() gave."""
    for stream, state in kept:
        stream.set(state)


_STATE = object()
