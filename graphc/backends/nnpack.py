"""torch.backends.nnpack: no NNPACK."""

from collections.abc import Iterator
from contextlib import contextmanager


def is_available() -> bool:
    """False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """(False,): there is nothing to switch."""
    return (False,)


@contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """A context that does nothing."""
    yield
