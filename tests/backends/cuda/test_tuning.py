"""mode="max-autotune" on the emulator: a driver whose clock goes as it was planned."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc import config
from graphc.backends.cuda.apart import Products
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.cublaslt import Problem
from graphc.backends.cuda.driver import Event, Launch, Stream
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver, Prepared
from graphc.backends.cuda.errors import error_of
from graphc.backends.cuda.libraries import CUBLASLT, Found
from graphc.backends.cuda.tuning.kept import Timed, Tried
from graphc.frontend import placement

from . import needs
from .device.test_library_products import Queued
from .emulated_device import there

Cost = Callable[[Prepared], float]  # milliseconds of a launch


class Clock(EmulatedDriver):
    """Each launch takes as long as `cost` says; events read the clock as they happen."""

    def __init__(self, toolchain: Toolchain) -> None:
        super().__init__(toolchain, 1 << 27)
        self.now = 0.0
        self.cost: Cost = lambda launch: 1.0
        self.timed = 0  # how often a time was asked for
        self._seen: dict[Event, float] = {}
        self._timing = False  # nothing is computed, time passes

    def launch(self, launch: Launch, stream: Stream) -> None:
        assert isinstance(launch, Prepared)
        cost = self.cost(launch)
        if not self._timing:
            super().launch(launch, stream)
        self.take(cost, stream)

    def create_event(self, timing: bool = False) -> Event:
        made = super().create_event(timing)
        if timing:
            self._seen[made] = 0.0
        return made

    def take(self, milliseconds: float, stream: Stream) -> None:
        def later(_: object) -> None:
            self.now += milliseconds

        self._begin(stream, later)

    def record(self, event: Event, stream: Stream) -> None:
        super().record(event, stream)
        if event in self._seen:
            self._timing = not self._timing
            self._begin(stream, lambda _: self._seen.__setitem__(event, self.now))

    def wait_for_event(self, event: Event) -> None:
        self.synchronise()

    def elapsed(self, start: Event, end: Event) -> float:
        self.timed += 1
        return self._seen[end] - self._seen[start]


class Library(Queued):
    """A product takes what `costs` says of the proposal."""

    costs = (1.0, 1.0, 1.0)

    def multiply(
        self, problem: Problem, left: int, right: int, result: int, workspace: int, stream: int
    ) -> None:
        super().multiply(problem, left, right, result, workspace, stream)
        assert isinstance(self.driver, Clock)
        self.driver.take(self.costs[problem.proposal], Stream(stream))


@pytest.fixture
def here(toolchain: Toolchain) -> Iterator[CudaBackend]:
    with there(Clock(toolchain)) as backend:
        placement.place_of("cuda")
        yield backend


@pytest.fixture
def library(here: CudaBackend, tmp_path: Path) -> Iterator[Library]:
    path = tmp_path / "libcublasLt.so"
    needs.compile_c(Path(__file__).with_name("fake_cublaslt.c"), path, "-shared", "-fPIC", "-lm")
    made = Library(Found(CUBLASLT, ctypes.CDLL(str(path)), str(path), (12, 9)), driver(here))
    here.products = Products(made)
    yield made
    made.close()


def driver(backend: CudaBackend) -> Clock:
    found = backend.memory.driver
    assert isinstance(found, Clock)
    return found


def split(cheaper: bool) -> Cost:
    """A sum in two pieces, which a second launch adds, is cheaper, or dearer, than one."""
    def cost(launch: Prepared) -> float:
        if launch.kernel.name.endswith("_combine"):
            return 0.01
        return 0.1 if (launch.grid[0] > 1) == cheaper else 1.0

    return cost


X = np.random.default_rng(0).standard_normal((20, 128)).astype("f4")
W = np.random.default_rng(1).standard_normal((128, 24)).astype("f4")


def product(mode: str | None = "max-autotune", name: str = "f", **more: object) -> tuple[str, bool]:
    """explain()'s line of a compiled product, and whether its result is right."""
    function = torch.compile(lambda x, w: torch.relu(x @ w), mode=mode, dynamic=False, **more)
    x, w = (torch.tensor(each).to("cuda") for each in (X, W))
    right = np.allclose(function(x, w).cpu().numpy(), np.maximum(X @ W, 0), rtol=1e-4, atol=1e-4)
    lines = str(torch.explain(function, x, w)).splitlines()
    return next((line for line in lines if line.startswith("dot_general_relu at ")), ""), right


def test_the_quickest_is_taken_and_kept(here: CudaBackend, tmp_path: Path) -> None:
    clock = driver(here)
    with config.override(cache_dir=tmp_path, cuda_libraries="0"):
        clock.cost = split(cheaper=False)
        said, right = product()
        assert right and "threads, 2 stages; k in 1 pieces of 128 in 0.1 ms | " in said, said
        assert said.endswith("k in 2 pieces of 64: 1.01 ms") and clock.timed
        (file,) = tmp_path.rglob("*.timed")
        # another process: what is in memory is gone, what is on disk is not
        here.__dict__.pop("tuner")
        clock.timed, clock.cost = 0, split(cheaper=True)
        said, right = product()
        assert right and "k in 1 pieces of 128 in 0.1 ms (timed earlier)" in said
        assert clock.timed == 0
        # a file that says nothing true is as if it were not there
        file.write_bytes(file.read_bytes()[:-9] + b"nonsense}")
        here.__dict__.pop("tuner")
        said, right = product()
        assert right and "k in 2 pieces of 64 in 0.11 ms | " in said and clock.timed


