"""The device "apart:0", registered by the public lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphc import backends
from graphc.engine import devices
from graphc.frontend import device, placement
from graphc.frontend.values import Eager

from .backend import ApartBackend

BACKEND = ApartBackend()


@pytest.fixture(scope="module", autouse=True)
def apart() -> Iterator[None]:
    """Other tests find the process as if there were the CPU alone."""
    with pytest.MonkeyPatch.context() as patch:
        for table in ("_entries", "_loaded"):
            patch.setattr(backends, table, dict(getattr(backends, table)))
        patch.setattr(placement, "_places", dict(placement._places))
        patch.setattr(Eager, "elsewhere", Eager.elsewhere)
        kinds = set(device.registered)
        backends.register("apart", lambda: BACKEND, ("debug",))
        devices.register("apart", "apart")
        yield
        device.registered.clear()
        device.registered.update(kinds)
