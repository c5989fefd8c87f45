"""What one recording of a function read and wrote: guards, and containers as they were before.

The user's Python runs in rewritten copies of its code (instrument.py) whose every read, write,
call and iteration comes by here. What existed before the call is *known*: it was read from a
place that is guarded. Everything else the call made itself; that needs no guard. What graphc does
not understand is *open*: `open()` ends the attempt to make one graph, before it happens.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MappingProxyType
from typing import Any

from ...frontend.context import local
from ...frontend.errors import TraceError, located
from ...frontend.saved_hooks import unpacking
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.texts import is_traced_value
from ...frontend.trace import Trace
from ...frontend.watched import Watched, WatchedOrdered
from ...nn.modules.module import Module
from ..version.guard_list import Guards
from ..version.guards import Cached, Code, Entry, Guard, Items, Referent, Result, Type
from .class_members import ClassMembers
from .kinds import is_ours, is_plain, is_standard, is_standard_class
from .machinery import inside_machinery
from .numpy_settings import OfNumPy
from .places import MISSING, Place, key_of
from .streams import Draw, Stream, put_back
from .whole_reads import WholeReads
from .writes import Repeat


class _Running(threading.local):
    """The observer of the recording that this thread runs; None outside."""

    observer: Observer | None = None


running = _Running()


class Observer(ClassMembers, WholeReads):
    """The reads and writes of one recording."""

    def __init__(self, trace: Trace, name: str, calls: Any) -> None:
        super().__init__()
        self.trace, self.name, self._calls = trace, name, calls
        self.guards = Guards()
        self.known: dict[int, tuple[Any, str]] = {}  # what existed before, by id; with its path
        self.pairs: list[tuple[Any, Any, bool]] = []  # `is` between tensors from before
        self.handled = sys.exc_info()[1]  # an exception from before the call
        self.looked_at_grad = False  # the user's own code has read a .grad
        self.copies: dict[int, Any] = {}  # containers among the arguments, by id of their copies
        # tensors whose gradients the call itself has computed, or may have
        self.differentiated: list[Tensor] = []
        self.constants: Any = None  # exits.Constants
        self.draws: list[Draw] = []  # of random numbers, in order
        self.streams: dict[Stream, Any] = {}  # that they come from, and their states before
        # ids of containers that users' functions in schedules read; where one is running, the same
        self.read_by_schedules: set[int] = set()
        self.looked_at: set[int] | None = None
        self.later = False  # what runs is what a later backward pass would run (later.py)
        self.began = False  # the clock was read before anything was recorded
        self.ended: int | None = None  # how much was, when it was read next
        self._paused = False
        self._read: set[Any] = set()
        self._whole: set[int] = set()
        self._lookups: dict[tuple[int, str], Any] = {}

    # --- what is done, recorded; calls.py ------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the recording still is that of the whole function."""
        return self.trace.whole and self.trace.open and not self._paused

    @property
    def reads(self) -> tuple[set[Any], set[int]]:
        """Tokens of what was read, and ids of what was read whole: each is guarded once."""
        return self._read, self._whole

    @reads.setter
    def reads(self, found: tuple[set[Any], set[int]]) -> None:
        self._read, self._whole = found
        self._lookups.clear()

    @property
    def entry_code(self) -> Any:
        """The code that calls the user's function."""
        return getattr(self.trace, "entry", None)

    def repeat(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Repeat:
        """Each call calls a function outside the program; so it is if one graph is given up."""
        self._not_later()
        place = super().repeat(function, args, kwargs)

        def now() -> None:
            place.set([_number(value) for value in self.repeats[place]])

        now.repeats = place  # type: ignore[attr-defined]
        self.trace.deferred.append(now)
        return place

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """What to call in place of a function."""
        return self._calls.call(self, function, args, kwargs)

    def invoke(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function as the user's code would."""
        return self._calls.invoke(self, function, *args, **kwargs)

    run = invoke

    def entry(self, function: Any) -> Any:
        """What code that is not rewritten may call in place of a user's function."""
        return self._calls.entry(self, function)

    # --- what existed before -----------------------------------------------------------------

    def is_known(self, value: Any) -> bool:
        """Whether an object existed before the call."""
        return id(value) in self.known

    def know(self, value: Any, path: str) -> Any:
        """Note that an object existed before the call; gives it."""
        if id(value) not in self.known:
            self.known[id(value)] = value, path
        return value

    def taint(self, what: str) -> None:
        """From here on the trace cannot go on in segments: it would be taken back."""
        if isinstance(self.trace, SegmentTrace):
            self.trace.tainted = self.trace.tainted or what

    def path(self, value: Any) -> str:
        """An object's name in the user's words."""
        found = self.known.get(id(value))
        return type(value).__name__ if found is None else found[1]

    def open(self, what: str, cure: str = "", owner: Any = None) -> None:
        """End the attempt to make one graph of the function: `what` is not understood.

        Where graphc's own code is at work (a backward pass that runs a hook), it cannot be ended
        in place: everything is taken back, and the function starts again, in segments.
        """
        if inside_machinery():
            self.taint(what)
        self.trace.opened(
            what, (cure or "do this outside and pass the result in") + self.trace.otherwise, owner
        )

    # --- reads ---------------------------------------------------------------------------------

    def read(
        self, container: Any, key: Any, path: str, counted: bool = False, owner: Any = None
    ) -> Any:
        """The value at a place of a container that existed before; MISSING where there is none.
        `owner`: whose `__dict__` the container is."""
        self.looks_at(container)
        place = Place(container, key, path)
        if self.trace.late.changes(container, key, place.get()):
            self.open(f"reading {path} after a schedule's step")
        value = place.get()
        token = (id(container), key_of(key))
        if token in self._read:
            return value
        if self.was_written(place, value):
            self.passes(path)
            return value
        self._read.add(token)
        self._kept.append(container)
        if place in self.lifted or is_traced_value(value):
            self.passes(path)
            return value
        self.guards.add(Entry(place, value, not is_plain(value)), counted)
        if counted and owner is not None:
            self.guards.field(owner, container, key, value, self.path(owner))
        if value is not MISSING:
            self.know(value, path)
        return value

    def passes(self, path: str) -> None:
        """What a place holds is of this call alone: a later backward pass may find another."""
        if self.later and not unpacking.again:
            self.open(f"reading {path} in what a later backward() runs,")

    def looks_at(self, container: Any) -> None:
        """Something in a container is read."""
        if self.looked_at is not None:
            self.looked_at.add(id(container))

    def was_read(self, place: Place) -> bool:
        """Whether a place was read before the call wrote to it."""
        key = place.key
        token = (id(place.container), key_of(key))
        return token in self._read or id(place.container) in self._whole

    def is_of_the_call(self, place: Place, value: Any) -> bool:
        if not issubclass(type(value), Tensor) or value._graphc_trace is not None:
            return False
        trace = self.trace
        given = trace.argument_index(value) >= 0 or trace.grad_owner(value) is not None
        return given and not self.was_read(place)

    def was_written(self, place: Place, value: Any) -> bool:
        """Whether the call itself has put the value there."""
        keys = self.keys.get(id(place.container), ())
        if (place.key in keys or place in self.fields) and self.is_of_the_call(place, value):
            return True
        if place in self.fields:
            return self.fields[place] is not value
        saved = self.saved.get(id(place.container))
        if saved is None:
            return False
        copy = saved[1]
        if isinstance(copy, dict):
            return copy.get(place.key, MISSING) is not value
        if isinstance(copy, list) and isinstance(place.key, int) and (
            id(place.container) not in self.reshaped
        ):
            inside = -len(copy) <= place.key < len(copy)
            return not inside or copy[place.key] is not value
        return True

    def behind(self, value: Any) -> Any:
        """The mapping that a types.MappingProxyType shows; anything else is itself."""
        if type(value) is not MappingProxyType:
            return value
        mapping = gc.get_referents(value)[0]
        return self.know(mapping, self.path(value)) if self.is_known(value) else mapping

    def numpy_settings(self, text: bool = True) -> None:
        """NumPy computes, or makes a text of what it has."""
        self.numpy_setting("seterr", switches=False)
        if text:
            self.numpy_setting("set_printoptions", switches=False)

    def numpy_setting(self, name: str, switches: bool) -> None:
        """A setting of NumPy's is read, and perhaps about to be changed."""
        place = OfNumPy(name)
        if place not in self.fields:
            self.guards.add(Entry(place, place.get(), identity=False))
        if switches:
            self.save_place(place)

    def identity(self, a: Any, b: Any, same: bool) -> None:
        """`a is b` was asked: of tensors from before, each call answers anew (different.py)."""
        if not same and type(a) is type(b) and (id(a) in self.copies or id(b) in self.copies):
            self.open(f"comparing a {type(a).__name__} among the arguments by identity")
        if all(issubclass(type(v), Tensor) and v._graphc_trace is None for v in (a, b)):
            self.pairs.append((a, b, same))

    def hashed(self, tensor: Tensor) -> None:
        """A tensor is a key, or in a set: which one an argument is, each call says anew."""
        if self.running and self.trace.argument_index(tensor) >= 0:
            self.open("a tensor among the arguments as a key, or in a set,")

    @staticmethod
    def is_watched(container: Any) -> bool:
        """Whether a container counts its writes."""
        return issubclass(type(container), (Watched, WatchedOrdered))

    def note_real(self, container: Any) -> None:
        """A write to a container outside the recording is made for good."""
        if local.trace is None:
            self.real.add(id(container))

    def result(self, function: Callable[..., Any], arguments: tuple[Any, ...], path: str,
               counted: bool = False) -> Any:
        """What a function without effects gives, guarded."""
        value = function(*arguments)
        token = (function, tuple(map(id, arguments)))
        if token not in self._read:
            self._read.add(token)
            self._kept.append(arguments)
            self.guards.add(Result(function, arguments, value, path), counted)
        return self.know(value, path) if not is_plain(value) else value

    def plainly(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives that reads its arguments alone, which are noted already."""
        with self.unobserved():
            return function(*args, **kwargs)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Inside, Python is not looked at."""
        outer, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = outer

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Inside, it is looked at again."""
        outer, self._paused = self._paused, False
        try:
            yield
        finally:
            self._paused = outer

    def cached(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], path: str
    ) -> Any:
        """What a function with a cache (functools.lru_cache) gives, as it would without a
        recording: from the cache, or for real; it is asked again at each call."""
        call = functools.partial(function, **kwargs) if kwargs else function
        with self.unobserved(), self.trace.suspended():
            value = call(*args)
        self._kept.append((call, args, value))
        self.guards.add(Cached(call, args, value, path))
        return value if is_plain(value) else self.know(value, path)

    def referent(self, reference: Any) -> Any:
        """What a weak reference that existed before refers to."""
        value = reference()
        if self.is_known(reference) and (id(reference), "referent") not in self._read:
            self._read.add((id(reference), "referent"))
            self._kept.append(reference)
            self.guards.add(Referent(reference, f"{self.path(reference)}()"))
            if value is not None:
                self.know(value, f"{self.path(reference)}()")
        return value

    def kind(self, value: Any) -> None:
        """The class of an object that existed before is relied on."""
        token = (id(value), "class")
        if token not in self._read:
            self._read.add(token)
            self._kept.append(value)
            # an object that a place holds is looked at through that place; of graphc's own
            # classes Modules alone are given others
            kind = type(value)
            own = is_ours(kind)
            if issubclass(kind, Module) if own else not is_standard_class(kind):
                self.guards.add(Type(value, self.path(value)), counted=own)

    def code(self, function: FunctionType) -> None:
        """The code and the defaults of a function are relied on."""
        token = (id(function), "code")
        made = function.__code__.co_flags & inspect.CO_NESTED and not self.is_known(function)
        if made or token in self._read:  # what the call itself defines need not be guarded
            return
        self._read.add(token)
        self._kept.append(function)
        for i, value in enumerate(function.__defaults__ or ()):
            self.know(value, f"default {i} of {function.__name__}()")
        for name, value in (function.__kwdefaults__ or {}).items():
            self.know(value, f"default {name} of {function.__name__}()")
        name = function.__module__ or ""
        if self.is_known(function) and not name.startswith("graphc.") and not is_standard(name):
            self.guards.add(Code(function, f"{function.__qualname__}()"))

    def draw(self, stream: Stream, name: str, args: tuple[Any, ...]) -> Any:
        """A number that a generator gives: it is drawn at each call."""
        self._not_later()
        self.streams.setdefault(stream, stream.get())
        numbers = self.trace.numbers
        given = tuple([
            value.expression if is_traced_value(value) else numbers.leaf("constant", value, value)
            for value in args
        ])
        for each in given:
            self.trace.late.forbid(each, "a random number for")
        self._effects += 1
        value = getattr(stream.container, name)(*[each.value for each in given])
        draw = Draw(stream, name, given, type(value))
        self.draws.append(draw)
        return self.trace.lift_number(value, draw)

    # --- writes --------------------------------------------------------------------------------

    def restore(self) -> None:
        """Put everything back as it was."""
        super().restore()
        put_back(self.streams.items())

    def save(self, container: Any, path: str = "") -> None:
        """A container that existed before is about to be written to."""
        self._not_later()
        if isinstance(container, type):
            self._lookups.clear()
        if container in self.trace.late:
            self.open(f"writing to {self.path(container)} after a schedule's step")
        super().save(container, path)

    def save_place(self, place: Place) -> bool:
        """A slot, a cell or an attribute that stands alone is about to be written to."""
        self._not_later()
        return super().save_place(place)

    def _not_later(self) -> None:
        if self.later:
            self.open("an effect of what a later backward() runs,")

    # --- the end -------------------------------------------------------------------------------

    def seal(self) -> None:
        """The recording is over, and its changes are taken back: guards on state that the call
        made for good say how that is now. Raises TraceError where another one does not hold."""
        for guard in self.guards.all_broken():
            if not self._made_for_good(guard):
                raise TraceError(self.error(f"changes {guard.path}"))
            guard.renew()
        self.guards.seal()

    def settle(self) -> None:
        """Nothing more is asked: what was met need not be kept."""
        self.known = {}
        self._kept, self.pairs, self.differentiated = [], [], []

    def _made_for_good(self, guard: Guard) -> bool:
        if isinstance(guard, Entry):
            return id(guard.place.container) in self.real
        if isinstance(guard, Items):
            return id(guard.container) in self.real
        return isinstance(guard, Result) and any(id(a) in self.real for a in guard.arguments)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor that was met."""
        return (value for value, _ in self.known.values() if issubclass(type(value), Tensor))

    def error(self, text: str) -> str:
        """A message with the user's line."""
        return located(f"compiled {self.name}() {text}")


def _number(value: Any) -> Any:
    """A number or a text of the trace as what it was in this run."""
    return value.expression.value if is_traced_value(value) else value
