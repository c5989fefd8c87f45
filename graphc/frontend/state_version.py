"""One counter of writes to Modules, parameters' identity and optimizers.

A compiled function whose roots were checked at this count need not check them again.
"""

from __future__ import annotations

_version = 0


def bump() -> None:
    """Note that some Module or optimizer state changed."""
    global _version
    _version += 1


def current() -> int:
    """The count of changes so far."""
    return _version
