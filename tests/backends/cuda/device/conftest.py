"""The device "cuda:0" over the emulator, for the tests of tests/backends/apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.emulator import Toolchain

from ...apart import test_compile, test_databases, test_eager, test_functions, test_programs
from ..emulated_device import registered

SHARED = (test_compile, test_databases, test_eager, test_functions, test_programs)


@pytest.fixture(scope="module", autouse=True)
def cuda(toolchain: Toolchain) -> Iterator[CudaBackend]:
    """Tests of those modules are about this device here."""
    with registered(toolchain) as backend, pytest.MonkeyPatch.context() as patch:
        for module in SHARED:
            patch.setattr(module, "HERE", "cuda")
        yield backend
