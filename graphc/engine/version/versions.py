"""The compiled versions of one function: found by what a call's arguments are.

The first sizes are compiled as they are; a size that varies between calls becomes symbolic, of
arguments and of tensors that the function itself renews (a cache that grows by each call).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ... import config as configuration
from ...frontend import promote
from ...frontend.context import local
from ...frontend.tensor import Tensor, requires_grad
from ...frontend.tree import Structure
from ...nn.modules.module import Module
from ..capture.places import Place
from .version import Specialisation

_PLAIN = (bool, str, bytes, type(None))
_LIMIT = 8  # versions for one kind of arguments, before the function runs in segments
Named = dict[int, dict[int, str]]  # the names of symbolic dims, by number and dim


class Versions:
    """Versions, what they are found by, and the sizes that were seen."""

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._exact: dict[Any, list[Specialisation]] = {}
        self._symbolic: dict[Any, list[Specialisation]] = {}
        self._shapes: dict[Any, list[tuple[Any, ...]]] = {}
        self._kinds: Counter[Any] = Counter()
        self.found_by: list[Any] = []  # (key, shapes) of each version, the newest last

    def key(self, leaves: list[Any], structure: Structure) -> tuple[Any, tuple[Any, ...]]:
        """What a version is found by, and the shapes of the tensors among the arguments."""
        parts: list[Any] = [
            structure, local.grad, local.autocast, promote.Defaults.dtype,
            configuration.current().random,
        ]
        shapes: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                array = leaf._array
                parts.append((array.dtype, array.ndim, requires_grad(leaf), type(leaf)))
                shapes.append(array.shape)
            elif isinstance(leaf, _PLAIN):
                parts.append((type(leaf), leaf))
            elif type(leaf) in (int, float):
                parts.append(type(leaf))
            else:
                parts.append(id(leaf))
        return tuple(parts), tuple(shapes)

    def candidates(
        self, key: Any, shapes: tuple[Any, ...]
    ) -> tuple[list[Specialisation], list[Specialisation]]:
        """The versions that may fit, for these sizes alone and for any."""
        return self._exact.get((key, shapes), _NONE), self._symbolic.get(key, _NONE)

    def add(
        self, key: Any, shapes: tuple[Any, ...], leaves: list[Any], version: Specialisation,
        symbolic: bool,
    ) -> None:
        """Remember a new version."""
        self.found_by.append((key, shapes))
        if symbolic:
            self._symbolic.setdefault(key, []).insert(0, version)
        else:
            self._exact.setdefault((key, shapes), []).insert(0, version)
        self._kinds[self._kind(key, leaves)] += 1

    def too_many(self, key: Any, leaves: list[Any]) -> bool:
        """Whether arguments of this kind were compiled for so often that more is no use."""
        return self.dynamic is not False and self._kinds[self._kind(key, leaves)] >= _LIMIT

    @staticmethod
    def _kind(key: Any, leaves: list[Any]) -> Any:
        """The key with the types of objects, but Modules, in place of their identities."""
        head = len(key) - len(leaves)
        parts = (
            type(leaf) if type(part) is int and not isinstance(leaf, Module) else part
            for part, leaf in zip(key[head:], leaves, strict=True)
        )
        return (*key[:head], *parts)

    def named_dims(self, leaves: list[Any], key: Any, shapes: tuple[Any, ...]) -> Named:
        """Which dims of which arguments have had another size before: these become symbolic."""
        seen = self._shapes.setdefault(key, [])
        named: Named = {}
        if self.dynamic is not False:
            names: dict[Any, str] = {}
            positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            for t, (position, shape) in enumerate(zip(positions, shapes, strict=True)):
                for d, size in enumerate(shape):
                    history = tuple(old[t][d] for old in seen)
                    varies = any(h != size for h in history) or self.dynamic is True
                    if varies and size > 1:
                        name = names.setdefault((history, size), f"s{len(names)}")
                        named.setdefault(position, {})[d] = name
        seen.append(shapes)
        return named

    def renewed_dims(
        self, key: Any, shapes: tuple[Any, ...]
    ) -> list[tuple[Tensor, dict[int, str]]]:
        """The same for tensors that earlier versions fetch from a place and put back there."""
        if self.dynamic is False:
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
                    for d, (old, new) in enumerate(zip(was, now._array.shape, strict=True)):
                        if new > 1 and old != new:
                            name = names.setdefault((old, new), f"c{len(names)}")
                            found.setdefault(place, {})[d] = name
        return [(place.get(), dims) for place, dims in found.items()]

    def counters(self, key: Any, shapes: tuple[Any, ...]) -> Iterator[Place]:
        """Places of numbers that an earlier version's own Python has changed."""
        for versions in self.candidates(key, shapes):
            for version in versions:
                changed = {place for place, _ in version.replay}
                for place in version.roots.all_broken():
                    if place in changed and type(place.get()) in (int, float):
                        yield place


_NONE: list[Specialisation] = []
