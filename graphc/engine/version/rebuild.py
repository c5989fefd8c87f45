"""A function's result, and what it stored, made anew at each call.

`Rebuild(held, ...)` takes the objects in the list `held` apart, the result and what is stored, down
to tensors and numbers (its `leaves`), constants, and objects that were there before the call, which
stay the same ones. An
object that is reached twice, or from itself, is one object again. What cannot be made anew (a
generator, a lock, a function that the call made) raises NotRebuilt: the function runs in segments,
where its own Python makes it.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...frontend.captured import UNREAD
from ...frontend.pending import PendingItem
from ...frontend.tensor import Tensor
from ...frontend.texts import is_traced_value
from .recipes import Recipe, attributes, is_constant, recipe_of, set_attribute


class NotRebuilt(Exception):
    """Says what stands in the way, as the end of "gives back ..."."""


class Rebuild:
    """How to make `held` from the values of its leaves."""

    def __init__(
        self, held: list[Any], known: Callable[[Any], bool], foreign: Mapping[int, Any],
        holders: Iterable[Any] = (),
    ) -> None:
        """`known`: whether an object was there before; `foreign`: what stands for an object that
        is another one in each call, by its id; `holders`: containers from before that parts of
        `held` were put into. Nothing else but the caller's list refers to the result. Raises
        NotRebuilt."""
        self.leaves: list[Any] = []
        self._constants: list[Any] = []
        self._known, self._foreign = known, foreign
        self._numbers: dict[int, tuple[tuple[int, int], Any]] = {}  # by id; keeps it taken
        self._made: list[Any] = []  # objects to be made, beside their numbers
        self._waiting: list[tuple[Any, Any, tuple[int, int]]] = []
        self._steps: list[Any] = []
        self._kinds: list[type] = []  # of what is made
        self._fills: list[Any] = []
        try:
            roots = [self._number(value) for value in held]
            while self._waiting:
                self._fill(*self._waiting.pop(0))
        except RecursionError:
            raise NotRebuilt("containers that are nested too deeply") from None
        self._check_elsewhere(held, holders)
        self._resolve(roots)

    def take_leaves(self) -> list[Any]:
        """What make() is to be given, as the trace has it; not kept."""
        leaves, self.leaves = self.leaves, []
        return leaves

    def make(self, leaves: list[Any]) -> list[Any]:
        """The objects with these leaves."""
        values = [*leaves, *self._constants]
        for make, parts in self._steps:
            values.append(make([values[i] for i in parts]))
        for fill, number, parts, names, holds in self._fills:
            made = values[number]
            if fill is not None:
                fill(made, [values[i] for i in parts])
            for name, i in zip(names, holds, strict=True):
                set_attribute(made, name, values[i])
        return [values[i] for i in self._roots]

    @property
    def gives_its_leaf(self) -> bool:
        """Whether all there is to make is one leaf."""
        return self._roots == [0] and not (self._constants or self._steps or self._fills)

    @property
    def gives_a_tuple(self) -> bool:
        """Whether all there is to make is a tuple of the leaves."""
        if self._kinds != [tuple] or self._constants or self._fills:
            return False
        _, parts = self._steps[0]
        return self._roots == [len(parts)] and parts == list(range(len(parts)))

    def texts(self, named: Callable[[Any], str]) -> list[str]:
        """What is made, a line each; `named` says what a constant is."""
        steps = zip(self._kinds, self._steps, strict=True)
        lines = [f"constant {named(value)}" for value in self._constants]
        lines += [f"{kind.__qualname__} of {parts}" for kind, (_, parts) in steps]
        for _, number, parts, names, holds in self._fills:
            lines.append(f"{number} holds {parts}, attributes {names} {holds}")
        return [*lines, f"gives {self._roots}"]

    # --- taking apart ------------------------------------------------------------------------

    def _number(self, value: Any) -> tuple[int, int]:
        """(0 for leaves, 1 for constants, 2 for what is made; which)."""
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = self._take(value), value
        return found[0]

    def _take(self, value: Any) -> tuple[int, int]:
        if id(value) in self._foreign:
            self.leaves.append(self._foreign[id(value)])
            return 0, len(self.leaves) - 1
        if type(value) is PendingItem:
            if value.method == "numpy":
                _check_tensor(value.tensor)
            self.leaves.append(value)
            return 0, len(self.leaves) - 1
        if isinstance(value, Tensor):
            if value._graphc_trace is None and not self._known(value):
                raise NotRebuilt("a new tensor that is no part of the graph")
            _check_tensor(value)
        if isinstance(value, Tensor) or is_traced_value(value):
            self.leaves.append(value)
            return 0, len(self.leaves) - 1
        if is_constant(value) or self._known(value):
            self._constants.append(value)
            return 1, len(self._constants) - 1
        recipe = recipe_of(value)
        if recipe is None:
            raise NotRebuilt(f"a new {type(value).__name__}")
        at_once = [] if recipe.fill is not None else recipe.parts(value)
        parts = [self._number(part) for part in at_once]
        number = 2, len(self._made)
        self._made.append(value)
        self._steps.append((recipe.maker(value), parts))
        self._kinds.append(type(value))
        if recipe.fill is not None or next(attributes(value), None) is not None:
            self._waiting.append((value, recipe, number))
        return number

    def _fill(self, value: Any, recipe: Recipe, number: tuple[int, int]) -> None:
        """What an object that can be filled holds."""
        parts = [] if recipe.fill is None else recipe.parts(value)
        content = [self._number(part) for part in parts]
        found = [(name, self._number(part)) for name, part in attributes(value)]
        names, holds = [name for name, _ in found], [part for _, part in found]
        self._fills.append((recipe.fill, number, content, names, holds))

    def _check_elsewhere(self, held: list[Any], holders: Iterable[Any]) -> None:
        """Raise NotRebuilt where something else, which nobody knew, holds what is to be made."""
        inside = Counter(map(id, [*held, *held[1:], *held[1:]]))  # where it is stored; `stored`
        for value in (*self._made, *holders):
            inside.update(map(id, gc.get_referents(value)))
            own = getattr(value, "__dict__", None)
            if type(own) is dict:
                inside.update(map(id, gc.get_referents(own)))
        value = own = None
        for _, (_, i), *_ in self._fills:
            # references: among the numbers and what is made, and getrefcount's argument
            if sys.getrefcount(self._made[i]) - inside[id(self._made[i])] > 3:
                name = type(self._made[i]).__name__
                raise NotRebuilt(f"a {name} that something else holds, too")

    def _resolve(self, roots: list[tuple[int, int]]) -> None:
        """One number for each value: leaves, then constants, then what is made."""
        start = (0, len(self.leaves), len(self.leaves) + len(self._constants))

        def at(numbers: list[tuple[int, int]]) -> list[int]:
            return [start[group] + i for group, i in numbers]

        self._roots = at(roots)
        self._steps = [(make, at(parts)) for make, parts in self._steps]
        self._fills = [
            (fill, at([number])[0], at(parts), names, at(holds))
            for fill, number, parts, names, holds in reversed(self._fills)
        ]
        # only the recipe is kept
        del self._numbers, self._made, self._waiting, self._known, self._foreign


_STATE = frozenset(Tensor.__annotations__)


def _check_tensor(tensor: Tensor) -> None:
    """Raise NotRebuilt unless an Output says all there is to say about a traced tensor."""
    if tensor._graphc_trace is None:
        return
    if type(tensor) is not Tensor:
        raise NotRebuilt(f"a new {type(tensor).__name__}")
    if not vars(tensor).keys() <= _STATE:
        raise NotRebuilt("a tensor with attributes of its own")
    node = tensor._graphc_node
    if tensor._graphc_requires_grad and node is None:
        raise NotRebuilt("a new leaf that requires a gradient")
    if tensor._graphc_hooks or tensor._graphc_post_hooks or (
        node is not None and (node.tensor_hooks or node.retained or node.pre_hooks
                              or node.post_hooks or node.metadata_)
    ):
        raise NotRebuilt("a tensor with hooks")
    if tensor._grad is not None and tensor._grad is not UNREAD:
        raise NotRebuilt("a tensor with a .grad")


def resolved(value: Any, real: Callable[[Any], Any], known: Callable[[Any], bool]) -> Any:
    """A result in which `real` says what each part is; containers of the call stay the same
    ones, unless they cannot be written to."""
    return _Resolved(real, known).visit(value)


class _Resolved:
    """One result; a class, since a function that calls itself keeps all it refers to alive."""

    def __init__(self, real: Callable[[Any], Any], known: Callable[[Any], bool]) -> None:
        self._real, self._known = real, known
        self._done: dict[int, tuple[Any, Any]] = {}

    def visit(self, item: Any) -> Any:
        """What a part of the result is."""
        if id(item) in self._done:
            return self._done[id(item)][1]
        found = self._real(item)
        self._done[id(item)] = item, found
        if found is not item or isinstance(item, Tensor) or is_constant(item) or (
            self._known(item)
        ):
            return found
        if type(item) is list:
            item[:] = [self.visit(part) for part in item]
        elif isinstance(item, dict):
            for key, part in list(dict.items(item)):
                if (now := self.visit(part)) is not part:
                    dict.__setitem__(item, key, now)
        elif isinstance(item, tuple):
            parts = [self.visit(part) for part in item]
            if any(a is not b for a, b in zip(parts, item, strict=True)):
                found = tuple.__new__(type(item), parts)
                self._done[id(item)] = item, found
        if recipe_of(item) is not None:
            for name, part in list(attributes(item)):
                if (now := self.visit(part)) is not part:
                    set_attribute(item, name, now)
        return found
