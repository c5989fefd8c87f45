"""Settings that a function switches: each call switches them as the recording did.

What a setting was before is a guard where the function has asked for it; NumPy's functions that
change a setting give the former one, so they ask, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.anomaly import Anomaly
from ...frontend.functions import settings
from ...frontend.promote import Defaults
from ..version.guards import Entry
from .places import Place

if TYPE_CHECKING:
    from .observer import Observer

# where graphc's own functions keep what they set, and what they tell
_OWN: dict[str, tuple[type, str]] = {
    "set_default_dtype": (Defaults, "dtype"),
    "set_default_tensor_type": (Defaults, "dtype"),
    "use_deterministic_algorithms": (settings._State, "deterministic"),
    "are_deterministic_algorithms_enabled": (settings._State, "deterministic"),
    "set_float32_matmul_precision": (settings._State, "matmul_precision"),
    "get_float32_matmul_precision": (settings._State, "matmul_precision"),
    "set_warn_always": (settings._State, "warn_always"),
    "is_warn_always_enabled": (settings._State, "warn_always"),
    "is_anomaly_enabled": (Anomaly, "enabled"),
    "is_anomaly_check_nan_enabled": (Anomaly, "check_nan"),
}


def read(observer: Observer, function: Any, name: str, args: tuple[Any, ...]) -> Any:
    """What a function of graphc's own tells of a setting."""
    if name not in _OWN:
        return observer.result(function, args, f"{name}()")
    observer.read(*_OWN[name], f"{name}()")
    return function(*args)


def write(observer: Observer, name: str) -> None:
    """A function of graphc's own is about to change a setting."""
    if name in _OWN:
        observer.write(*_OWN[name], "torch's settings")
    else:
        observer.open(f"{name}(), which changes a setting for what follows,")


# --- NumPy's ---------------------------------------------------------------------------------


class OfNumPy(Place):
    """A setting of NumPy's, by the function that changes it."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(NUMPY[name], name, f"what numpy.{name}() sets")

    def get(self) -> Any:
        """What is set; the same object for the same."""
        found = self.container[0]()
        return _met.setdefault(found, found)

    def set(self, value: Any) -> None:
        """Set it."""
        self.container[1](value)


_met: dict[Any, Any] = {}


def _pairs(read: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: tuple(read().items())


NUMPY: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "seterr": (_pairs(np.geterr), lambda value: np.seterr(**dict(value))),
    "setbufsize": (np.getbufsize, np.setbufsize),
    "set_printoptions": (
        _pairs(np.get_printoptions), lambda value: np.set_printoptions(**dict(value))
    ),
}


def ask(observer: Observer, name: str, switches: bool) -> None:
    """A setting of NumPy's is read, and perhaps about to be changed."""
    place = OfNumPy(name)
    if place not in observer.fields:
        observer.guards.add(Entry(place, place.get(), identity=False))
    if switches:
        observer.save_place(place)
