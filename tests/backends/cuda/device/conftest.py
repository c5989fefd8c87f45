"""The device "cuda:0" over the emulator, or, with --nvidia, as it is, for the tests of
tests/backends/apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import pytest

from graphc import backends
from graphc.backends import Backend
from graphc.frontend import placement

from ...apart import test_autocast, test_compile, test_eager, test_functions, test_programs
from ..emulated_device import registered

SHARED = [test_autocast, test_compile, test_eager, test_functions, test_programs]
if find_spec("torch") is not None:
    from ...apart import test_databases

    SHARED.append(test_databases)


def _nvidia() -> AbstractContextManager[Backend]:
    placement.place_of("cuda")  # raises, with the cure, where there is none
    return nullcontext(backends.get("cuda"))


@pytest.fixture(scope="module", autouse=True)
def cuda(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Tests of those modules are about this device here."""
    if request.config.getoption("--nvidia"):
        made = _nvidia()
    else:
        made = registered(request.getfixturevalue("toolchain"))
    with made as backend, pytest.MonkeyPatch.context() as patch:
        for module in SHARED:
            patch.setattr(module, "HERE", "cuda")
        yield backend
