"""The compiled versions of one function: found by what a call's arguments are.

The first sizes are compiled as they are; a size that varies between calls becomes symbolic, of
arguments and of tensors that the function itself renews (a cache that grows by each call).
"""

from __future__ import annotations

import reprlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from ... import config as configuration
from ...frontend import float32, promote
from ...frontend.context import local
from ...frontend.errors import TraceError
from ...frontend.history import gradient_kind
from ...frontend.layouts import NotDense
from ...frontend.number_expr import spelled
from ...frontend.tensor import Tensor
from ...frontend.tree import Structure
from ...ir.memory import DeviceArray
from ...ir.named import NamedTuple
from ...nn.modules.module import Module
from .. import multiplier
from ..capture.kinds import Kind, kind_of
from ..capture.places import Length, Place
from .guards import Entry, Result
from .guards_of_calls import MODES, FoundBy
from .module_limit import ModuleLimit
from .number_policy import NumberPolicy, decided_upon
from .shortcut import Shortcut, shortcut_of
from .sparse_arguments import SparseArgument
from .version import Origin, Specialisation
from .whole_call import WholeCall

_PLAIN = (bool, str, bytes, type(None))
_LIMIT = 8  # versions for one kind of arguments, before the function runs in segments
_KINDS = 16  # kinds of arguments without Modules
_SHORTCUTS = 16  # ways that a call tries: a miss takes 0.3 us, the long way 30
_WASTED = 16  # versions in a row that ran once, before the object died that they were for
Made = TypeVar("Made")  # what a compilation comes to
Named = dict[int, dict[int, str]]  # the names of symbolic dims, by number and dim


class _Value(NamedTuple):
    """An argument that is known by its value: a date, a path, a slice."""

    kind: type
    text: str


def _is_alone(value: Any) -> bool:
    """Whether a value's text tells all of it: a slice may hold anything."""
    return type(value) is not slice or all(
        part is None or type(part) is int for part in (value.start, value.stop, value.step)
    )


