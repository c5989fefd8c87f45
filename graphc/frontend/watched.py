"""Dictionaries whose writes are counted (state_version.py).

Guards of compiled functions are checked again only when the count has moved; so what Modules and
optimizers hold in dictionaries is held in these, and writing to one directly is noticed too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from . import state_version

_ABSENT = object()


class Watched(dict[Any, Any]):
    """A dict that counts its writes."""

    def __setitem__(self, key: Any, value: Any) -> None:
        state_version.bump()
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        state_version.bump()
        dict.__delitem__(self, key)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        """Remove all items."""
        state_version.bump()
        dict.clear(self)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Remove a key; its value, or the default. Raises KeyError."""
        state_version.bump()
        return dict.pop(self, key) if default is _ABSENT else dict.pop(self, key, default)

    def popitem(self) -> tuple[Any, Any]:
        """Remove and return the last item."""
        state_version.bump()
        return dict.popitem(self)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key, set to the default where it is missing."""
        state_version.bump()
        return dict.setdefault(self, key, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take over the items of a mapping or of pairs."""
        state_version.bump()
        dict.update(self, *args, **kwargs)


class WatchedDefault(Watched):
    """A Watched whose missing values are new Watched (an optimizer's state by parameter)."""

    def __missing__(self, key: Any) -> Watched:
        made = Watched()
        self[key] = made
        return made


class WatchedOrdered(OrderedDict[Any, Any]):
    """An OrderedDict that counts its writes: the hooks of a Module."""

    def __repr__(self) -> str:
        return repr(OrderedDict(self))

    def __setitem__(self, key: Any, value: Any) -> None:
        state_version.bump()
        OrderedDict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        state_version.bump()
        OrderedDict.__delitem__(self, key)

    def clear(self) -> None:
        """Remove all items."""
        state_version.bump()
        OrderedDict.clear(self)

    def move_to_end(self, key: Any, last: bool = True) -> None:
        """Make a key the last, or the first."""
        state_version.bump()
        OrderedDict.move_to_end(self, key, last)

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        """Remove and return the last item, or the first."""
        state_version.bump()
        return OrderedDict.popitem(self, last)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Remove a key; its value, or the default. Raises KeyError."""
        state_version.bump()
        return OrderedDict.pop(self, key) if default is _ABSENT else (
            OrderedDict.pop(self, key, default)
        )
