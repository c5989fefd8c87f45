"""Launches that follow each other, sent one by one or as one CUDA graph. The graph is a straight
line of nodes, built of the prepared launches; from call to call those nodes are updated whose
arguments or grids have changed. What a library begins is captured from a stream of its own, and is
a graph in the graph: captured again where its buffers lie elsewhere."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Driver, Executable, Graph, Launch, Node, Stream
from graphc.backends.cuda.errors import CudaError
from graphc.ir.kernel import Launch as Step

LEAST = 8  # launches that "auto" makes a graph of, not at the first call
_UPDATES = 2  # it sends them one by one where more than one of so many has changed


def captures(choice: str) -> bool:
    """Whether calls of libraries become nodes. "auto" leaves them between graphs until a GPU has
    shown that they may (tests/gpu/stages/libraries.py)."""
    return choice == "1"


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

    def begin(self, driver: Driver, stream: Stream) -> None:
        """Sends it."""
        driver.launch(self.launch, stream)


class Called:
    """What a library does in a Run: `send` begins it on a stream, `place` says what that depends
    on: addresses and sizes."""

    __slots__ = ("_place", "_seen", "_send", "name", "of")

    def __init__(
        self, send: Callable[[Stream], None], place: Callable[[], Sequence[int]], name: str,
        of: tuple[Step, ...],
    ) -> None:
        self._send, self._place, self.name, self.of = send, place, name, of
        self._seen: Sequence[int] | None = None  # when it was captured last

    @property
    def changed(self) -> bool:
        """Whether it would be another call now."""
        return self._seen != self._place()

    def begin(self, driver: Driver, stream: Stream) -> None:
        """Sends it."""
        self._send(stream)

    def captured(self, device: Device) -> Graph:
        """What it begins, as a graph."""
        self._seen = None
        with device.capturing() as (stream, found):
            self._send(stream)
        self._seen = self._place()
        return found[0]


class Run:
    """Launches, and calls of libraries, one after another, of one lease. `choice`: see
    GRAPHC_CUDA_GRAPHS."""

    def __init__(self, device: Device, choice: str) -> None:
        self._device, self._choice = device, choice
        self.launches: list[Ready | Called] = []
        self.changed: list[Ready] = []  # since the graph saw them
        self.touched = 0  # how many were changed since the last call
        self.calls = 0
        self._executable: Executable | None = None
        self._end: Callable[[], object] = lambda: None  # of what was built
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
                    ready.begin(driver, stream)
            return
        if not as_graph:
            for ready in self.launches:
                ready.begin(driver, stream)
            return
        driver.launch_graph(self._current(), stream)

    def _as_graph(self) -> bool:
        if self._choice != "auto":  # a library prepares itself in its first call
            return self._choice == "1" and (self.calls > 0 or not self._called)
        few = self.touched * _UPDATES <= len(self.launches)
        return few and len(self.launches) >= LEAST and self.calls > 0

    @property
    def _called(self) -> list[Called]:
        return [each for each in self.launches if isinstance(each, Called)]

    def _current(self) -> Executable:
        """The graph, with all that has changed."""
        if self._executable is not None and not self._updated(self._executable):
            self._end()
            self._executable = None
        if self._executable is None:
            self._executable = self._build()
        for ready in self.changed:
            ready.changed = False
        self.changed.clear()
        return self._executable

    def _updated(self, executable: Executable) -> bool:
        """Whether the nodes could be changed: a library may begin others for other addresses."""
        driver = self._device.driver
        for ready in self.changed:
            driver.update_launch(executable, self._nodes[id(ready)], ready.launch)
        for called in self._called:
            if called.changed:
                inner = called.captured(self._device)
                try:
                    driver.update_graph(executable, self._nodes[id(called)], inner)
                except CudaError:
                    return False
                finally:
                    driver.destroy_graph(inner)
        return True

    def _build(self) -> Executable:
        driver = self._device.driver
        graph, after, inner = driver.create_graph(), list[Node](), list[Graph]()
        for ready in self.launches:
            if isinstance(ready, Ready):
                after = [driver.add_launch(graph, after, ready.launch)]
            else:
                inner.append(ready.captured(self._device))
                after = [driver.add_graph(graph, after, inner[-1])]
            self._nodes[id(ready)] = after[0]
        made = driver.instantiate(graph)
        _destroy_graphs(driver, inner)
        self._end = weakref.finalize(self, _destroy, self._device, graph, made)
        self._end.atexit = False
        return made


def _destroy(device: Device, graph: Graph, executable: Executable) -> None:
    with suppress(CudaError, RuntimeError):  # the context may be lost, or another process's
        device.activate()
        device.driver.destroy_executable(executable)
        device.driver.destroy_graph(graph)


def _destroy_graphs(driver: Driver, graphs: Iterable[Graph]) -> None:
    for graph in graphs:
        driver.destroy_graph(graph)