class Versions:
    """Versions, what they are found by, and the sizes that were seen."""

    def __init__(self, dynamic: bool | Named | None) -> None:
        """`dynamic`: see compile(); or the dims that are symbolic, and no others."""
        self.dynamic = dynamic
        self._numbers = NumberPolicy(at_once=dynamic is True)
        self.lifting: set[int] = set()  # arguments that are run-time numbers in the present trace
        self._symbolic_now = False  # whether that has symbolic sizes
        self._fixed: set[Any] = set()  # kinds of arguments for which symbolic sizes are no use
        self._exact: dict[Any, list[Specialisation]] = {}
        self._symbolic: dict[Any, list[Specialisation]] = {}
        self._shapes: dict[Any, list[tuple[Any, ...]]] = {}
        self._kinds: Counter[Any] = Counter()
        self._order: dict[Any, list[Specialisation]] = {}  # by kind, the newest last
        # objects that keys name by id: what goes with each when it dies
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._named: dict[int, set[Any]] = {}
        self.newest: Specialisation | None = None
        self.found_by: list[Any] = []  # (key, shapes) of each version, the newest last
        self._modules = ModuleLimit()
        self._wasted = self._made = 0
        self.direct: WholeCall | None = None  # of the first of the shortcuts
        self._shortcuts: tuple[Shortcut, ...] = ()

    def key(self, leaves: list[Any], structure: Structure) -> tuple[Any, tuple[Any, ...]]:
        """What a version is found by, and the shapes of the tensors among the arguments."""
        parts: list[Any] = [
            structure, local.grad, local.inference, local.place, local.autocast,
            promote.Defaults.dtype, configuration.current().random, float32.in_force(),
            multiplier.in_force(),
        ]
        shapes: list[Any] = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                try:
                    array = leaf._graphc_array
                except NotDense:
                    raise SparseArgument(i) from None
                parts.append((
                    array.dtype, array.ndim, gradient_kind(leaf), leaf._graphc_node is None,
                    leaf._graphc_storage.inference,
                    (type(leaf), leaf.device) if type(array) is DeviceArray else type(leaf),
                ))
                shapes.append(array.shape)
            elif type(leaf) in _PLAIN or (
                isinstance(leaf, _PLAIN) and not getattr(leaf, "__dict__", None)
            ):
                parts.append((type(leaf), leaf))
            elif type(leaf) in (int, float):
                parts.append(self._numbers.part(structure, i, leaf))
            elif kind_of(type(leaf)) is Kind.VALUE and _is_alone(leaf):
                parts.append(_Value(type(leaf), repr(leaf)))
            else:
                parts.append(id(leaf))
        return tuple(parts), tuple(shapes)

    @staticmethod
    def lifted(key: Any, leaves: list[Any]) -> set[int]:
        """The arguments that are numbers of any value."""
        parts = key[len(key) - len(leaves) :]
        return {i for i, part in enumerate(parts) if part is int or part is float}

    def attempt(
        self, leaves: list[Any], structure: Structure,
        compile: Callable[[Any, tuple[Any, ...]], Made],
    ) -> Made:
        """compile(key, shapes) with run-time numbers and symbolic sizes; where that fails, with the
        numbers, the sizes, then both as themselves. What works is done from then on."""
        key, shapes = self.key(leaves, structure)
        try:
            return self._once(compile, key, shapes, leaves)
        except TraceError:
            raise
        except Exception as error:
            # refused by code that takes plain ints and floats alone, or the user's own error
            last = error
        lifted, symbolic, kind = self.lifting, self._symbolic_now, self._kind(key, leaves)
        for numbers, sizes in ((True, False), (False, True), (True, True)):
            if (numbers and not lifted) or (sizes and not symbolic):
                continue
            if numbers:
                self._numbers.decide(structure, lifted, leaves)
            if sizes:
                self._fixed.add(kind)
            try:
                return self._once(compile, self.key(leaves, structure)[0], shapes, leaves)
            except TraceError:
                raise
            except Exception as error:
                last = error
            self._numbers.lift(structure, lifted, leaves)
            self._fixed.discard(kind)
        raise last

    def _once(
        self, compile: Callable[[Any, tuple[Any, ...]], Made], key: Any,
        shapes: tuple[Any, ...], leaves: list[Any],
    ) -> Made:
        self.lifting, self._symbolic_now = self.lifted(key, leaves), False
        return compile(key, shapes)

    def candidates(
        self, key: Any, shapes: tuple[Any, ...]
    ) -> tuple[list[Specialisation], list[Specialisation]]:
        """The versions that may fit, for these sizes alone and for any."""
        return self._exact.get((key, shapes), _NONE), self._symbolic.get(key, _NONE)

    def all(self) -> list[Specialisation]:
        """Every version that is there, in the order in which they were compiled."""
        tables = chain(self._exact.values(), self._symbolic.values())
        return sorted(chain.from_iterable(tables), key=lambda version: version.origin.number)

    def known(self, key: Any, shapes: tuple[Any, ...]) -> Iterator[Specialisation]:
        """The candidates, one after the other."""
        return chain.from_iterable(self.candidates(key, shapes))

    @property
    def shortcuts(self) -> tuple[Shortcut, ...]:
        """Ways into versions, the one that was taken last first."""
        return self._shortcuts

    @shortcuts.setter
    def shortcuts(self, found: tuple[Shortcut, ...]) -> None:
        self.direct = None  # never that of one that is gone
        self._shortcuts = found
        self.direct = found[0].direct if found else None

    def shorten(
        self, version: Specialisation, structure: Structure, leaves: list[Any],
        shapes: tuple[Any, ...], given: Any,
    ) -> None:
        """A version has run the long way: find a shorter one for calls like this."""
        doubted = configuration.current().check >= configuration.AGAIN
        if doubted or not is_time(version.long_way(shapes)):
            return
        others = []
        for known in self.shortcuts:
            owner = None if known.missed is None else known.owner(known.missed)
            if known.version is version and owner is not None:
                version.asked_by_python.add(owner)
            else:
                others.append(known)
        found = shortcut_of(version, structure, leaves, given)
        if found is not None:
            self.shortcuts = (found, *others[: _SHORTCUTS - 1])

    def prefer(self, key: Any, shapes: tuple[Any, ...], version: Specialisation) -> None:
        """Ask a version that fitted first from now on: calls like it tend to follow."""
        tables: tuple[tuple[dict[Any, list[Specialisation]], Any], ...] = (
            (self._exact, (key, shapes)), (self._symbolic, key),
        )
        for table, place in tables:
            known = table.get(place, _NONE)
            if version in known:  # a new list: another call may be going through this one
                table[place] = [version, *(other for other in known if other is not version)]

    def add(
        self, key: Any, shapes: tuple[Any, ...], leaves: list[Any], version: Specialisation,
        symbolic: bool, reasons: Iterable[str] = (),
    ) -> None:
        """Remember a new version, for as long as the objects live that the key names. `reasons`:
        why the earlier ones do not fit."""
        self.newest = version
        self._made += 1
        version.origin = Origin(self._made, key, shapes, tuple(reasons))
        self.found_by.append((key, shapes))
        head = len(key) - len(leaves)
        lifted = self.lifted(key, leaves)
        version.guards.found_by(_found_by(key, leaves))
        decided = decided_upon(version.traced.numbers) & lifted
        if decided:
            self._numbers.decide(key[0], decided, leaves)
            key = tuple(
                spelled(leaves[i - head]) if i - head in decided else part
                for i, part in enumerate(key)
            )
        version.retained = [
            leaf for part, leaf in zip(key[head:], leaves, strict=True)
            if type(part) is int and not self._watch(leaf, key)
        ]
        if symbolic:
            self._symbolic.setdefault(key, []).insert(0, version)
        else:
            self._exact.setdefault((key, shapes), []).insert(0, version)
        kind = self._counted(key, leaves)
        self._kinds[kind] += 1
        self._order.setdefault(kind, []).append(version)
        for old in self._modules.enter(kind, [x for x in leaves if isinstance(x, Module)]):
            self._let_go(old)

    def drop_oldest(self, key: Any, leaves: list[Any]) -> None:
        """Keep no more than the limit for arguments of this kind."""
        known = self._order.get(self._counted(key, leaves), [])
        while self.dynamic is not False and len(known) > _LIMIT:
            self._remove(known.pop(0))

    def _remove(self, version: Specialisation) -> None:
        self.shortcuts = ()
        for table in (self._exact, self._symbolic):
            for place, versions in list(table.items()):
                if version in versions:
                    rest = [v for v in versions if v is not version]
                    if rest:
                        table[place] = rest  # another thread may be reading the former list
                    else:
                        del table[place]

    def _let_go(self, kind: Any) -> None:
        """Forget all versions for one kind of arguments."""
        for version in self._order.pop(kind, ()):
            self._remove(version)
        for table in (self._kinds, self._shapes):
            table.pop(kind, None)
        self._prune()

    def _prune(self) -> None:
        """Forget what versions were found by that are gone."""
        self.found_by = [
            (key, shapes) for key, shapes in self.found_by
            if (key, shapes) in self._exact or key in self._symbolic
        ]

    def _watch(self, leaf: Any, key: Any) -> bool:
        """Forget the key when an object dies; False: nobody would tell."""
        if id(leaf) not in self._watched:
            number, owner = id(leaf), weakref.ref(self)

            def died(reference: Any) -> None:
                versions = owner()
                if versions is not None:
                    versions._forget(number)

            try:
                self._watched[number] = weakref.ref(leaf, died)
            except TypeError:
                return False
        self._named.setdefault(id(leaf), set()).add(key)
        return True

    def _forget(self, number: int) -> None:
        """An object has died: its id may soon be another's."""
        self.shortcuts = ()
        del self._watched[number]
        keys = self._named.pop(number, set())
        gone = [v for place, found in self._exact.items() if place[0] in keys for v in found]
        gone += [v for key in keys for v in self._symbolic.get(key, ())]
        self._wasted = 0 if any(v.calls > 1 for v in gone) else self._wasted + len(gone)
        if self.newest in gone:
            self.newest = None
        self._exact = {place: v for place, v in self._exact.items() if place[0] not in keys}
        for key in keys:
            self._symbolic.pop(key, None)
            self._shapes.pop(key, None)
        for kind, known in list(self._order.items()):
            if number in kind:
                del self._order[kind], self._kinds[kind]
            else:
                self._order[kind] = [v for v in known if v not in gone]
        self._shapes = {kind: seen for kind, seen in self._shapes.items() if number not in kind}
        self._modules.forget(number)
        self._prune()

    def too_many(self, key: Any, leaves: list[Any]) -> bool:
        """Whether arguments of this kind, or of new kinds, were compiled for so often that more is
        no use: each call may have another text, or as many tensors as there were calls."""
        if self.dynamic is False:
            return False
        kind = self._counted(key, leaves)
        if kind in self._kinds:
            return self._kinds[kind] >= _LIMIT
        others = sum(all(type(part) is not int for part in other) for other in self._kinds)
        return others >= _KINDS or self._wasted >= _WASTED

    @staticmethod
    def _kind(key: Any, leaves: list[Any]) -> Any:
        """The key with the types of numbers and objects, but Modules, in place of what they are."""
        head = len(key) - len(leaves)
        parts = (
            type(leaf)
            if type(leaf) in (int, float) or type(part) is _Value or (
                type(part) is int and not isinstance(leaf, Module)
            )
            else part
            for part, leaf in zip(key[head:], leaves, strict=True)
        )
        return (*key[:head], *parts)

    @classmethod
    def _counted(cls, key: Any, leaves: list[Any]) -> Any:
        """The kind for which versions are counted: texts are of one, too, like numbers."""
        kind = cls._kind(key, leaves)
        return tuple([(part[0], ...) if _is_text(part) else part for part in kind])

    def named_dims(self, leaves: list[Any], key: Any, shapes: tuple[Any, ...]) -> Named:
        """Which dims of which arguments have had another size before: these become symbolic."""
        seen = self._shapes.setdefault(self._kind(key, leaves), [])
        named: Named = {}
        if isinstance(self.dynamic, dict):
            for i, dims in self.dynamic.items():
                sizes = leaves[i]._graphc_array.shape
                open_ = {d: name for d, name in dims.items() if sizes[d] > 1}
                if open_ and self._varying(key, leaves):
                    named[i] = open_
        elif self._varying(key, leaves):
            names: dict[Any, str] = {}
            positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            for t, (position, shape) in enumerate(zip(positions, shapes, strict=True)):
                for d, size in enumerate(shape):
                    history = tuple(old[t][d] for old in seen)
                    varies = any(h != size for h in history) or self.dynamic is True
                    if varies and size > 1:
                        name = names.setdefault((history, size), f"s{len(names)}")
                        named.setdefault(position, {})[d] = name
        if shapes not in seen:
            seen.append(shapes)
        self._symbolic_now = bool(named)
        return named

    def _varying(self, key: Any, leaves: list[Any]) -> bool:
        """Whether sizes may become symbolic."""
        return self.dynamic is not False and self._kind(key, leaves) not in self._fixed

    def renewed_dims(
        self, leaves: list[Any], key: Any, shapes: tuple[Any, ...]
    ) -> list[tuple[Place, dict[int, str]]]:
        """The same for tensors that earlier versions fetch from a place and put back there."""
        if not self._varying(key, leaves):
            return []
        found: dict[Place, dict[int, str]] = {}
        names: dict[Any, str] = {}
        for versions in self.candidates(key, shapes):
            for version in versions:
                for number, place in version.places.items():
                    now = place.get()
                    was = version.inputs[number].type.shape
                    if not isinstance(now, Tensor) or now.ndim != len(was):
                        continue
                    for d, (old, new) in enumerate(zip(was, now._graphc_array.shape, strict=True)):
                        if new > 1 and old != new:
                            name = names.setdefault((old, new), f"c{len(names)}")
                            found.setdefault(place, {})[d] = name
        self._symbolic_now |= bool(found)
        return list(found.items())

    def counters(self) -> Iterator[Place]:
        """Places of numbers that an earlier version's own Python has changed, and lengths."""
        for table in (self._exact, self._symbolic):
            for version in chain.from_iterable(table.values()):
                changed = {*version.stored, *(place for place, _ in version.replay)}
                for guard in version.guards.all_broken():
                    if isinstance(guard, Entry) and guard.place in changed and (
                        type(guard.place.get()) in (int, float)
                    ):
                        yield guard.place
                    elif isinstance(guard, Result) and guard.function is len:
                        yield Length(guard.arguments[0], guard.path)


