"""Where the fuzzer's graphs run: the name of a backend for each device, registered on demand."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from graphc import backends
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.device import Gpus
from graphc.backends.cuda.emulator import Toolchain
from tests.backends.apart.backend import ApartBackend
from tests.backends.cuda.emulated_device import ByToolchain, CountingDriver


def _apart() -> str:
    """The second device of the tests. Its worker starts in the process that runs graphs."""
    backends.register("apart", ApartBackend, ("debug",))
    return "apart"


def _emulated() -> str:
    """The CUDA backend over the emulator. Kernels that were compiled before, whatever the process,
    are found again."""
    folder = Path(tempfile.gettempdir(), f"graphc-fuzz-emulated-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)

    @functools.cache
    def backend() -> CudaBackend:
        toolchain = Toolchain(folder)
        return CudaBackend(Gpus(lambda: CountingDriver(toolchain)), ByToolchain(toolchain))

    backends.register("emulated cuda", backend, ("debug",))
    return "emulated cuda"


DEVICES: dict[str, Callable[[], str]] = {
    "cpu": lambda: backends.DEFAULT, "apart": _apart, "emulated": _emulated
}
