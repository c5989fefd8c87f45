"""Random numbers of the host: NumPy's functions until so many were drawn that native ones are worth
their loading; both give the same bits, so when that is does not matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..backends.numpy.counter import Draws
from ..backends.numpy.ops import TABLE
from ..ir import forks

_ENOUGH = 4096  # numbers, which NumPy takes a millisecond for
_LEAST = 64  # that a draw counts as
_LEAST_NORMAL = 512  # one by NumPy's arithmetic in float32, however short: 0.2 ms
_WORDS = 624  # of a state, which has the place of its next word after them
_BLOCK = 16  # fewer normal numbers than that come by pairs
_MOST_DRAWERS = 4096

# what a backend may have (Backend.draws)
NAMES = (
    "rng_uniform", "rng_normal", "rng_bernoulli", "rng_randint", "rng_permutation",
    "rng_exponential",
)

_FIRST = ("uniforms_between",)  # what a backend links before the operators (llvm/stream.py)

Functions = Mapping[str, Callable[..., Any]]


class Native:
    """A backend's functions, once they are loaded; NumPy's where there are none."""

    def __init__(self, load: Callable[[], Functions]) -> None:
        """`load`: asked once, when it is worth it."""
        self._load, self._lock = load, forks.lock()
        self._drawn = 0
        self._table: Functions | None = None
        self._drawers: dict[Any, Callable[[Any, Any], Any] | None] = {}

    def wanted(self, count: int, least: int = _LEAST) -> Functions:
        """Asked at each draw of `count` numbers, which counts as `least` or more."""
        if self._table is None:
            self._drawn += max(count, least)
            if self._drawn < _ENOUGH:
                return TABLE
            with self._lock:
                if self._table is None:
                    self._table = self._loaded()
        return self._table

    def between(self, state: Any, count: int) -> Callable[..., Any] | None:
        """What fills memory with `count` uniform numbers (frontend.values.Eager.between); None
        where nothing does so."""
        if Draws.by_counter() or not 0 <= int(state[_WORDS]) <= _WORDS:
            return None
        return self.wanted(count).get("uniforms_between")

    def drawer(self, name: str, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any] | None:
        """What draws few numbers into memory, the state moving on in place
        (frontend.values.Eager.drawer); None: nothing does, or not yet."""
        table = self._table
        if table is None or Draws.by_counter():
            return None
        key = (name, *attrs.values())
        try:
            return self._drawers[key]
        except KeyError:
            make = table.get("drawer")
        if len(self._drawers) >= _MOST_DRAWERS:
            self._drawers.clear()
        try:
            found = None if make is None else make(name, attrs)
        except (OSError, RuntimeError, ImportError) as error:
            self.fails(error)
            return None
        self._drawers[key] = found
        return found

    def fails(self, error: Exception) -> None:
        """What is linked by itself at its first use cannot be, on this machine: NumPy's functions
        from now on. Raises the error if it is another one."""
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "llvmlite":
            raise error
        known = self._table or {}
        self._table = {**TABLE, **{name: known[name] for name in _FIRST if name in known}}

    def _loaded(self) -> Functions:
        try:
            return {**TABLE, **self._load()}
        except (OSError, RuntimeError):  # no compiler for this machine
            return TABLE
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "llvmlite":
                raise
            return TABLE


class Drawn:
    """The function of an operator that draws: (state; attributes) -> (values, new state)."""

    def __init__(self, native: Native, name: str) -> None:
        self._native, self._name = native, name

    def __call__(self, state: Any, **attrs: Any) -> Any:
        name = self._name
        count = attrs["n"] if "n" in attrs else math.prod(attrs["shape"])
        in_blocks = name == "rng_normal" and count >= _BLOCK
        table = self._native.wanted(count, _LEAST_NORMAL if in_blocks else _LEAST)
        if not 0 <= int(state[_WORDS]) <= _WORDS or (name == "rng_normal" and not in_blocks):
            table = TABLE
        if table[name] is TABLE[name]:
            return TABLE[name](state, **attrs)
        try:
            return table[name](state, **attrs)
        except (OSError, RuntimeError, ImportError) as error:
            found = TABLE[name](state, **attrs)  # raises what is wrong with the attributes
            self._native.fails(error)
            return found


def functions(native: Native) -> dict[str, Callable[..., Any]]:
    """By operator; see backends.numpy.use."""
    return {name: Drawn(native, name) for name in NAMES}