def is_time(calls: int) -> bool:
    """Whether to look for a shortcut, by how many calls of the same shapes went the long way: as
    these double, since it is no use where each call differs from the last."""
    return calls >= 2 and not calls & (calls - 1)


def _found_by(key: Any, leaves: list[Any]) -> Iterator[FoundBy]:
    """What a version is found by, as guards."""
    head = len(key) - len(leaves)
    yield FoundBy("the call", f"has {len(leaves)} arguments, given as they were", usual=True)
    for name, value in zip(MODES[1:], key[1:head], strict=True):
        yield FoundBy(name, f"is {value}", usual=True)
    for i, (part, leaf) in enumerate(zip(key[head:], leaves, strict=True)):
        name = f"argument {i}"
        if isinstance(leaf, Tensor):
            shape = f"a {type(leaf).__name__}, {leaf.dtype}, {leaf.ndim} dims, requires_grad"
            yield FoundBy(name, f"is {shape}={leaf.requires_grad}", usual=True)
        elif part is int or part is float:
            yield FoundBy(name, f"is a {part.__name__}", usual=True)
        elif type(part) is int:
            yield FoundBy(name, f"is the same {type(leaf).__name__}")
        else:
            yield FoundBy(name, f"is {reprlib.repr(leaf)}")


def _is_text(part: Any) -> bool:
    return type(part) is tuple and len(part) == 2 and part[0] in (str, bytes)


_NONE: list[Specialisation] = []
