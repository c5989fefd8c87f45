"""Guards: what a version relies on, each a record that can be checked, printed and renewed.

A version skips the user's Python; its guards say why that is right. Here are those on the state
of the user's objects; guards_of_calls.py has those on what a call is given, guard_list.py the list.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable
from enum import IntEnum
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.numbers import is_traced_number
from ...frontend.tensor import Tensor
from ..capture.kinds import Kind, kind_of
from ..capture.places import MISSING, Place, same
from ..detour import original

if TYPE_CHECKING:
    from .call import Call


class Asked(IntEnum):
    """When a guard is asked."""

    KEY = 0  # never: it is what a version is found by
    STATE = 1  # before anything else
    CALL = 2  # of what was given
    MEMORY = 3  # of each input's memory, which says what named sizes are
    FETCHED = 4  # of these sizes, and of all memory
    NUMBERS = 5  # of run-time numbers: random ones are drawn for it
    LAST = 6  # of a call that otherwise fits: asking fills the user's caches


class Guard:
    """Something that must be as it was. `path` is its name in the user's words."""

    __slots__ = ("counted", "path")
    path: str
    asked = Asked.STATE
    counted: bool

    @property
    def cost(self) -> int:
        """What asking takes, in steps of Python: attributes, look-ups, comparisons, calls. As
        measured, a step is some 30 ns."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether it is as it was."""
        raise NotImplementedError

    def holds_for(self, call: Call) -> bool:
        """Whether it holds in a call."""
        return self.holds()

    def reason(self, call: Call) -> str:
        """What to say of a call in which it does not."""
        return f"{self.path} changed"

    def renew(self) -> None:
        """Take over how it is now: state that the first call made for good."""

    def tensors(self) -> Iterable[tuple[Place, Any]]:
        """(place, tensor) of the tensors that must be the same ones."""
        return ()

    def let_go(self, kept: Callable[[Any, int], Any]) -> None:
        """As TracedGraph.let_go(), of what has no record there."""

    def about(self) -> Any:
        """The object that it looks into."""
        return None

    def text(self) -> str:
        """For explain()."""
        return self.path


class Entry(Guard):
    """A place holds this value: the same object, or an equal plain value."""

    __slots__ = ("identity", "place", "reference", "value")
    cost = 7

    def __init__(self, place: Place, value: Any, identity: bool) -> None:
        self.place, self.value, self.identity, self.path = place, value, identity, place.path
        self.reference: Any = None
        self._let_go()

    def _let_go(self) -> None:
        """Do not keep a user's object alive."""
        if self.identity and kind_of(type(self.value)) is Kind.INSTANCE:
            try:
                self.reference = weakref.ref(self.value)
            except TypeError:
                return
            self.value = None

    def holds(self) -> bool:
        now = self.place.get()
        if self.reference is not None:
            return now is not None and now is self.reference()
        return now is self.value or (not self.identity and same(now, self.value))

    def renew(self) -> None:
        self.value, self.reference = self.place.get(), None
        self._let_go()

    def tensors(self) -> Iterable[tuple[Place, Any]]:
        return [(self.place, self.value)] if isinstance(self.value, Tensor) else []

    def about(self) -> Any:
        return self.place.container

    def text(self) -> str:
        if self.reference is not None:
            return f"{self.path} is the same {type(self.reference()).__name__}"
        if self.place.is_missing(self.value):
            return f"{self.path} is not there"
        if self.identity:
            return f"{self.path} is the same {type(self.value).__name__}"
        return f"{self.path} == {self.value!r}"


class Items(Guard):
    """A container has these items, and no others: the same objects, or equal plain values.

    Where the version fetches an item at each call, any tensor or number is as good (`fetched`).
    """

    __slots__ = ("container", "fetched", "items", "read")

    def __init__(
        self, container: Any, read: Callable[[Any], list[Any]], path: str, was: Any = None
    ) -> None:
        """`was`: a copy from before the call's own writes."""
        self.container, self.read, self.path = container, read, path
        self.items = read(container if was is None else was)
        self.fetched: dict[int, type] = {}  # by position
        for i, item in enumerate(self.items):
            if is_traced_number(item):  # a run-time input already
                self.fetched[i] = int if item.is_integer_number else float
                self.items[i] = None

    def holds(self) -> bool:
        now = self.read(self.container)
        if len(now) != len(self.items):
            return False
        return all(map(operator.is_, now, self.items)) or all(
            a is b or same(a, b) or (i in self.fetched and isinstance(a, self.fetched[i]))
            for i, (a, b) in enumerate(zip(now, self.items, strict=True))
        )

    @property
    def cost(self) -> int:
        return 12 + len(self.items)

    def fetch(self, place: Place) -> None:
        """The version fetches what is at a place of the container."""
        for i, (at, item) in enumerate(self._places()):
            if at == place and i not in self.fetched:
                self.fetched[i] = Tensor if isinstance(item, Tensor) else type(item)
                self.items[i] = None

    def _places(self) -> Iterable[tuple[Place | None, Any]]:
        for i, item in enumerate(self.items):
            if isinstance(self.container, dict):
                key = self.items[i - 1] if i % 2 else None
                yield Place(self.container, key, self.path) if i % 2 else None, item
            elif isinstance(self.container, np.ndarray):
                yield None, item
            else:
                yield Place(self.container, i, self.path), item

    def tensors(self) -> Iterable[tuple[Place, Any]]:
        return [
            (place or Place(self.container, item, self.path), item)
            for place, item in self._places() if isinstance(item, Tensor)
        ]

    def renew(self) -> None:
        self.items, self.fetched = self.read(self.container), {}

    def about(self) -> Any:
        return self.container

    def text(self) -> str:
        return f"{self.path} has the same {len(self.items)} items"