def test_without_the_mode_nothing_is_timed(here: CudaBackend) -> None:
    clock = driver(here)
    with config.override(cuda_libraries="0", cache_dir=None):
        for mode in (None, "default", "reduce-overhead"):
            assert product(mode) == ("", True)
        torch.use_deterministic_algorithms(True)
        try:
            assert product() == ("", True)
        finally:
            torch.use_deterministic_algorithms(False)
        assert clock.timed == 0
        assert "ms" in product(None, options={"max_autotune": True})[0]
        clock.timed = 0
        x = torch.tensor(X).to("cuda")
        with config.override(max_autotune=1):
            (x @ x.T).sum().item()  # eager mode is not compiled code
            assert clock.timed == 0
            assert "ms" in product(None)[0]


def test_a_library_among_the_ways(library: Library, here: CudaBackend) -> None:
    with config.override(cache_dir=None):
        library.costs = (0.5, 0.2, 0.3)
        clock = driver(here)
        clock.cost = lambda launch: 0.05 if launch.kernel.name.endswith("_finish") else 1.0
        said, right = product()
        assert right and ": cuBLASLt, proposal 2 in 0.25 ms" in said, said
        assert library.problems[-1].proposal == library.found.handle.fake_taken() == 1
        assert "cuBLASLt, proposal 3: 0.35 ms | cuBLASLt, proposal 1: 0.55 ms" in said
        # who wants the library has it, timed; who does not want it does not
        with config.override(cuda_libraries="1"):
            here.__dict__.pop("tuner")
            said, right = product()
            assert right and "proposal 2" in said and "simt" not in said
        with config.override(cuda_libraries="0"):
            said, right = product()
            assert right and "cuBLASLt" not in said
        library.costs = (3.0, 2.0, 2.0)
        here.__dict__.pop("tuner")
        said, right = product()
        assert right and "simt" in said.split(" | ")[0]


def test_what_refuses_is_no_way(library: Library, here: CudaBackend) -> None:
    def cost(launch: Prepared) -> float:
        if launch.kernel.name.endswith("_combine"):
            raise error_of("cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too much")
        return 1.0

    driver(here).cost = cost
    library.found.handle.fake_refuse(1)
    with config.override(cache_dir=None):
        said, right = product()
    assert right and said.endswith("k in 1 pieces of 128 in 1 ms | 1 not possible")


def test_sizes_that_vary_and_devices_without_a_clock(here: CudaBackend) -> None:
    clock = driver(here)
    with config.override(cache_dir=None, cuda_libraries="0"):
        function = torch.compile(lambda x, w: x @ w, mode="max-autotune", dynamic=True)
        x, w = (torch.tensor(each).to("cuda") for each in (X, W))
        function(x, w)
        assert "not timed: its sizes vary" in str(torch.explain(function, x, w))
        clock.cost = lambda launch: 0.0
        said, right = product()
        assert right and "not timed: the device has no clock" in said


def test_no_memory_to_time_in(here: CudaBackend) -> None:
    clock = driver(here)
    with config.override(cache_dir=None, cuda_libraries="0"):
        x, w = (torch.tensor(each).to("cuda") for each in (X, W))
        function = torch.compile(lambda x, w: torch.relu(x @ w), mode="max-autotune")
        torch.cuda.synchronize()
        size, clock.size = clock.size, sum(clock.pieces.values())
        try:
            with pytest.raises(torch.cuda.OutOfMemoryError):
                function(torch.zeros(4096, 128, device="cuda"), w)
        finally:
            clock.size = size
        assert function(x, w).shape == (20, 24)


@pytest.mark.slow
@pytest.mark.parametrize("cheaper", (False, True))
def test_a_convolutions_training_step(
    cheaper: bool, here: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, whatever was quickest."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    driver(here).cost = split(cheaper)
    found = []
    for place, mode in (("cpu", None), ("cuda", "max-autotune")):
        torch.manual_seed(0)
        layer, x = torch.nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 9, 9)
        with config.override(cache_dir=None, cuda_libraries="0"):
            y = torch.compile(layer.to(place), mode=mode)(x.to(place))
            y.square().sum().backward()
        found.append([y.detach(), *(p.grad for p in layer.parameters())])
    assert driver(here).timed
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b.cpu().numpy(), a.numpy(), rtol=1e-3, atol=1e-4)


def test_what_files_may_say(tmp_path: Path) -> None:
    """Two ways; what is not exactly that is nothing."""
    timed, key = Timed(), bytes(32)
    right = {"times": [1.5, None], "taken": 0}
    wrong = (
        {"times": [1.5], "taken": 0}, {"times": [1.5, 2.0], "taken": 2}, {"times": 3, "taken": 0},
        {"times": [1.5, None], "taken": 1}, {"times": [1.5, -1.0], "taken": 0}, [1, 2], None,
        {"times": [1.5, "2"], "taken": 0}, {"times": [1.5, 2.0], "taken": True}, {"taken": 0},
        {"times": [1.5, float("nan")], "taken": 0},
    )
    for number, said in enumerate((*wrong, right)):
        here = tmp_path / str(number)
        Timed()._store(here).write(key, json.dumps(said).encode())
        assert timed.find(key, 2, here) == (Tried((1.5, None), 0) if said is right else None)
    assert Timed().find(key, 3, tmp_path / str(len(wrong))) is None


def test_torchs_modes() -> None:
    with pytest.raises(RuntimeError, match=r"Unrecognized mode=fast, should be one of: default, "):
        torch.compile(lambda x: x, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options can be specified, but both"):
        torch.compile(mode="default", options={"max_autotune": True})
    function = torch.compile(lambda x: x @ x + 1, mode="max-autotune")  # on the CPU
    assert function(torch.eye(3)).sum().item() == 12
