"""NumPy's settings, as places: each call switches them as the recording did.

NumPy's functions that change a setting give the former one, so they ask for it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .places import Place


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
