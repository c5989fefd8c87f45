"""The Platform of a machine with a GPU."""

from __future__ import annotations

import functools
from pathlib import Path

from graphc.backends.cuda import nvrtc
from graphc.backends.cuda.cubins import CubinCache
from graphc.backends.cuda.device import GPUS, Device
from graphc.backends.cuda.platform import Compile
from graphc.backends.cuda.source import Target


class Nvidia:
    """A device of this process, and NVRTC. Raises MissingLibrary, or CudaError where there is no
    device."""

    gpus = GPUS

    def __init__(self, index: int = 0) -> None:
        self._index = index

    @property
    def device(self) -> Device:
        """See Platform."""
        return self.gpus.device(self._index)

    def on(self, index: int) -> Nvidia:
        """See Platform."""
        return Nvidia(index)

    @functools.cached_property
    def target(self) -> Target:
        """See Platform."""
        return Target(nvrtc.architecture(self.device.driver, self.device.index))

    def compiler(self, directory: Path | None) -> Compile:
        """NVRTC, of the newest release whose code the driver loads."""
        found = nvrtc.compiler_for(self.device.driver.version())
        cache = CubinCache(directory)
        return lambda text: cache.compile(found, text, self.target.architecture).cubin
