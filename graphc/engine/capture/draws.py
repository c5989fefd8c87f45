"""Methods of the generators of random numbers that Python and NumPy keep (streams.py)."""

from __future__ import annotations

from typing import Any

from ...frontend.number_expr import sources_of
from ...frontend.numbers import is_traced_number
from . import items
from .kinds import full_name
from .observer import Observer
from .streams import DRAWS, GENERATOR, LEGACY, RANDOM, Draw, Stream


def call(
    observer: Observer, function: Any, owner: Any, args: tuple[Any, ...], kwargs: Any
) -> Any:
    """A method of a generator: a 1-tuple with what it gives, or None where it is open."""
    name = function.__name__
    if _decided(observer) >= _DECIDED:
        observer.open(f"{phrase(owner, name)}, after others of this call have steered its Python")
        return None
    if name == "choice" and len(args) == 1 and not kwargs:
        return (_choice(observer, owner, args[0]),)
    most = DRAWS[full_name(type(owner))].get(name, -1)
    numbers = all(is_traced_number(value) or type(value) in (int, float) for value in args)
    if kwargs or len(args) > most or not numbers or not observer.is_known(owner):
        observer.open(phrase(owner, name))
        return None
    return (observer.draw(_stream(observer, owner), name, args),)


def _decided(observer: Observer) -> int:
    """How often the recording has asked for the value of what was drawn in it."""
    if not observer.draws:
        return 0
    return sum(
        any(isinstance(source, Draw) for source in sources_of((expression,)))
        for expression in observer.trace.number_guards
    )


# Each such decision doubles the versions that the calls need, if not more.
_DECIDED = 2


def _stream(observer: Observer, generator: Any) -> Stream:
    path = observer.path(generator)
    if path.endswith(".__self__"):  # random.random.__self__: a function of a module
        path = path.split(".")[0]
    return Stream(generator, path)


def _choice(observer: Observer, generator: Any, options: Any) -> Any:
    """random.choice(): one of these, at a place that is drawn."""
    count = items.length(observer, options)
    if not count:
        raise IndexError("Cannot choose from an empty sequence")
    at = observer.draw(_stream(observer, generator), "_randbelow", (count,))
    return items.subscript(observer, options, at)


def phrase(owner: Any, name: str) -> str:
    """A method of an object that is not understood, in words."""
    return _PHRASES.get(full_name(type(owner)), f"{type(owner).__name__}.{name}()")


_PHRASES = {
    RANDOM: "drawing from Python's random module (torch.rand draws in the graph)",
    LEGACY: "drawing from numpy.random (torch.rand draws in the graph)",
    GENERATOR: "drawing from a NumPy generator (torch.rand draws in the graph)",
}
