"""Machine code of many kernels: compiled where nobody knows it yet, all that is new in one text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphc.backends.cuda.driver import SHARED_DEFAULT, Function
from graphc.backends.cuda.platform import Compile, Platform
from graphc.backends.cuda.source import Source, batch


class Loaded(NamedTuple):
    """A source on the device: its functions, in the order of its stages; and whether it was there
    before it was asked for."""

    functions: tuple[Function, ...]
    known: bool


class Code:
    """All that was loaded on one device. Safe to share between threads. `directory`: where what
    is compiled from now on is kept."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.directory: Path | None = None
        self._compilers: dict[Path | None, Compile] = {}
        self._functions: dict[str, tuple[Function, ...]] = {}
        self._lock = threading.RLock()

    def load(self, sources: Sequence[Source]) -> list[Loaded]:
        """Each source's functions. What none of them was before is compiled as one text."""
        with self._lock:
            new = list({s.text: s for s in sources if s.text not in self._functions}.values())
            fresh = {source.text for source in new}
            if new:
                self._compile(new)
            return [Loaded(self._functions[s.text], s.text not in fresh) for s in sources]

    def _compile(self, sources: Sequence[Source]) -> None:
        compile = self._compilers.get(self.directory)
        if compile is None:
            compile = self._compilers[self.directory] = self._platform.compiler(self.directory)
        driver = self._platform.device.driver
        module = driver.load(compile(batch(sources)))
        for source in sources:
            functions = []
            for stage in source.stages:
                functions.append(driver.function(module, stage.name))
                if stage.shared > SHARED_DEFAULT:
                    driver.allow_shared(functions[-1], stage.shared)
            self._functions[source.text] = tuple(functions)
