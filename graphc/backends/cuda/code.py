"""Machine code of many kernels. What is new in a program is compiled as one text, or as several at
a time; which text a kernel was part of is kept, so that it is found again alone, or beside
others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphc.backends.cuda.compilers import Compiler, Compilers
from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import SHARED_DEFAULT, Function, Module
from graphc.backends.cuda.source import Source, batch, shared_out
from graphc.backends.host.store import Store

_MAGIC = b"graphc kernel 1\n"


class Loaded(NamedTuple):
    """A source on the device: its functions, in the order of its stages; and whether it was
    compiled before it was asked for."""

    functions: tuple[Function, ...]
    known: bool


class _Kept(NamedTuple):
    """What a directory has: compiled texts, and for each kernel's text the key of such a one."""

    compiler: Compiler
    places: Store


class Code:
    """All that was loaded on one device. Safe to share between threads. `directory`: where what
    is compiled from now on is kept."""

    def __init__(self, device: Device, compilers: Compilers) -> None:
        self._device, self._compilers = device, compilers
        self.directory: Path | None = None
        self._kept: dict[Path | None, _Kept] = {}
        self._modules: dict[bytes, Module] = {}  # by the keys of their texts
        self._functions: dict[str, tuple[Function, ...]] = {}
        self._lock = threading.RLock()

    def load(self, sources: Sequence[Source]) -> list[Loaded]:
        """Each source's functions."""
        with self._lock:
            new = {s.text: s for s in sources if s.text not in self._functions}
            if new:
                self._device.activate()
                for source in [s for s in new.values() if self._found(s)]:
                    del new[source.text]
            if new:
                self._compile(list(new.values()))
            return [Loaded(self._functions[s.text], s.text not in new) for s in sources]

    @property
    def _here(self) -> _Kept:
        kept = self._kept.get(self.directory)
        if kept is None:
            compiler = self._compilers.make(self._device, self.directory)
            kept = _Kept(compiler, Store(self.directory, _MAGIC, ".kernel"))
            self._kept[self.directory] = kept
        return kept

    def _found(self, source: Source) -> bool:
        """Loads what was compiled before, if that is so."""
        compiler, places = self._here
        place = places.read(compiler.key(source.text))
        if place is None:
            return False
        if place not in self._modules:
            image = compiler.find(place)
            if image is None:
                return False
            self._modules[place] = self._device.driver.load(image)
        self._take(source, self._modules[place])
        return True

    def _compile(self, sources: Sequence[Source]) -> None:
        compiler, places = self._here
        groups = shared_out(sources, compiler.processes)
        texts = [batch(group) for group in groups]
        images = compiler.compile(texts)
        for group, text, image in zip(groups, texts, images, strict=True):
            module = self._device.driver.load(image)
            place = compiler.key(text)
            self._modules[place] = module
            for source in group:
                self._take(source, module)
                places.write(compiler.key(source.text), place)

    def _take(self, source: Source, module: Module) -> None:
        driver, functions = self._device.driver, []
        for stage in source.stages:
            functions.append(driver.function(module, stage.name))
            if stage.shared > SHARED_DEFAULT:
                driver.allow_shared(functions[-1], stage.shared)
        self._functions[source.text] = tuple(functions)
