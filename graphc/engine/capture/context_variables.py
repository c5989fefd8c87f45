"""Context variables: what one is, is guarded; what the call sets, each call sets again."""

from __future__ import annotations

from typing import Any

from .observer import Observer
from .places import MISSING
from .writes import Variable


def _get_variable(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    variable = function.__self__
    value = observer.read(variable, None, f"{variable.name}.get()")
    return None if value is MISSING else (value,)


def _set_variable(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    variable = function.__self__
    place = observer.variables.get(variable)
    if place is None:
        place = observer.variables[variable] = Variable(variable, f"the context's {variable.name}")
        observer.save_place(place)
    token = function(*args)
    place.token = place.token or token
    return (token,)


def _reset_variable(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    if observer.is_known(args[0]):
        observer.open("reset() to a token from before the call")
        return None
    place = observer.variables.get(function.__self__)
    if place is not None and place.token is args[0]:
        place.token = None  # spent: nothing is to be taken back
    return None


RULES = {
    "ContextVar.get": _get_variable, "ContextVar.set": _set_variable,
    "ContextVar.reset": _reset_variable,
}
