"""What mutate.py takes away, one at a time: rows of tables, checks, steps and effects.

A row: of a table of graphc/engine/capture (kinds.py, c_tables.py).
A guard: one kind of check, which then always holds. A field: one part of a guard's record, which
is then taken to be as it is now.
A step: one call by which a rule tells the Observer of a read, a write or something open; what the
rule gets back stays.
An effect: one sort of place that each call writes, and which is then not written.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CellType, CodeType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from graphc.engine import capture
from graphc.engine.built import Engine
from graphc.engine.capture import c_functions, c_tables, kinds, net
from graphc.engine.capture.observer import Observer
from graphc.engine.capture.places import MISSING, Place
from graphc.engine.capture.writes import Contents, Repeat, Tail, Variable
from graphc.engine.version import different, guards, guards_of_calls
from graphc.engine.version.version import Specialisation

TABLES: dict[str, Any] = {
    **{name: getattr(kinds, name) for name in
       ("VALUES", "FIXEDS", "_CONTAINERS", "_EXACT", "_ITERATORS")},
    **{name: getattr(c_tables, name) for name in
       ("PURE", "HIGHER_ORDER", "OPERATORS", "READS", "WRITES", "METHODS_OF_VALUES",
        "CLASSES", "SETTINGS", "SWITCHES", "SAYING", "STORING")},
    **{name: getattr(c_functions, name) for name in ("RULES", "PYTHON")},
}


class Mutant(NamedTuple):
    """What is taken away: a row of a table, or what `table` says else."""

    table: str
    row: str

    def __str__(self) -> str:
        return f"{self.table}[{self.row}]" if self.table in TABLES else f"{self.table} {self.row}"


def mutants() -> list[Mutant]:
    """All of them but steps."""
    return [*guard_kinds(), *fields(), *effects(), *rows()]


def is_noted(mutant: Mutant) -> bool:
    """Whether a run tells that it uses this."""
    if mutant.table in ("guard", "field"):
        return mutant.row.split()[0] in GUARDS
    return mutant.table != "effect" or mutant.row in EFFECTS


def uses(used: set[Mutant], mutant: Mutant) -> bool:
    """Whether a run that used these rows, guards, steps and effects depends on this."""
    if mutant.table == "field":
        mutant = Mutant("guard", mutant.row.split()[0])
    return mutant in used or not is_noted(mutant)


def apply(mutant: Mutant) -> None:
    """Mutate this process."""
    if mutant.table in TABLES:
        table = TABLES[mutant.table]
        _without(table, next(row for row in table if text(row) == mutant.row))
    else:
        _APPLY[mutant.table](mutant.row)


# --- rows --------------------------------------------------------------------------------------


# what only some versions of Python have, or have in C: from one version on, or below one
_SINCE = {
    "typing.TypeVar": (3, 12), "itertools.batched": (3, 12), "collections._deque_iterator": (3, 12),
    "collections._deque_reverse_iterator": (3, 12), "pathlib._local.PosixPath": (3, 13),
    "pathlib._local.PurePosixPath": (3, 13),
}
_BELOW = {
    "_collections._deque_iterator": (3, 12), "_collections._deque_reverse_iterator": (3, 12),
    "pathlib.PosixPath": (3, 13), "pathlib.PurePosixPath": (3, 13),
}


def rows() -> list[Mutant]:
    """Every row of every table that can be asked for in this version of Python."""
    return [
        Mutant(name, row) for name, table in TABLES.items() for row in sorted(map(text, table))
        if _SINCE.get(row, (3, 0)) <= sys.version_info < _BELOW.get(row, (4, 0))
    ]


def text(row: Any) -> str:
    """A row's name; that of a type is its full one."""
    return kinds.full_name(row) if isinstance(row, type) else str(row)


def _without(table: Any, row: Any) -> None:
    kinds._found.clear()
    if isinstance(table, dict):
        table.pop(row)
    else:
        put(table, table - {row})


