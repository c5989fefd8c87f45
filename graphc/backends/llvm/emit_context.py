"""Scopes of a function under construction: what is bound, what was computed, and where it goes.

Each loop opens a scope. A value belongs to the level (scope depth) of the innermost thing it
depends on, and is emitted there once: into the open block when that is the current scope, else
into the preheader of the loop below it. Loop invariants are hoisted by this alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.backends.llvm.scalar import Operations
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module, Preheader
from graphc.backends.llvm.values import Value, register_type
from graphc.ir import dtypes
from graphc.ir.dim import Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Scalar
from graphc.ir.kernel.bounds import Interval
from graphc.ir.record import record

Index = int | str  # an i64: a constant or an SSA name
Key = tuple[object, ...] | int


class Noted(NamedTuple):
    """A scalar's value and the epoch in which it was computed."""

    value: Value
    epoch: int


@dataclass(slots=True)
class Hoisted:
    """A loop's preheader and what was put there; a vector loop and its tail share one."""

    before: Preheader
    memo: dict[Key, object] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """One level of the loop nest. `mask`: the live lanes (None: all). `checked`: a Check was made
    in it, so no memory may be touched for its sake at an outer level."""

    hoisted: Hoisted | None
    mask: str | None = None
    checked: bool = False
    memo: dict[Key, object] = field(default_factory=dict)
    bindings: dict[str, Value] = field(default_factory=dict)


@record(frozen=False)
class Buffer:
    """Where a buffer lies: `pointer()` emits or names its address; `mutable`: loads may not move
    across stores; `padded`: of a Local, its size, with room for a vector behind it; `around`: its
    elements, if what is stored may go around the caches (around.py)."""

    pointer: Callable[[], str]
    dtype: DType
    mutable: bool
    padded: int = 0
    around: Size | None = None


class Context:
    """A function with its scopes. `lanes` is the width of the vector loop around, or 1."""

    def __init__(
        self, fn: Function, module: Module, target: Target, buffers: dict[str, Buffer]
    ) -> None:
        self.fn, self.module, self.target = fn, module, target
        self.buffers = buffers
        self.lanes = 1
        self.vector_var = ""  # the variable of the vector loop around, if lanes > 1
        self.vector_level = 0
        self.aligned = True  # vectors start at multiples of `lanes`
        # Largest values of the index variables that are never negative (2^31: unknown).
        self.upper: dict[str, int] = {}
        self.held: dict[str, Interval] = {}  # what a clamp holds between two literals
        self.epoch = 0  # counts the moments at which mutable memory may have changed
        self.scopes = [Scope(None)]
        self.lets: dict[str, Scalar] = {}  # what the names of Lets stand for
        self._operations: dict[int, Operations] = {}

    @property
    def depth(self) -> int:
        """The current level."""
        return len(self.scopes) - 1

    def operations(self, lanes: int) -> Operations:
        """Instructions on so many lanes."""
        found = self._operations.get(lanes)
        if found is None:
            found = Operations(self.fn, self.module, self.target, lanes)
            self._operations[lanes] = found
        return found

    # Scopes

    def push(self, hoisted: Hoisted | None, mask: str | None = None) -> Scope:
        """Enters a loop body; the mask defaults to the outer one."""
        scope = Scope(hoisted, mask if mask is not None else self.scopes[-1].mask)
        self.scopes.append(scope)
        self.epoch += 1
        return scope

    def pop(self) -> None:
        """Leaves a loop body."""
        self.scopes.pop()
        self.epoch += 1

    def bind(self, name: str, value: Value) -> None:
        """Binds a loop variable, a Let or a carried value in the current scope."""
        self.scopes[-1].bindings[name] = value
        self.lets.pop(name, None)

    def lookup(self, name: str) -> Value:
        """The value bound to a name. Raises NameError for one that the kernel never binds."""
        for scope in reversed(self.scopes):
            found = scope.bindings.get(name)
            if found is not None:
                return found
        raise NameError(f"kernel uses {name!r}, which no loop, Let or dim binds")

    def check_level(self) -> int:
        """The level above which no memory may be touched: that of the innermost Check so far."""
        for level in range(self.depth, 0, -1):
            if self.scopes[level].checked:
                return level
        return 0

    # Emitting once

    def compute(self, level: int, key: Key, make: Callable[[], str]) -> str:
        """The text of a computation, emitted at `level` unless it was before."""
        depth = len(self.scopes) - 1
        found = self.scopes[level].memo.get(key)
        if found is None and level < depth:
            hoisted = self.scopes[level + 1].hoisted
            assert hoisted is not None
            found = hoisted.memo.get(key)
            if found is None:
                with hoisted.before:
                    found = make()
                hoisted.memo[key] = found
        elif found is None:
            found = make()
            self.scopes[level].memo[key] = found
        assert isinstance(found, str)
        return found

    def recall(self, key: int) -> Value | None:
        """What `remember` was told of a scalar expression, if it still holds."""
        for scope in reversed(self.scopes):
            entry = scope.memo.get(key)
            if entry is None and scope.hoisted is not None:
                entry = scope.hoisted.memo.get(key)
            if entry is not None:
                assert isinstance(entry, Noted)
                if entry.value.stable or entry.epoch == self.epoch:
                    return entry.value
        return None

    def remember(self, key: int, value: Value) -> None:
        """Notes the value of a scalar expression (by identity) for as long as it is valid."""
        depth = len(self.scopes) - 1
        memo = self.scopes[depth].memo
        if value.level < depth:
            hoisted = self.scopes[value.level + 1].hoisted
            if hoisted is not None:
                memo = hoisted.memo
        memo[key] = Noted(value, self.epoch)

    # Lanes

    def splat(self, value: Value, lanes: int) -> str:
        """A value in every one of `lanes` lanes."""
        return self.splat_text(
            value.text, register_type(value.dtype), value.lanes, lanes, value.level
        )

    def splat_text(self, text: str, element: str, have: int, lanes: int, level: int) -> str:
        """The same for a text of an LLVM element type."""
        if have == lanes:
            return text
        if not text.startswith("%"):
            return f"splat ({element} {text})"
        kind = f"<{lanes} x {element}>"

        def make() -> str:
            first = self.fn.let(f"insertelement {kind} poison, {element} {text}, i64 0")
            zero = f"<{lanes} x i32> zeroinitializer"
            return self.fn.let(f"shufflevector {kind} {first}, {kind} poison, {zero}")

        return self.compute(level, ("splat", text, lanes), make)

    def any_lane(self, mask: str, lanes: int) -> str:
        """An i1: is any lane of a mask set."""
        if lanes == 1:
            return mask
        bits = self.fn.let(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
        return self.fn.let(f"icmp ne i{lanes} {bits}, 0")

    def both(self, masks: Iterable[str | None], lanes: int) -> str | None:
        """The conjunction of masks of `lanes` lanes; None is true everywhere."""
        result: str | None = None
        for mask in masks:
            if mask is None:
                continue
            if result is None:
                result = mask
            else:
                result = self.operations(lanes).binary("and", dtypes.bool_, result, mask)
        return result
