"""What was timed, on disk: by the device, the driver, the library, and the kernel with all ways to
compute it. What does not say that exactly is as if it were not there."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Attribute
from graphc.backends.host.store import Store

_MAGIC = b"graphc timed 1\n"


class Tried(NamedTuple):
    """Milliseconds by way, in the order of the ways; None: it refused. `taken`: its number."""

    times: tuple[float | None, ...]
    taken: int


def identity(device: Device, library: tuple[int, ...] | None) -> str:
    """All that times hang on besides the kernel."""
    facts = (
        device.name, device.capability, device.attribute(Attribute.MULTIPROCESSOR_COUNT),
        device.driver.version(), library,
    )
    return repr(facts)


def key_of(identity: str, kernel: str, source: str, ways: Sequence[object]) -> bytes:
    """`kernel`: its text; `source`: CUDA C of its usual code, which tells versions of graphc."""
    digest = hashlib.sha256()
    for part in (identity, kernel, source, *map(str, ways)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


class Timed:
    """By key, in memory and in directories."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tried] = {}
        self._stores: dict[Path | None, Store] = {}

    def find(self, key: bytes, ways: int, directory: Path | None) -> Tried | None:
        """What was kept of so many ways."""
        if key not in self._known:
            data = self._store(directory).read(key)
            found = None if data is None else _parsed(data, ways)
            if found is None:
                return None
            self._known[key] = found
        return self._known[key]

    def keep(self, key: bytes, tried: Tried, directory: Path | None) -> None:
        """For this process, and others."""
        self._known[key] = tried
        self._store(directory).write(key, json.dumps(tried._asdict()).encode())

    def _store(self, directory: Path | None) -> Store:
        if directory not in self._stores:
            self._stores[directory] = Store(directory, _MAGIC, ".timed")
        return self._stores[directory]


def _parsed(data: bytes, ways: int) -> Tried | None:
    try:
        found: Any = json.loads(data)
        tried = Tried(tuple(found["times"]), found["taken"])
    except (ValueError, TypeError, KeyError):
        return None
    right = len(tried.times) == ways and all(
        each is None or (isinstance(each, float) and math.isfinite(each) and each > 0)
        for each in tried.times
    )
    taken = tried.taken
    if not right or type(taken) is not int or not 0 <= taken < ways or tried.times[taken] is None:
        return None
    return tried