def put(table: Any, other: Any) -> None:
    """Another table in every module of the capture that has this one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{capture.__name__}."):
            for attribute, value in list(vars(module).items()):
                if value is table:
                    setattr(module, attribute, other)


# --- guards ------------------------------------------------------------------------------------

KINDS = {
    name: kind for module in (guards, guards_of_calls, different)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, guards.Guard) and kind is not guards.Guard
}
# not asked of any call; and what native code reads past the end of memory without
_UNASKED = ("FoundBy", "MemoryOf")
GUARDS = tuple(name for name in KINDS if name not in _UNASKED)


def guard_kinds() -> list[Mutant]:
    """Every kind of guard."""
    return [Mutant("guard", name) for name in GUARDS]


def _always(name: str) -> None:
    for check in ("holds", "holds_for"):
        setattr(KINDS[name], check, lambda self, *given: True)


def _emptied(attribute: str, early: bool) -> None:
    """What a trace says of this is left out; `early`: before a version is made of the trace."""
    start = Specialisation.__init__

    def mutated(
        self: Any, traced: Any, observer: Any, replay: Any, engine: Engine, plan: Any
    ) -> None:
        without = dataclasses.replace(traced, **{attribute: ()})
        if early:
            traced = without
            engine = Engine(
                engine.built, engine.output_types, engine.dims, engine.allocate, engine.place,
                traced.mutated,
            )
        start(self, traced, observer, replay, engine, plan)
        self.traced = without

    Specialisation.__init__ = mutated  # type: ignore[method-assign]


def _keywords(guard: Any) -> Any:
    now = guard.function.__kwdefaults__
    return None if now is None else dict(now)


def _as_long(guard: Any) -> list[Any]:
    """The items that were, and as many as there are now."""
    now = guard.read(guard.container)
    return [*guard.items[: len(now)], *now[len(guard.items) :]]


def _same_items(guard: Any, first: int, step: int) -> list[Any]:
    items, now = list(guard.items), guard.read(guard.container)
    if len(items) == len(now):
        items[first::step] = now[first::step]
    return items


# what each field would be now (the types of `Items.fetched` are asked again where it is fetched)
FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Items length": ("items", _as_long),
    "Items even": ("items", lambda guard: _same_items(guard, 0, 2)),  # keys, of a dict
    "Items odd": ("items", lambda guard: _same_items(guard, 1, 2)),  # values, of a dict
    "Code code": ("code", lambda guard: guard.function.__code__),
    "Code defaults": ("defaults", lambda guard: guard.function.__defaults__),
    "Code keywords": ("keywords", _keywords),
    "Array values": ("values", lambda guard: guard.array.tobytes()),
    "Array shape": ("shape", lambda guard: guard.array.shape),
    "Array dtype": ("dtype", lambda guard: guard.array.dtype),
    "Fields fields": ("fields", lambda guard: vars(guard.owner())),
    "Fields absent": ("absent", lambda guard: set()),
    "Fields values": ("values", lambda guard: list(map(guard.fields.get, guard.names))),
}


def fields() -> list[Mutant]:
    """Every field that the record of a guard compares, where there are several."""
    return [Mutant("field", name) for name in FIELDS]


def _forget(name: str) -> None:
    field, now = FIELDS[name]
    kind = KINDS[name.split()[0]]
    holds = kind.holds

    def mutated(self: Any) -> bool:
        setattr(self, field, now(self))
        return bool(holds(self))

    kind.holds = mutated


# --- effects -----------------------------------------------------------------------------------

# what a call does to tensors: the trace's list, and whether the version is made of it, too
_OF_TRACES = {
    "mutations": ("mutations", True), "versions": ("mutations", False),
    "rebinds": ("rebinds", False), "grads": ("grads", False), "flags": ("flags", False),
    "deferred": ("deferred", False),
}


def _sort(place: Place, value: Any) -> str:
    """A place's sort, where a call writes to it."""
    container = place.container
    if isinstance(place, Repeat):
        return f"Repeat {place.path}"
    if isinstance(place, (Contents, Tail, Variable)):
        return f"{type(place).__name__} {_base(container)}"
    alone = "cell" if type(container) is CellType else (
        "slot" if type(place.key) is MemberDescriptorType else ""
    )
    if value is MISSING:
        return f"removal from {alone or _base(container)}"
    return alone or f"item of {_base(container)}"


def _base(container: Any) -> str:
    bases = (type, dict, list, set, deque, np.ndarray, bytearray)
    found = next((base for base in bases if isinstance(container, base)), type(container))
    return found.__name__


EFFECTS = (
    "Contents dict", "Contents list", "Contents set", "Contents deque", "Contents ndarray",
    "Contents bytearray", "Contents array", "Tail list", "Tail deque", "Variable ContextVar",
    "Repeat print", "Repeat warn_explicit", "Repeat _handle", "Repeat putenv", "Repeat unsetenv",
    "cell", "slot", "item of dict", "item of list", "item of type", "item of _local",
    "removal from dict", "removal from type", "removal from slot", "removal from _local",
    "Window deque", "item of Given", "item of c_int", "item of tuple",
)


def effects() -> list[Mutant]:
    """Every sort of place that a call writes, and what it does to tensors."""
    return [Mutant("effect", name) for name in (*EFFECTS, *_OF_TRACES)]


def _unwritten(name: str) -> None:
    if name in _OF_TRACES:
        attribute, early = _OF_TRACES[name]
        _emptied(attribute, early)
        return
    makes = Specialisation.makes

    def mutated(self: Any, rebuild: Any, stored: Any, order: list[Place], apart: Any) -> None:
        values = dict(self.replay)
        left = [place for place in order if _sort(place, values.get(place)) != name]
        makes(self, rebuild, stored, left, apart)

    Specialisation.makes = mutated  # type: ignore[method-assign]


