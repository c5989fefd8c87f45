"""What a compiled function reads besides its arguments: found, guarded, restored.

Roots are the function, `self`, closure cells, the globals that its code names, and whatever is
reached from those and from arguments that are not tensors: Modules, optimizers, containers and
plain objects. Of an object only the attributes that the code in reach names are looked at: what
a training loop notes down beside them never makes a version stale. Every container met is kept
with a copy of its items, so that

- a later call can check that nothing it relied on has changed (`Snapshot.holds`),
- a failed trace can put everything back (`Snapshot.restore`),
- what the function's Python changed is known (`Snapshot.changes`) and done again at each call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...frontend import state_version
from ...frontend.numbers import is_traced_number
from ...frontend.tensor import Tensor
from ...frontend.trace import Trace
from ...frontend.watched import Watched
from ...ir.dtypes import DType
from ...optim.lr_scheduler import LRScheduler
from ...optim.optimizer import Optimizer, ParamGroup
from .hidden_state import HiddenState
from .places import MISSING, Place, same
from .root_code import (
    code_names,
    code_of,
    is_user_class,
    is_user_code,
    is_user_module,
    library_names,
    loaded_names,
    stored_globals,
)

_PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Path, slice, range)
_OPAQUE = (types.BuiltinFunctionType, np.generic, Trace)
# code that names one of these may read any attribute
_DYNAMIC = frozenset(
    "getattr vars dir eval exec __dict__ __getattribute__ attrgetter deepcopy copy asdict astuple"
    " fields pickle dumps".split()
)
# special methods that no mere use of an instance calls
_UNCALLED = frozenset("__init__ __new__ __post_init__ __del__ __repr__ __str__ __reduce__".split())
_READERS = ("get_last_lr", "get_lr", "print_lr", "state_dict")  # of a schedule's attributes
_Entry: TypeAlias = "tuple[Any, str, bool, Place | None]"


class Snapshot:
    """The roots of a function at one moment."""

    def __init__(self) -> None:
        self.version = state_version.current()
        # containers with a copy; `counted` ones bump the state version when they change
        self.containers: list[tuple[Any, Any, bool, str]] = []
        # entries whose value is compared: (place, value, by identity)
        self.loose: list[tuple[Place, Any, bool]] = []
        self.counted: list[tuple[Place, Any, bool]] = []
        # containers whose items must stay the same ones: [container, how many, known keys or None]
        self.sizes: list[list[Any]] = []
        self.counted_sizes: list[list[Any]] = []
        self.hidden = HiddenState()
        self.named: dict[Place, Any] = {}  # globals that the code names
        self.objects: dict[int, Any] = {}  # classes, by the id of an instance's attributes
        self._seen: dict[int, Any] = {}
        self._stack: list[_Entry] = []
        self._names: set[str] = set()  # that the code in reach has
        self._loaded: set[str] = set()  # that it reads, too
        self._everything = False
        self._members: set[tuple[str, int]] = set()  # classes whose members were collected
        self._waiting: dict[str, list[_Entry]] = {}  # attributes that no code has named so far

    # --- use -----------------------------------------------------------------------------

    def broken(self) -> Place | None:
        """The first entry that is no longer as it was; None if all are."""
        found = _first_broken(self.loose) or self._resized(self.sizes)
        if found is not None:
            return found
        if self.hidden.arrays and (path := self.hidden.broken()):
            return Place({}, None, path)
        version = state_version.current()
        if version == self.version:
            return None
        found = _first_broken(self.counted) or self._resized(self.counted_sizes)
        if found is None:
            self.version = version
        return found

    def _resized(self, sizes: list[list[Any]]) -> Place | None:
        """The first container that has other items than it had."""
        for entry in sizes:
            container, size, known, path = entry
            if isinstance(known, set) and isinstance(container, dict):  # attributes
                if len(container) != size:
                    new = container.keys() - known
                    if self._everything or not new.isdisjoint(self._names):
                        return Place(container, None, f"the attributes of {path}")
                    entry[1] = len(container)
            elif len(container) != size or (known is not None and container != known):
                return Place(container, None, f"the size of {path}")
        return None

    def drop(self, places: set[Place]) -> None:
        """Forget entries: their values are run-time inputs."""
        self.loose = [entry for entry in self.loose if entry[0] not in places]
        self.counted = [entry for entry in self.counted if entry[0] not in places]

    def all_broken(self) -> list[Place]:
        """Every entry that is no longer as it was."""
        return [
            place for place, value, identity in (*self.loose, *self.counted)
            if not _holds(place, value, identity)
        ]

    def changes(self) -> Iterator[tuple[Place, Any, Any]]:
        """(place, value before, value now) of every entry that changed or appeared.

        Raises ValueError saying what changed in another way.
        """
        hidden = self.hidden.changed()
        if hidden:
            raise ValueError(hidden)
        for container, copy, _, path in self.containers:
            if isinstance(container, (dict, type)):
                mapping = vars(container) if isinstance(container, type) else container
                if any(key not in mapping for key in copy):
                    raise ValueError(f"removes an entry of {path}")
                for key, now in list(dict(mapping).items()):
                    before = copy.get(key, MISSING)
                    if now is not before:
                        yield Place(container, key, f"{path}[{_key_text(key)}]"), before, now
            elif type(container) is types.CellType:
                place = Place(container, None, path)
                if place.get() is not copy:
                    yield place, copy, place.get()
            else:
                if len(container) != len(copy):
                    raise ValueError(f"changes the length of the list {path}")
                for i, (before, now) in enumerate(zip(copy, container, strict=True)):
                    if now is not before:
                        yield Place(container, i, f"{path}[{i}]"), before, now
        for place, before in self.named.items():
            if (now := place.get()) is not before:
                yield place, before, now

    def only_written(self, place: Place) -> bool:
        """Whether a place is an attribute that no code in reach reads."""
        kind = self.objects.get(id(place.container))
        if kind is None or self._everything or place.key in self._loaded:
            return False
        own = library_names(kind)
        return own is not None and place.key not in own

    def reads(self, names: frozenset[str]) -> bool:
        """Whether code in reach may read attributes of these names."""
        return self._everything or not names.isdisjoint(self._loaded)

    def names(self, name: str) -> bool:
        """Whether code in reach has this name."""
        return name in self._loaded

    def knows(self, value: Any) -> bool:
        """Whether an object was met in the roots."""
        return id(value) in self._seen

    def restore(self) -> None:
        """Put every container back as it was."""
        self.hidden.restore()
        for place, before in self.named.items():
            if place.get() is not before:
                place.put(before)
        for container, copy, _, _ in self.containers:
            if type(container) is types.CellType:
                if copy is not MISSING and Place(container, None, "").get() is not copy:
                    container.cell_contents = copy
            elif isinstance(container, type):
                for key, now in list(vars(container).items()):
                    if now is not copy.get(key, MISSING):
                        Place(container, key, "").put(copy.get(key, MISSING))
            elif isinstance(container, dict):
                if len(container) != len(copy) or any(
                    dict.get(container, key, MISSING) is not value for key, value in copy.items()
                ):
                    dict.clear(container)
                    dict.update(container, copy)
                    state_version.bump()
            elif len(container) != len(copy) or any(
                a is not b for a, b in zip(container, copy, strict=True)
            ):
                container[:] = copy

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor met in the roots."""
        entries = (*self.loose, *self.counted)
        return (value for _, value, _ in entries if isinstance(value, Tensor))

    # --- collection ------------------------------------------------------------------------

    def visit(self, value: Any, path: str) -> None:
        """Collect what is reached from `value`; iterative."""
        stack = self._stack
        stack.append((value, path, False, None))
        while stack:
            value, path, counted, place = stack.pop()
            if place is not None:
                identity = not isinstance(value, _PLAIN)
                entry = (place, value, identity)
                (self.counted if counted else self.loose).append(entry)
            if isinstance(value, (*_PLAIN, *_OPAQUE)):
                continue
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if not isinstance(value, (dict, list, tuple, Tensor)) and self.hidden.note(
                value, path
            ):
                if isinstance(value, set):
                    self.sizes.append([value, len(value), set(value), path])
                continue
            stack.extend(reversed(list(self._children(value, path, counted))))

    def _read(self, names: Iterable[str]) -> None:
        """Note that code in reach reads these names; visit the attributes that waited for them."""
        for name in names:
            if name in self._names:
                continue
            self._names.add(name)
            self._stack.extend(self._waiting.pop(name, ()))
            if name in _DYNAMIC and not self._everything:
                self._everything = True
                for entries in self._waiting.values():
                    self._stack.extend(entries)
                self._waiting.clear()

    def _when_read(self, name: str, entry: _Entry) -> Iterator[_Entry]:
        if self._everything or name in self._names:
            yield entry
        else:
            self._waiting.setdefault(name, []).append(entry)

    def _dict(self, container: dict[Any, Any], path: str, counted: bool) -> Iterator[_Entry]:
        self.containers.append((container, dict(container), counted, path))
        (self.counted_sizes if counted else self.sizes).append(
            [container, len(container), None, path]
        )
        lifted = isinstance(container, ParamGroup)
        for key, value in list(dict.items(container)):
            name = f"{path}[{_key_text(key)}]"
            if lifted and _is_lifted(value):
                continue
            if isinstance(key, Tensor):
                self._seen[id(key)] = key
            yield value, name, counted, Place(container, key, name)

    def _children(self, value: Any, path: str, counted: bool) -> Iterator[_Entry]:
        if isinstance(value, Tensor):
            for hook in (*(value._hooks or {}).values(), *(value._post_hooks or {}).values()):
                yield hook, path, False, None
            return
        if isinstance(value, types.FunctionType):
            yield from self._function(value, path)
        elif isinstance(value, types.MethodType):
            yield value.__self__, "self", False, None
            yield value.__func__, path, False, None
        elif isinstance(value, functools.partial):
            yield value.func, path, False, None
            yield value.args, path, False, None
            yield value.keywords, path, False, None
        elif isinstance(value, type):
            yield from self._class(value, path, called=True)
        elif isinstance(value, dict):
            yield from self._dict(value, path, isinstance(value, Watched))
        elif isinstance(value, list):
            self.containers.append((value, list(value), False, path))
            self.sizes.append([value, len(value), None, path])
            for i, item in enumerate(value):
                yield item, f"{path}[{i}]", False, Place(value, i, f"{path}[{i}]")
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                yield item, f"{path}[{i}]", counted, Place(value, i, f"{path}[{i}]")
        elif isinstance(value, (frozenset, types.ModuleType, MutableMapping)):
            return
        elif hasattr(value, "__compiled_function__"):
            yield value.__compiled_function__, path, False, None
        elif isinstance(getattr(value, "__dict__", None), dict):
            yield from self._object(value, path)

    def _object(self, value: Any, path: str) -> Iterator[_Entry]:
        kind: Any = type(value)
        if (kind.__module__ or "").startswith("graphc.frontend"):
            return
        counted = hasattr(kind, "named_parameters") or isinstance(value, Optimizer)
        attributes = value.__dict__
        self.containers.append((attributes, dict(attributes), counted, path))
        self.objects[id(attributes)] = kind
        (self.counted_sizes if counted else self.sizes).append(
            [attributes, len(attributes), set(attributes), path]
        )
        own = library_names(kind)
        schedule = isinstance(value, LRScheduler)
        for key, item in list(dict.items(attributes)):
            name = f"{path}.{key}"
            entry = item, name, counted, Place(attributes, key, name)
            if schedule and own is None:
                for reader in (key, *_READERS):
                    yield from self._when_read(reader, entry)
            elif own is None or key in own:
                yield entry
            else:
                yield from self._when_read(key, entry)
        yield from self._class(kind, path, called=False)

    def _class(self, kind: Any, path: str, called: bool) -> Iterator[_Entry]:
        """What instances of a class read from it; with its construction if it may be `called`."""
        for base in kind.__mro__:
            if not is_user_class(base):
                continue
            first = ("members", id(base)) not in self._members
            self._members.add(("members", id(base)))
            if first:
                self.containers.append((base, dict(vars(base)), False, base.__name__))
            for name, member in list(vars(base).items()):
                if name in _UNCALLED:
                    if called:
                        yield code_of(member), path, False, None
                elif first:
                    yield from self._member(base, name, member)

    def _member(self, base: type, name: str, member: Any) -> Iterator[_Entry]:
        code = code_of(member)
        if name.startswith("__") and name.endswith("__"):
            if isinstance(code, types.FunctionType):
                yield code, f"{base.__name__}.{name}", False, None
            return
        path = f"{base.__name__}.{name}"
        if isinstance(member, property):
            yield from self._when_read(name, (member.fset, path, False, None))
        inherited = any(name in vars(b) for b in base.__mro__ if not is_user_class(b))
        inherited = inherited or name in (library_names(base) or ())
        entry = code, path, False, Place(base, name, path) if code is member else None
        if inherited:
            yield entry  # library code calls it
        else:
            yield from self._when_read(name, entry)

    def _function(self, function: types.FunctionType, path: str) -> Iterator[_Entry]:
        if not is_user_code(function):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                yield wrapped, path, False, None
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            place = Place(cell, None, name)
            self.containers.append((cell, place.get(), False, name))
            if place.get() is not MISSING:
                yield place.get(), name, False, place
        if not is_user_code(function):
            return
        names = code_names(function.__code__)
        self._read(names)
        self._loaded |= loaded_names(function.__code__)
        yield function.__defaults__, path, False, None
        yield function.__kwdefaults__, path, False, None
        namespace = function.__globals__
        for name in names:
            place = Place(namespace, name, name)
            if name in namespace or name in stored_globals(function.__code__):
                self.named[place] = place.get()
            if name in namespace:
                value = namespace[name]
                yield value, name, False, place
                if isinstance(value, types.ModuleType) and is_user_module(value):
                    yield from self._module_names(value, function.__code__, name)

    def _module_names(
        self, module: types.ModuleType, code: types.CodeType, path: str
    ) -> Iterator[_Entry]:
        for name in code_names(code):
            if name in module.__dict__:
                place = Place(module.__dict__, name, f"{path}.{name}")
                yield module.__dict__[name], f"{path}.{name}", False, place


def _key_text(key: Any) -> str:
    return "..." if isinstance(key, Tensor) else repr(key)


def _is_lifted(value: Any) -> bool:
    """Floats of param groups are run-time inputs, not guarded."""
    if type(value) is float or is_traced_number(value):
        return True
    return type(value) is tuple and bool(value) and all(type(v) is float for v in value)


def _holds(place: Place, value: Any, identity: bool) -> bool:
    now = place.get()
    return now is value or (not identity and same(now, value))


def _first_broken(entries: list[tuple[Place, Any, bool]]) -> Place | None:
    for place, value, identity in entries:
        now = place.get()
        if now is not value and (identity or not same(now, value)):
            return place
    return None


def snapshot(function: Any, objects: list[Any]) -> Snapshot:
    """The roots of a function and of arguments that are not tensors or plain values."""
    found = Snapshot()
    found.hidden.note_streams()
    found.visit(function, getattr(function, "__name__", "function"))
    for i, value in enumerate(objects):
        found.visit(value, f"argument {i}")
    return found
