"""The device "cuda:0" over the emulator: the CUDA backend as it is, over another driver and another
compiler."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphc import backends
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.device import Device, Gpus
from graphc.backends.cuda.driver import Executable, Graph, Launch, Node, Stream
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.source import OLDEST, Target
from graphc.engine.capture.kinds import is_part_of_machinery
from graphc.frontend import device, placement
from graphc.frontend.values import Eager


class CountingDriver(EmulatedDriver):
    """Counts what the host asks for, and how often it waits."""

    def __init__(self, toolchain: Toolchain, size: int = 1 << 30) -> None:
        super().__init__(toolchain, size, current=False)
        self.calls: Counter[str] = Counter()

    def launch(self, launch: Launch, stream: Stream) -> None:
        self.calls["launch"] += 1
        super().launch(launch, stream)

    def allocate(self, size: int) -> int:
        self.calls["allocate"] += 1
        return super().allocate(size)

    def add_launch(self, graph: Graph, after: Sequence[Node], launch: Launch) -> Node:
        self.calls["add_launch"] += 1
        return super().add_launch(graph, after, launch)

    def launch_graph(self, executable: Executable, stream: Stream) -> None:
        self.calls["launch_graph"] += 1
        super().launch_graph(executable, stream)

    def update_launch(self, executable: Executable, node: Node, launch: Launch) -> None:
        self.calls["update_launch"] += 1
        super().update_launch(executable, node, launch)

    def _run(self, stream: Stream, call: str) -> None:
        self.calls["wait"] += 1
        super()._run(stream, call)


class ByToolchain:
    """See Compilers, and Compiler. `compiled`: the texts that nobody knew."""

    def __init__(self, toolchain: Toolchain) -> None:
        self.toolchain = toolchain
        self.compiled: list[str] = []
        self._images: dict[bytes, bytes] = {}

    def target(self, device: Device) -> Target:
        return OLDEST

    def make(self, device: Device, directory: Path | None) -> ByToolchain:
        return self

    def key(self, text: str) -> bytes:
        return hashlib.sha256(text.encode()).digest()

    def find(self, key: bytes) -> bytes | None:
        return self._images.get(key)

    @property
    def processes(self) -> int:
        return 1

    def compile(self, texts: Sequence[str]) -> list[bytes]:
        self.compiled += texts
        for text in texts:
            image = self.toolchain.compile({"text": text}).path.read_bytes()
            self._images[self.key(text)] = image
        return [self._images[self.key(text)] for text in texts]


@contextmanager
def there(driver: EmulatedDriver) -> Iterator[CudaBackend]:
    """A driver's GPUs, which nobody has asked for yet; other tests find the process as if there
    were none."""
    compilers = ByToolchain(driver.toolchain)
    backend = CudaBackend(Gpus(lambda: driver), compilers)
    with pytest.MonkeyPatch.context() as patch:
        for table in ("_entries", "_loaded"):
            patch.setattr(backends, table, dict(getattr(backends, table)))
        others = {
            name: place for name, place in placement._places.items() if place.device.type != "cuda"
        }
        patch.setattr(placement, "_places", others)
        patch.setattr(Eager, "elsewhere", Eager.elsewhere if others else None)
        for name in ("copy", "holds", "later"):
            patch.setattr(placement.Pinned, name, placement.Pinned.__dict__[name])
        kinds = set(device.registered)
        del backends._entries["cuda"]
        backends._loaded.pop("cuda", None)
        backends.register("cuda", lambda: backend)
        is_part_of_machinery(driver, compilers)
        yield backend
        device.registered.clear()
        device.registered.update(kinds)


@contextmanager
def registered(toolchain: Toolchain) -> Iterator[CudaBackend]:
    """The device, as the first question about it makes it."""
    with there(CountingDriver(toolchain)) as backend:
        placement.place_of("cuda")
        yield backend