def noting_guards_and_effects(used: set[Mutant]) -> None:
    """Note each kind of guard that is asked, and each sort of place that calls write."""
    for name in GUARDS:
        for check in ("holds", "holds_for"):
            kind = KINDS[name]
            setattr(kind, check, _noted(getattr(kind, check), Mutant("guard", name), used))
    makes = Specialisation.makes

    def noted(self: Any, rebuild: Any, stored: Any, order: list[Place], apart: Any) -> None:
        values = dict(self.replay)
        used.update(Mutant("effect", _sort(place, values.get(place))) for place in order)
        makes(self, rebuild, stored, order, apart)

    Specialisation.makes = noted  # type: ignore[method-assign]


def _noted(real: Callable[..., Any], mutant: Mutant, used: set[Mutant]) -> Callable[..., Any]:
    def check(self: Any, *given: Any) -> Any:
        used.add(mutant)
        return real(self, *given)

    return check


# --- steps -------------------------------------------------------------------------------------


def _nothing(self: Any, *given: Any, **named: Any) -> None:
    return None


def _plain_lookup(self: Any, bases: Any, name: str) -> Any:
    for base in bases:
        if name in vars(base):
            return vars(base)[name]
    return MISSING


# what each of the Observer's methods gives back without having noted anything
STEPS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((
        "open", "whole", "kind", "code", "emptiness", "membership", "array", "identity", "save",
        "write", "remove", "reshape", "extend", "save_field", "save_place", "note_real", "lend",
        "repeat",
    ), _nothing),
    "read": lambda self, container, key, path, *given: Place(container, key, path).get(),
    "know": lambda self, value, path: value,
    "result": lambda self, function, arguments, *given, **named: function(*arguments),
    "lookup": lambda self, kind, name: _plain_lookup(self, kind.__mro__, name),
    "look": _plain_lookup,
    "cached": lambda self, function, args, kwargs, path: function(*args, **kwargs),
    "referent": lambda self, reference: reference(),
}


_IN_WORDS = "it names a place in words, and notes nothing that a guard or an effect needs"
_SETS_UP = "a root logger without handlers writes to stderr, at which no program looks"
_TWICE = "what a first step of an optimizer makes is taken back by either of two saves"
# the steps that no program can notice, and why; whatever else nobody notices is a failure
EXCUSED: dict[str, str] = {
    "attributes._module know 2": _IN_WORDS,
    "attributes.plain_delete know 1": _IN_WORDS,
    "c_functions._container_method note_real 1": "optimizers make their state by key alone",
    "calls.copy_of open 1": "there is a table of opcodes for every Python that runs the tests",
    "items._dict_item know 1": _TWICE,
    "items._dict_item save 1": _TWICE,
    "own_objects.told result 1": "of these, storages alone have a length, and each keeps its own",
    "outside._of_root emptiness 1": _SETS_UP,
    "outside._of_root know 1": _SETS_UP,
}


class Site(NamedTuple):
    """A call of one of the Observer's methods by a rule."""

    file: str
    line: int
    method: str


@cache
def sites() -> dict[str, Site]:
    """Every such call, by the rule's name, the method and its number in the rule."""
    found: dict[str, Site] = {}
    for path in sorted(Path(str(capture.__file__)).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        for rule in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(rule):
                if _is_step(node):
                    site = Site(str(path), node.lineno, node.func.attr)
                    name, number = f"{path.stem}.{rule.name} {site.method}", 1
                    while f"{name} {number}" in found:
                        number += 1
                    found[f"{name} {number}"] = site
    return found


def _is_step(node: Any) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name) and node.func.value.id == "observer"
        and node.func.attr in STEPS
    )


def steps() -> list[Mutant]:
    """Every call by which a rule tells the Observer of something."""
    return [Mutant("step", name) for name in sites()]


def at_each_step(told: Callable[[Site], bool]) -> None:
    """Ask `told` at each step whether it is to be left out."""
    for method, instead in STEPS.items():
        setattr(Observer, method, _wrapped(getattr(Observer, method), method, instead, told))
    own((told.__code__,))


def _wrapped(
    real: Callable[..., Any], method: str, instead: Callable[..., Any],
    told: Callable[[Site], bool],
) -> Callable[..., Any]:
    def step(self: Any, *given: Any, **named: Any) -> Any:
        caller = sys._getframe(1)
        leave = told(Site(caller.f_code.co_filename, caller.f_lineno, method))
        return (instead if leave else real)(self, *given, **named)

    own((step.__code__, instead.__code__))
    return step


def own(codes: tuple[CodeType, ...]) -> None:
    """To a recording, this is code of graphc's own."""
    for code in (*codes, _plain_lookup.__code__):
        net._owners[code.co_filename] = "own"


def _unsaid(name: str) -> None:
    missing = sites()[name]
    at_each_step(lambda site: site == missing)


_APPLY: dict[str, Callable[[str], None]] = {
    "guard": _always, "field": _forget, "effect": _unwritten, "step": _unsaid,
}
