"""torch.backends.mkl: no MKL."""

from typing import Any

VERBOSE_OFF = 0
VERBOSE_ON = 1


def is_available() -> bool:
    """False."""
    return False


class verbose:  # torch spells this class in lower case
    """A context that does nothing: there is no MKL to be verbose."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> "verbose":
        return self

    def __exit__(self, *exception: Any) -> None:
        return None
