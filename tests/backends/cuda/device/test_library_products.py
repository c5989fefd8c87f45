"""Whole programs whose products a library computes (fake_cublaslt.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc import config
from graphc.backends.cuda import choice, libraries
from graphc.backends.cuda.apart import Products
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.cublaslt import CublasLt, Problem
from graphc.backends.cuda.driver import Stream
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.backends.cuda.errors import CudaError
from graphc.backends.cuda.libraries import CUBLASLT, Found
from graphc.ir.dim import Dim
from graphc.ir.kernel import Product
from graphc.ir.record import replaced

from .. import needs
from ..product_cases import Case
from .test_executor import trained


class Queued(CublasLt):
    """What the library does at once, when it is asked, it does in the order of the stream; so it
    may be captured there."""

    def __init__(self, found: Found, driver: EmulatedDriver) -> None:
        super().__init__(found)
        self.driver = driver
        self.parts = 1  # launches of a product
        self.problems: list[Problem] = []

    def multiply(
        self, problem: Problem, left: int, right: int, result: int, workspace: int, stream: int
    ) -> None:
        self.problems.append(problem)
        multiply = super().multiply
        for part in range(self.parts):

            def work(_: object, last: bool = part == self.parts - 1) -> None:
                if last:
                    multiply(problem, left, right, result, workspace, stream)

            self.driver._begin(Stream(stream), work)


@pytest.fixture
def library(cuda: CudaBackend, tmp_path: Path) -> Iterator[Queued]:
    path = tmp_path / "libcublasLt.so"
    source = Path(__file__).parents[1] / "fake_cublaslt.c"
    needs.compile_c(source, path, "-shared", "-fPIC", "-lm")
    fake = ctypes.CDLL(str(path))
    made = Queued(Found(CUBLASLT, fake, str(path), (12, 9)), cuda.memory.driver)
    cuda.products = Products(made)
    with config.override(cuda_libraries="1"):
        yield made
    del cuda.products
    made.close()
    assert fake.fake_living() == 0


@pytest.mark.parametrize("graphs", ("0", "1"))
def test_a_training_step(graphs: str, library: Queued) -> None:
    got, want = trained("cuda", graphs), trained("cpu", graphs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    calls = 5 if graphs == "0" else 2  # a graph has what was captured
    assert len(library.problems) >= 5 * calls and len(set(library.problems)) >= 4


def test_symbolic_sizes_and_halves(library: Queued) -> None:
    run = torch.compile(lambda x, w: torch.relu(x @ w) + 1, fullgraph=True)
    rng = np.random.default_rng(0)
    w = torch.tensor(rng.standard_normal((16, 24)).astype("f4"))
    for rows in (3, 5, 8):
        x = torch.tensor(rng.standard_normal((rows, 16)).astype("f4"))
        for dtype, error in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
            a, b = x.to(dtype), w.to(dtype)
            got = run(a.to("cuda"), b.to("cuda")).float().cpu().numpy()
            want = (torch.relu(a @ b) + 1).float().numpy()
            np.testing.assert_allclose(got, want, rtol=error, atol=error)
    assert {p.m for p in library.problems} == {3, 5, 8}
    assert {p.result.dtype for p in library.problems} == {"f32", "bf16"}


def test_without_the_switch_nothing_is_asked(library: Queued) -> None:
    with config.override(cuda_libraries="0"):
        x = torch.ones(4, 4, device="cuda")
        torch.compile(lambda a: a @ a * 3, fullgraph=True)(x)
    assert library.problems == []


def test_a_graph_holds_the_librarys_calls(library: Queued) -> None:
    """Captured once; again where an operand lies elsewhere; and where the library then begins
    other launches, the graph is built anew."""
    driver = library.driver
    driver.calls.clear()
    function = torch.compile(lambda x, w: torch.relu(torch.tanh(x @ w) @ w) + 1, fullgraph=True)
    rng = np.random.default_rng(0)
    w = torch.tensor(rng.standard_normal((16, 16)).astype("f4"))
    inputs = [torch.tensor(rng.standard_normal((8, 16)).astype("f4")) for _ in range(3)]
    there, weight = [x.to("cuda") for x in inputs], w.to("cuda")

    def check(number: int) -> None:
        got = function(there[number], weight).cpu().numpy()
        want = (torch.relu(torch.tanh(inputs[number] @ w) @ w) + 1).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    asked = []
    with config.override(cuda_graphs="1"):
        for number in (0, 0, 0, 0, 1, 1, 2):
            before = len(library.problems)
            check(number)
            asked.append(len(library.problems) - before)
        # one by one; captured; as it was; another operand of one product
        assert asked == [2, 2, 0, 0, 1, 0, 1]
        assert driver.calls["launch_graph"] == 6
        library.parts = 3
        for number in (0, 0, 1):
            check(number)
        text = str(torch.explain(function, there[0], weight))
    assert "2 library calls, 1 CUDA graph (GRAPHC_CUDA_GRAPHS=1)" in text
    assert "ends a CUDA graph" not in text


def test_what_cannot_be_captured(library: Queued, cuda: CudaBackend) -> None:
    """Who waits while a stream is captured spoils it; the next capture is as ever."""
    driver, device = library.driver, cuda.memory.device
    with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"):
        driver.begin_capture(Stream(0))
    with (
        pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"),
        device.capturing() as (stream, found),
    ):
        driver.wait_for_stream(stream)
    assert not found
    with device.capturing() as (stream, found):
        driver.fill(cuda.memory.status.device, 0, 1, 0, stream)
    driver.destroy_graph(found[0])
    driver.wait_for_stream(stream)


def test_the_table_chooses(library: Queued, monkeypatch: pytest.MonkeyPatch) -> None:
    """By architecture, dtype and size; not where deterministic algorithms are asked for."""
    monkeypatch.setitem(choice.LIBRARY, ("sm_80", "f32"), 8 * 8 * 8)
    run = torch.compile(lambda a: (a @ a).relu(), fullgraph=True, dynamic=False)
    large, small = torch.ones(8, 8, device="cuda"), torch.ones(4, 4, device="cuda")
    with config.override(cuda_libraries="auto"):
        for function in (run, lambda a: (a @ a).relu()):
            library.problems.clear()
            found = [function(x) for x in (small, large, large.half())]
            assert [x.sum().item() for x in found] == [4 * 16, 8 * 64, 8 * 64]
            assert [(p.m, p.result.dtype) for p in library.problems] == [(8, "f32")]
            torch.use_deterministic_algorithms(True)
            try:
                assert function(large).sum().item() == 8 * 64
            finally:
                torch.use_deterministic_algorithms(False)
            assert len(library.problems) == 1
            function(large)
            assert len(library.problems) == 2


def test_who_has_no_library_has_kernels(
    cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(choice.LIBRARY, ("sm_80", "f32"), 1)
    monkeypatch.setattr(libraries, "find", _nothing)
    x = torch.ones(3, 3, device="cuda")
    assert torch.compile(lambda a: a @ a, fullgraph=True)(x).sum().item() == 27
    with config.override(cuda_libraries="1"), pytest.raises(libraries.MissingLibrary):
        torch.compile(lambda a: a @ a + 1, fullgraph=True)(x)


def _nothing(*asked: object) -> None:
    raise libraries.MissingLibrary("cuBLASLt", "install it")


def test_what_the_table_says() -> None:
    product = Case("f64", 1024, 1024, 1024).kernel().template
    assert isinstance(product, Product)
    for architecture in ("sm_80", "sm_90", "sm_90a"):
        assert choice.prefers_library(product, architecture)
    assert not choice.prefers_library(product, "sm_100")
    assert not choice.prefers_library(replaced(product, k=512), "sm_80")
    assert not choice.prefers_library(replaced(product, k=Dim.var("k")), "sm_80")
