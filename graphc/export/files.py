"""Files that are there whole or not at all. Who has the old one open, or mapped as a library is,
keeps that."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Any]:
    """A file beside `target` to be written, which takes its place in the end."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write(target: Path, data: bytes) -> None:
    """All of a file."""
    with replacing(target) as file:
        file.write(data)


def _mode() -> int:
    """The permissions that an ordinary new file gets."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
