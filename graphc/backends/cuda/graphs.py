"""Launches that follow each other, sent one by one or as one CUDA graph. The graph is a straight
line of nodes, built of the prepared launches; from call to call those nodes are updated whose
arguments or grids have changed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Executable, Graph, Launch, Node, Stream
from graphc.backends.cuda.errors import CudaError
from graphc.ir.kernel import Launch as Step

LEAST = 8  # launches that "auto" makes a graph of, not at the first call
_UPDATES = 2  # it sends them one by one where more than one of so many has changed


class Ready:
    """A prepared launch in its Run. Its arguments are words of 8 bytes."""

    __slots__ = ("_call", "_run", "changed", "launch", "name", "of", "words")

    def __init__(self, run: Run, launch: Launch, name: str, of: tuple[Step, ...]) -> None:
        self._run, self.launch, self.name, self.of = run, launch, name, of
        self.words = launch.arguments.cast("q")
        self.changed = False
        self._call = -1  # at which it was changed last

    def change(self) -> None:
        """Its words, or its grid, are others."""
        run = self._run
        if self._call != run.calls:
            self._call = run.calls
            run.touched += 1
        if not self.changed:
            self.changed = True
            run.changed.append(self)


class Run:
    """Launches one after another, of one lease. `choice`: see GRAPHC_CUDA_GRAPHS."""

    def __init__(self, device: Device, choice: str) -> None:
        self._device, self._choice = device, choice
        self.launches: list[Ready] = []
        self.changed: list[Ready] = []  # since the graph saw them
        self.touched = 0  # how many were changed since the last call
        self.calls = 0
        self._executable: Executable | None = None
        self._nodes: dict[int, Node] = {}

    def begin(self, dims: Mapping[str, int], stream: Stream) -> None:
        """Sends them to a stream, in a call with these values of the program's dims."""
        driver, timer = self._device.driver, self._device.timer
        as_graph = self._as_graph()
        self.calls += 1
        self.touched = 0
        if timer is not None:
            for ready in self.launches:
                with timer.timing(ready.name, ready.of, dims, stream):
                    driver.launch(ready.launch, stream)
            return
        if not as_graph:
            for ready in self.launches:
                driver.launch(ready.launch, stream)
            return
        if self._executable is None:
            self._executable = self._build()
        else:
            for ready in self.changed:
                driver.update_launch(self._executable, self._nodes[id(ready)], ready.launch)
        for ready in self.changed:
            ready.changed = False
        self.changed.clear()
        driver.launch_graph(self._executable, stream)

    def _as_graph(self) -> bool:
        if self._choice != "auto":
            return self._choice == "1"
        few = self.touched * _UPDATES <= len(self.launches)
        return few and len(self.launches) >= LEAST and self.calls > 0

    def _build(self) -> Executable:
        driver = self._device.driver
        graph, after = driver.create_graph(), list[Node]()
        for ready in self.launches:
            after = [driver.add_launch(graph, after, ready.launch)]
            self._nodes[id(ready)] = after[0]
        made = driver.instantiate(graph)
        weakref.finalize(self, _destroy, self._device, graph, made).atexit = False
        return made


def _destroy(device: Device, graph: Graph, executable: Executable) -> None:
    with suppress(CudaError, RuntimeError):  # the context may be lost, or another process's
        device.activate()
        device.driver.destroy_executable(executable)
        device.driver.destroy_graph(graph)