class Type(Guard):
    """An object is of this class, and its `__dict__` is the same one."""

    __slots__ = ("fields", "kind", "value")
    cost = 7  # no more than an Entry: what others ask of an object relies on its class

    def __init__(self, value: Any, path: str) -> None:
        self.kind, self.path = type(value), path
        self.fields = _number_of_fields(value)
        self.value: Callable[[], Any]
        try:
            self.value = weakref.ref(value)
        except TypeError:
            self.value = lambda: value

    def holds(self) -> bool:
        value = self.value()
        return type(value) is self.kind and _number_of_fields(value) == self.fields

    def about(self) -> Any:
        return self.value()

    def text(self) -> str:
        return f"{self.path} is a {self.kind.__qualname__}"


def _number_of_fields(value: Any) -> int:
    """The id of an object's `__dict__`, which guards on what it holds keep taken; 0 for none."""
    try:
        return id(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return 0


class Code(Guard):
    """A Python function has this code, and these defaults."""

    __slots__ = ("code", "defaults", "function", "keywords")
    cost = 8

    def __init__(self, function: FunctionType, path: str) -> None:
        self.function, self.path = function, path
        self.code, self.defaults = original(function.__code__), function.__defaults__
        self.keywords = None if function.__kwdefaults__ is None else dict(function.__kwdefaults__)

    def holds(self) -> bool:
        function = self.function
        if original(function.__code__) is not self.code or (
            function.__defaults__ is not self.defaults
        ):
            return False
        now = function.__kwdefaults__
        if now is None or self.keywords is None:
            return now is self.keywords
        return now.keys() == self.keywords.keys() and all(
            now[k] is v or same(now[k], v) for k, v in self.keywords.items()
        )

    def text(self) -> str:
        return f"the code and defaults of {self.path}"


class Result(Guard):
    """A function without effects gives this for these arguments."""

    __slots__ = ("arguments", "function", "value")
    cost = 8  # of the functions that are asked most: the number of items, an order of classes

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], value: Any, path: str
    ) -> None:
        self.function, self.arguments, self.value, self.path = function, arguments, value, path

    def holds(self) -> bool:
        try:
            now = self.function(*self.arguments)
        except Exception:
            return False
        return now is self.value or same(now, self.value)

    def renew(self) -> None:
        self.value = self.function(*self.arguments)

    def about(self) -> Any:
        return self.arguments[0] if self.arguments else None

    def text(self) -> str:
        return f"{self.path} gives {self.value!r}"


class Cached(Result):
    """A function with a cache gives this: asked for real, at each call."""

    __slots__ = ()
    asked = Asked.LAST


class Referent(Guard):
    """A weak reference refers to the same object."""

    __slots__ = ("number", "reference")
    cost = 4

    def __init__(self, reference: Callable[[], Any], path: str) -> None:
        self.reference, self.path = reference, path
        self.number = id(reference())

    def holds(self) -> bool:
        return id(self.reference()) == self.number

    def text(self) -> str:
        return f"{self.path} is alive" if self.reference() is not None else f"{self.path} is None"


class OfArgument(Guard):
    """A tensor among the arguments has an attribute of the user's with this value, or lacks it."""

    __slots__ = ("index", "name", "value")
    asked, cost = Asked.CALL, 7

    def __init__(self, index: int, name: str, value: Any) -> None:
        self.index, self.name, self.value = index, name, value
        self.path = f"{name} of argument {index}"

    def holds_for(self, call: Call) -> bool:
        now = vars(call.arguments[self.index]).get(self.name, MISSING)
        return now is self.value or same(now, self.value)

    def text(self) -> str:
        if self.value is MISSING:
            return f"{self.path} is not there"
        return f"{self.path} == {self.value!r}"


class Array(Guard):
    """A NumPy array has this shape, type and these values."""

    __slots__ = ("array", "dtype", "shape", "values")

    def __init__(self, array: np.ndarray, path: str) -> None:
        self.array, self.path = array, path
        self.values, self.shape, self.dtype = array.tobytes(), array.shape, array.dtype

    @property
    def cost(self) -> int:
        return 8 + len(self.values) // 64

    def holds(self) -> bool:
        array = self.array
        return (
            array.shape == self.shape and array.dtype == self.dtype
            and array.tobytes() == self.values
        )

    def text(self) -> str:
        return f"the values of {self.path}"


class Fields(Guard):
    """In a Module's `__dict__`, these names are absent, and graphc's own fields are the same
    objects: the count of writes does not see what is written to the dict itself."""

    __slots__ = ("absent", "fields", "names", "owner", "values")

    def __init__(self, owner: Any, fields: dict[str, Any], path: str) -> None:
        self.owner, self.fields, self.path = weakref.ref(owner), fields, path
        self.absent: set[str] = set()
        self.names: list[str] = []
        self.values: list[Any] = []

    @property
    def cost(self) -> int:
        return 10 + 2 * len(self.names) + len(self.absent)

    def note(self, name: str, value: Any) -> None:
        """One more that was read; MISSING where there is none."""
        if value is MISSING:
            self.absent.add(name)
        elif name not in self.names:
            self.names.append(name)
            self.values.append(value)

    def holds(self) -> bool:
        owner, fields = self.owner(), self.fields
        return (
            getattr(owner, "__dict__", None) is fields and fields.keys().isdisjoint(self.absent)
            and all(map(operator.is_, map(fields.get, self.names), self.values))
        )

    def renew(self) -> None:
        self.values = list(map(self.fields.get, self.names))

    def about(self) -> Any:
        return self.fields

    def text(self) -> str:
        absent = ", ".join(sorted(self.absent))
        return f"{self.path}.__dict__ has the same {', '.join(self.names)}, and no {absent}"
