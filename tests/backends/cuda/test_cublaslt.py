"""cuBLASLt against a library in C that looks at what it is given (fake_cublaslt.c), and products
taken apart: the library's sums, then the epilogue on the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphc.backends.cuda import apart, cublaslt
from graphc.backends.cuda.cublaslt import CublasError, CublasLt, Matrix, Problem
from graphc.backends.cuda.emulator import Schedule, Toolchain
from graphc.backends.cuda.libraries import CUBLASLT, Found
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.record import replaced

from . import needs
from .product_cases import TOLERANCE, Case, arrays, launch


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    needs.compile_c(Path(__file__).with_name("fake_cublaslt.c"), path, "-shared", "-fPIC", "-lm")
    return ctypes.CDLL(str(path))


@pytest.fixture
def library(fake: ctypes.CDLL) -> Iterator[CublasLt]:
    made = CublasLt(Found(CUBLASLT, fake, "fake", (12, 9)))
    yield made
    made.close()
    assert fake.fake_living() == 0  # no descriptor is left


def multiplied(library: CublasLt, kernel: Kernel, buffers: list[np.ndarray]) -> np.ndarray:
    """A product's scratch, as the library leaves it."""
    t = kernel.template
    assert isinstance(t, Product) and apart.takes(t)
    problem, left, right = apart.problem(t, {})
    scratch = np.full(evaluate(apart.epilogue(kernel).scratch, {}) + 64, 0xFF, np.uint8)
    workspace = np.zeros(cublaslt.WORKSPACE, np.uint8)
    a, w = (buffers[at].ctypes.data for at in (0, 1))
    library.multiply(problem, a + left, w + right, scratch.ctypes.data, workspace.ctypes.data, 0)
    return scratch[:-64]


CASES = (
    Case("f32", 7, 5, 9),
    Case("f32", 7, 5, 9, "r", "r", batch=3),
    Case("f32", 16, 33, 20, "k", "r", batch=2, pad=3, offset=2),
    Case("f64", 6, 4, 5, "r", "k"),
    Case("bf16", 9, 17, 24, "k", "k"),
    Case("f16", 9, 17, 24, "r", "r", batch=2),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_product_taken_apart(case: Case, library: CublasLt, toolchain: Toolchain) -> None:
    kernel = case.kernel()
    got = arrays(kernel, {})
    want = [array.copy() for array in got]
    run_kernel(kernel, want, [], TABLE)
    source = apart.epilogue(kernel)
    emulated = toolchain.compile({"finish": source.text})
    launch(emulated, source, got, {}, Schedule(watch=True), None, multiplied(library, kernel, got))
    for x, y in zip(got, want, strict=True):
        error = TOLERANCE[case.dtype] * case.k ** 0.5
        np.testing.assert_allclose(x.astype("f8"), y.astype("f8"), rtol=error, atol=error)


def test_sums_are_rounded_where_the_epilogue_rounds_them() -> None:
    both = Case("bf16", 9, 17, 24).kernel()
    assert isinstance(both.template, Product)
    assert apart.stored(both.template).name == "f32"  # its second result is the sum itself
    rounded = replaced(both.template, epilogue=both.template.epilogue[:-1])
    assert apart.stored(rounded).name == "bf16"
    assert apart.pitch(rounded) == 24 and apart.pitch(both.template) == 20


def test_what_the_library_does_not_take() -> None:
    for case in (
        Case("f32", 7, 5, 0), Case("f32", 7, 5, 9, "s"), Case("f32", 7, 5, 9, batch=4, heads=2),
    ):
        t = case.kernel().template
        assert isinstance(t, Product) and not apart.takes(t), case


def test_a_problem_is_described_once(library: CublasLt, fake: ctypes.CDLL) -> None:
    kernel = Case("f32", 8, 8, 8).kernel()
    before = fake.fake_asked()
    for _ in range(3):
        multiplied(library, kernel, arrays(kernel, {}))
    aligned = fake.fake_asked() - before
    assert 1 <= aligned <= 3  # NumPy's memory is aligned now so, now so
    assert fake.fake_aligned(0) >= 16


def test_alignment() -> None:
    line = Matrix("bf16", 17, 0)
    assert cublaslt.alignment(line, 1, 1 << 20) == 2
    assert cublaslt.alignment(Matrix("f32", 64, 4), 1, 1 << 20) == 256
    assert cublaslt.alignment(Matrix("f32", 64, 4), 2, 1 << 20) == 16
    assert cublaslt.alignment(Matrix("f32", 64, 0), 1, (1 << 20) + 8) == 8


def test_what_the_library_refuses_is_an_error(library: CublasLt, fake: ctypes.CDLL) -> None:
    side = Matrix("f32", 4, 16)
    with pytest.raises(CublasError, match="MatrixLayoutCreate: an invalid value"):
        library.multiply(Problem(1, 4, 8, 4, side, side, side, "32F"), 0, 0, 0, 0, 0)
    fake.fake_refuse(1)
    with pytest.raises(CublasError, match="no algorithm"):
        library.multiply(Problem(1, 4, 4, 4, side, side, side, "32F"), 0, 0, 0, 0, 0)
    fake.fake_refuse(0)


def test_tf32_is_a_compute_type() -> None:
    t = Case("f32", 8, 8, 8).kernel().template
    assert isinstance(t, Product)
    assert apart.problem(t, {})[0].compute == "32F"
    assert apart.problem(t, {}, tf32=True)[0].compute == "32F_FAST_TF32"
