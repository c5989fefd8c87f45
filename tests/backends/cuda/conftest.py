"""The emulator's toolchain, once per session."""

import pytest

from graphc.backends.cuda.emulator import Toolchain, compiler


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    if compiler() is None:
        pytest.skip("the emulator of CUDA C needs a C++ compiler (g++ or clang++)")
    return Toolchain(tmp_path_factory.mktemp("emulator"))
