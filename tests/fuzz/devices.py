"""Where the fuzzer's graphs run: the name of a backend for each device, registered on demand."""

from __future__ import annotations

from collections.abc import Callable

from graphc import backends
from tests.backends.apart.backend import ApartBackend


def _apart() -> str:
    """The second device of the tests. Its worker starts in the process that runs graphs."""
    backends.register("apart", ApartBackend, ("debug",))
    return "apart"


DEVICES: dict[str, Callable[[], str]] = {"cpu": lambda: backends.DEFAULT, "apart": _apart}
