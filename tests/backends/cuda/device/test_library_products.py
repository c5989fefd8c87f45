"""Whole programs whose products a library computes (fake_cublaslt.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc import config
from graphc.backends.cuda.apart import Products
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.cublaslt import CublasLt, Problem
from graphc.backends.cuda.driver import Driver
from graphc.backends.cuda.libraries import CUBLASLT, Found

from .. import needs
from .test_executor import trained


class Waiting(CublasLt):
    """Waits for what is on the stream: this library does at once what it is asked."""

    def __init__(self, found: Found, driver: Driver) -> None:
        super().__init__(found)
        self.driver = driver
        self.problems: list[Problem] = []

    def multiply(
        self, problem: Problem, left: int, right: int, result: int, workspace: int, stream: int
    ) -> None:
        self.problems.append(problem)
        self.driver.wait_for_stream(stream)
        super().multiply(problem, left, right, result, workspace, stream)


@pytest.fixture
def library(cuda: CudaBackend, tmp_path: Path) -> Iterator[Waiting]:
    path = tmp_path / "libcublasLt.so"
    source = Path(__file__).parents[1] / "fake_cublaslt.c"
    needs.compile_c(source, path, "-shared", "-fPIC", "-lm")
    fake = ctypes.CDLL(str(path))
    made = Waiting(Found(CUBLASLT, fake, str(path), (12, 9)), cuda.memory.driver)
    cuda.products = Products(made)
    with config.override(cuda_libraries="1"):
        yield made
    del cuda.products
    made.close()
    assert fake.fake_living() == 0


@pytest.mark.parametrize("graphs", ("0", "1"))
def test_a_training_step(graphs: str, library: Waiting) -> None:
    got, want = trained("cuda", graphs), trained("cpu", graphs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert len(library.problems) >= 5 * 5 and len(set(library.problems)) >= 4


def test_symbolic_sizes_and_halves(library: Waiting) -> None:
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


def test_without_the_switch_nothing_is_asked(library: Waiting) -> None:
    with config.override(cuda_libraries="0"):
        x = torch.ones(4, 4, device="cuda")
        torch.compile(lambda a: a @ a * 3, fullgraph=True)(x)
    assert library.problems == []
