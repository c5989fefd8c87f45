"""Places in a function's roots: an attribute, an item, a global or a closure cell."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, deque
from contextvars import ContextVar
from datetime import datetime, time
from typing import Any

import numpy as np

from ...frontend.tensor import Tensor
from .kinds import Kind, kind_of

MISSING = object()  # what a place gives where there is nothing


def own_methods(value: Any) -> Any:
    """The class whose methods read and write a dictionary, whatever a subclass makes of them:
    an OrderedDict keeps an order of its own."""
    return OrderedDict if isinstance(value, OrderedDict) else dict


class Place:
    """One entry of a root container: an attribute, an item, a global or a closure cell."""

    __slots__ = ("container", "key", "path")

    def __init__(self, container: Any, key: Any, path: str) -> None:
        self.container, self.key, self.path = container, key, path

    def get(self) -> Any:
        """What is there now; a marker if nothing is."""
        container = self.container
        if type(container) is dict:  # most places are
            return container.get(self.key, MISSING)
        if type(container) is types.CellType:
            try:
                return container.cell_contents
            except ValueError:
                return MISSING
        if isinstance(container, type):
            return vars(container).get(self.key, MISSING)
        if type(self.key) is types.MemberDescriptorType:
            try:
                return self.key.__get__(container)
            except AttributeError:
                return MISSING
        if isinstance(container, dict):
            return dict.get(container, self.key, MISSING)
        if type(container) is ContextVar:
            return container.get(MISSING)
        if type(self.key) is str:  # Kind.FIELDS: of a threading.local, this thread's
            return getattr(container, self.key, MISSING)
        try:
            kind = deque if isinstance(container, deque) else list
            return kind.__getitem__(container, self.key)
        except IndexError:
            return MISSING

    def set(self, value: Any) -> None:
        """Put a value there."""
        if type(self.container) is types.CellType:
            self.container.cell_contents = value
        elif type(self.key) is types.MemberDescriptorType:
            self.key.__set__(self.container, value)
        elif isinstance(self.container, type):  # past a metaclass's own, which was recorded
            type.__setattr__(self.container, self.key, value)
        elif isinstance(self.container, dict):
            own_methods(self.container).__setitem__(self.container, self.key, value)
        elif type(self.container) is ContextVar:
            self.container.set(value)
        elif type(self.key) is str:
            setattr(self.container, self.key, value)
        else:
            self.container[self.key] = value

    def put(self, value: Any) -> None:
        """Put a value that `get` gave, or nothing where there was nothing."""
        if value is not MISSING:
            self.set(value)
        elif type(self.container) is types.CellType:
            if self.get() is not MISSING:
                del self.container.cell_contents
        elif type(self.key) is types.MemberDescriptorType:
            if self.get() is not MISSING:
                self.key.__delete__(self.container)
        elif isinstance(self.container, dict):
            own_methods(self.container).pop(self.container, self.key, None)
        elif self.get() is MISSING:
            return
        elif isinstance(self.container, type):
            type.__delattr__(self.container, self.key)
        elif type(self.key) is str:
            delattr(self.container, self.key)

    @staticmethod
    def is_missing(value: Any) -> bool:
        """Whether `get` found nothing."""
        return value is MISSING

    def _identity(self) -> tuple[int, Any]:
        return id(self.container), id(self.key) if isinstance(self.key, Tensor) else self.key

    def __hash__(self) -> int:
        return hash(self._identity())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._identity() == other._identity()

    def fetch(self) -> Any:
        """The number there now (Place is the source of a lifted number)."""
        return self.get()

    def __repr__(self) -> str:
        return self.path


class Length(Place):
    """How many items a container has: a number that is read, not written."""

    __slots__ = ()

    def __init__(self, container: Any, path: str) -> None:
        super().__init__(container, _LENGTH, path)

    def get(self) -> Any:
        """The number now."""
        return len(self.container)

    def set(self, value: Any) -> None:
        """The container itself tells."""


_LENGTH = object()


def key_of(key: Any) -> Any:
    """What stands for a key in a set: tensors do not compare as keys do."""
    return id(key) if issubclass(type(key), Tensor) else (type(key), key)


def same(a: Any, b: Any) -> bool:
    """Equality of plain values: same type, NaN equal to NaN, what is told apart; False for
    anything that is compared by identity."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _TOLD_APART or issubclass(kind, np.generic) or is_decimal(kind):
        return repr(a) == repr(b)
    if kind is tuple:
        return len(a) == len(b) and all(
            x is y or same(x, y) for x, y in zip(a, b, strict=True)
        )
    return kind_of(kind) is Kind.VALUE and bool(a == b)


# values of which two may be equal and yet not the same: 0.0 and -0.0, one time in two zones; and
# Decimal("1.0") and Decimal("1.00")
_TOLD_APART = frozenset((float, complex, range, slice, datetime, time))


def is_decimal(kind: type) -> bool:
    """Whether it is decimal.Decimal, which need not be imported yet."""
    return kind.__name__ == "Decimal" and kind is getattr(sys.modules.get("decimal"), "Decimal", 0)
