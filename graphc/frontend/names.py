"""What a trace calls the Modules and tensors that it meets.

`find` gives what the compiled function reaches by name: its arguments, globals and closure. Of
one Module among these that has any state the paths are those of `named_parameters()`; of several
they begin with the name of the variable. State of an optimizer is named by its parameter.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

_NAMESPACE: Any = vars(types.ModuleType)["__dict__"]
_WALKS = 4  # calls after which what is not named yet is looked for among the arguments alone


def is_module(value: Any) -> bool:
    """Whether a value is a Module, which this layer does not know."""
    return "_modules" in fields_of(value)


def fields_of(value: Any) -> Mapping[str, Any]:
    """An object's own attributes; its own __getattribute__ is not asked."""
    if issubclass(type(value), types.ModuleType):  # graphc's packages would import all their names
        found: Mapping[str, Any] = _NAMESPACE.__get__(value)
        return found
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return fields if issubclass(type(fields), Mapping) else {}


class Names:
    """Paths of Modules and tensors, found when first asked for."""

    def __init__(self, find: Callable[[], dict[str, Any]] = dict) -> None:
        self._find: Callable[[], dict[str, Any]] | None = find
        # by id; what is named is kept, so that its id stays taken
        self._known: dict[int, tuple[str, Any]] = {}
        self._rooted = False  # whether a root has the empty path

    def module(self, module: Any, inside: str) -> str:
        """The path of a Module that is called; `inside`: that of the Module that calls it."""
        self._start()
        found = self._known.get(id(module))
        if found is None:  # a Module that hangs nowhere
            kind = type(module).__name__
            path = f"{inside}.{kind}" if inside else kind if self._rooted else ""
            self._add(module, path)
            found = self._known[id(module)]
        return found[0]

    def tensor(self, tensor: Any) -> str:
        """The path or the variable of a tensor; "" for one that has no name."""
        self._start()
        found = self._known.get(id(tensor))
        return "" if found is None else found[0]

    def set(self, tensor: Any, name: str) -> None:
        """Name a tensor that has no name yet."""
        self._known.setdefault(id(tensor), (name, tensor))

    def state(self, parameter: Any, state: dict[Any, Any]) -> None:
        """Name an optimizer's state of a parameter: "exp_avg of 0.weight"."""
        owner = self.tensor(parameter)
        if owner and isinstance(state, dict):
            for key, value in state.items():
                self.set(value, f"{key} of {owner}")

    def _start(self) -> None:
        if self._find is None:
            return
        found, self._find = self._find(), None
        roots = {name: value for name, value in found.items() if is_module(value)}
        below: set[int] = set()
        for root in roots.values():
            below.update(id(child) for child in _descendants(root))
        outer = {name: root for name, root in roots.items() if id(root.__dict__) not in below}
        stateful = {id(r.__dict__) for r in outer.values() if _has_state(r)}
        for name, root in outer.items():
            self._add(root, "" if stateful == {id(root.__dict__)} else name)
        for name, value in found.items():
            self.set(value, name)

    def _add(self, module: Any, path: str) -> None:
        """A Module with all below it; what hangs in several places has its first path."""
        self._rooted = True
        stack = [(path, module)]
        while stack:
            path, module = stack.pop()
            if id(module) in self._known:
                continue
            self.set(module, path)
            # a compiled Module shares the attributes of its original
            original = getattr(type(module), "_orig_mod", module)
            self.set(original, path)
            start = f"{path}." if path else ""
            for registry in ("_parameters", "_buffers"):
                for name, tensor in _held(module, registry):
                    self.set(tensor, start + name)
            stack += [(start + name, child) for name, child in reversed(_held(module, "_modules"))]


class KeptNames:
    """Names that outlive a call, of what lives: most of what a function reaches is there again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self._walks = 0

    def of_call(
        self, find: Callable[[], dict[str, Any]], given: Callable[[], dict[str, Any]]
    ) -> Names:
        """The names for one call. `given`: what of `find` are arguments."""
        return _CallNames(self, find if self._walks < _WALKS else given)

    def find(self, value: Any) -> str | None:
        """The name of something; None where it has none."""
        found = self._known.get(id(value))
        return found[0] if found is not None and found[1]() is value else None

    def keep(self, value: Any, name: str) -> None:
        """Take over what a call has found."""
        if len(self._known) > _LIMIT:
            self._known.clear()
        if _may_die(value):
            self._known[id(value)] = name, weakref.ref(value)

    def walked(self) -> None:
        """Count a look at all that a call reaches."""
        self._walks += 1


_LIMIT = 20_000


def _may_die(value: Any) -> bool:
    """Whether there are weak references to it."""
    return hasattr(type(value), "__weakref__")


class _CallNames(Names):
    """The names of one call, most of them known from earlier ones."""

    def __init__(self, kept: KeptNames, find: Callable[[], dict[str, Any]]) -> None:
        super().__init__(find)
        self._kept = kept

    def module(self, module: Any, inside: str) -> str:
        found = self._kept.find(module)
        return super().module(module, inside) if found is None else found

    def tensor(self, tensor: Any) -> str:
        found = self._kept.find(tensor)
        return super().tensor(tensor) if found is None else found

    def state(self, parameter: Any, state: dict[Any, Any]) -> None:
        if isinstance(state, dict) and any(
            _may_die(value) and self._kept.find(value) is None for value in state.values()
        ):
            super().state(parameter, state)

    def set(self, tensor: Any, name: str) -> None:
        super().set(tensor, name)
        self._kept.keep(tensor, self._known[id(tensor)][0])

    def _start(self) -> None:
        if self._find is not None:
            self._kept.walked()
        super()._start()


def _held(module: Any, registry: str) -> list[tuple[str, Any]]:
    """What a Module holds of one kind; stand-ins for a Module may have no such attribute."""
    found = getattr(module, "__dict__", {}).get(registry) or {}
    return [(name, value) for name, value in found.items() if value is not None]


def _has_state(module: Any) -> bool:
    return any(_held(module, name) for name in ("_modules", "_parameters", "_buffers"))


def _descendants(module: Any) -> list[Any]:
    """The attributes of every Module below a Module: what a Module shares with its compiled one."""
    found: list[Any] = []
    stack = _held(module, "_modules")
    seen: set[int] = set()
    while stack:
        _, child = stack.pop()
        if id(child) not in seen:
            seen.add(id(child))
            found.append(child.__dict__)
            stack += _held(child, "_modules")
    return found
