"""The emulator, once per session: its toolchain, and the Backend that runs on it."""

import pytest

from graphc import backends
from graphc.backends.cuda.emulator import Toolchain, compiler

from .emulated import NAME, EmulatedBackend


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    if compiler() is None:
        pytest.skip("the emulator of CUDA C needs a C++ compiler (g++ or clang++)")
    return Toolchain(tmp_path_factory.mktemp("emulator"))


@pytest.fixture(scope="session")
def emulated(toolchain: Toolchain) -> EmulatedBackend:
    """Registered under NAME, for this session."""
    backend = EmulatedBackend(toolchain)
    backends.register(NAME, lambda: backend, ("debug",))
    return backend
