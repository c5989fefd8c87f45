"""Random numbers of the host: NumPy's functions until so many were drawn that native ones are worth
their loading; both give the same bits, so when that is does not matter."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..backends.numpy.ops import TABLE
from ..config import current

_ENOUGH = 4096  # numbers, which NumPy takes a millisecond for
_LEAST = 64  # that a draw counts as

# what the CPU's backend has: known without its being imported
NAMES = (
    "rng_uniform", "rng_normal", "rng_bernoulli", "rng_randint", "rng_permutation",
    "rng_exponential",
)


class _Native:
    """The functions, once they are loaded; none where that failed."""

    def __init__(self) -> None:
        self._drawn = 0
        self._lock = threading.Lock()
        self.table: Mapping[str, Callable[..., Any]] | None = None

    def wanted(self, count: int) -> Mapping[str, Callable[..., Any]]:
        """Asked at each draw of `count` numbers."""
        if self.table is None:
            self._drawn += max(count, _LEAST)
            if self._drawn < _ENOUGH:
                return TABLE
            with self._lock:
                if self.table is None:
                    self.table = {**TABLE, **_loaded()}
        return self.table


def _loaded() -> Mapping[str, Callable[..., Any]]:
    from .. import backends
    from .pipeline import host

    try:
        return backends.get("llvm").draws(host(current()))
    except (ImportError, OSError, RuntimeError):  # no LLVM for this machine
        return {}


_native = _Native()


def _draw(name: str, state: Any, **attrs: Any) -> Any:
    count = attrs["n"] if "n" in attrs else math.prod(attrs["shape"])
    return _native.wanted(count)[name](state, **attrs)


def functions() -> dict[str, Callable[..., Any]]:
    """By operator; see backends.numpy.use."""
    return {name: functools.partial(_draw, name) for name in NAMES}
