"""linalg and fft on the emulated device, by a CuPy made of NumPy (fake_cupy.py)."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.routines import Routines, library, table
from graphc.frontend import placement

from .emulated_device import CountingDriver, there
from .fake_cupy import Fake

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((3, 4, 4)).astype("f4")
SPD = (REAL @ REAL.transpose(0, 2, 1) + 4 * np.eye(4)).astype("f4")
COMPLEX = (REAL + 1j * RNG.standard_normal(REAL.shape)).astype("c8")
Call = Callable[[Any], Any]

CASES: dict[str, tuple[Call, np.ndarray]] = {
    "solve": (lambda x: torch.linalg.solve(x, x[..., :2] + 1), SPD),
    "solve, b for all": (lambda x: torch.linalg.solve(x, x[0, :, :2]), SPD),
    "solve, a vector": (lambda x: torch.linalg.solve(x[0], x[0, 0]), SPD),
    "solve_triangular": (
        lambda x: torch.linalg.solve_triangular(x, x[0, :, :3], upper=False), SPD,
    ),
    "unit": (
        lambda x: torch.linalg.solve_triangular(x, x, upper=True, unitriangular=True), SPD / 9,
    ),
    "inv": (torch.linalg.inv, SPD),
    "inv_ex": (lambda x: torch.linalg.inv_ex(x)[1], SPD),
    "inv, complex": (torch.linalg.inv, COMPLEX),
    "det": (torch.linalg.det, REAL),
    "slogdet": (lambda x: torch.linalg.slogdet(x), REAL),
    "cholesky": (torch.linalg.cholesky, SPD),
    "qr": (lambda x: torch.linalg.qr(x[:, :, :2])[1].abs(), REAL),
    "qr, complete": (lambda x: torch.linalg.qr(x[0, :, :2], mode="complete")[0].abs(), REAL),
    "svdvals": (torch.linalg.svdvals, REAL),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(x, UPLO="U"), SPD),
    "pinv": (torch.linalg.pinv, REAL[:, :, :3]),
    "pinv, hermitian": (lambda x: torch.linalg.pinv(x, hermitian=True), SPD),
    "matrix_exp": (torch.linalg.matrix_exp, REAL),
    "matrix_exp of 0": (torch.linalg.matrix_exp, REAL * 0),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x)), REAL),
    "ifft2": (lambda x: torch.view_as_real(torch.fft.ifft2(x, norm="ortho")), COMPLEX),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x, n=5, dim=1)), REAL),
    "irfft": (lambda x: torch.fft.irfft(x, n=5), COMPLEX),
    "irfftn": (lambda x: torch.fft.irfftn(x, s=(4, 6), dim=(1, 2)), COMPLEX),
}


MORE: dict[str, tuple[Call, np.ndarray]] = {
    "arithmetic": (lambda x: (x * x.conj() - 2 * x / (x + 3)).exp().square(), COMPLEX),
    "functions": (lambda x: x.sin() + x.cos() * x.sqrt() - x.log() + x.reciprocal(), COMPLEX),
    "abs and sign": (lambda x: x.abs() + x.sgn().real, COMPLEX),
    "sum": (lambda x: x.sum(1, keepdim=True) + x.mean((0, 2), keepdim=True), COMPLEX),
    "casts": (lambda x: torch.complex(x, x * 2).to(torch.complex128), REAL),
    "moved": (
        lambda x: torch.cat([x.transpose(0, 2).flip(0)[:, 1:], x.reshape(4, 4, 3)[:, :2]], 1),
        COMPLEX,
    ),
    "padded": (lambda x: torch.nn.functional.pad(x, (1, 2)), COMPLEX),
    "padded with a number": (lambda x: torch.nn.functional.pad(x, (1, 2), value=2.0), COMPLEX),
    "products": (lambda x: torch.einsum("bij,bkj->bik", x, x) + x @ x, COMPLEX),
    "compared": (lambda x: torch.where(x == x.conj(), x, -x), COMPLEX),
    "parts": (lambda x: torch.view_as_complex(torch.view_as_real(x) * 2), COMPLEX),
    "of one": (lambda x: torch.view_as_real(x[0, 0, 0] * 2), COMPLEX),
}


@pytest.fixture(scope="module")
def installed(toolchain: Toolchain) -> Iterator[tuple[CudaBackend, Fake]]:
    with there(CountingDriver(toolchain)) as backend:
        placement.place_of("cuda")
        made = Fake(backend.memory.driver)
        backend.routines = Routines(lambda: backend.memory.device, made.library)
        yield backend, made


@pytest.fixture
def backend(installed: tuple[CudaBackend, Fake]) -> CudaBackend:
    return installed[0]


@pytest.fixture
def fake(installed: tuple[CudaBackend, Fake]) -> Fake:
    installed[1].calls.clear()
    return installed[1]


def gpu(array: np.ndarray) -> Any:
    return torch.tensor(array).to("cuda")


def compared(got: Any, want: Any) -> None:
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    for a, b in pairs:
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_in_eager_mode(name: str, fake: Fake) -> None:
    call, array = CASES[name]
    compared(call(torch.tensor(array).to("cuda")), call(torch.tensor(array)))
    assert fake.calls


@pytest.mark.parametrize("name", MORE)
def test_complex_numbers(name: str, fake: Fake) -> None:
    call, array = MORE[name]
    compared(torch.compile(call)(gpu(array)), call(torch.tensor(array)))
    text = str(torch.explain(torch.compile(call), gpu(array)))
    assert "NumPy" not in text, text
    assert bool(fake.calls) == (name in ("functions", "padded with a number")), text


def test_every_operator_has_a_case(fake: Fake) -> None:
    seen: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for name, function in table.TABLE.items():
            def noted(*given: Any, name: str = name, f: Any = function, **named: Any) -> Any:
                seen.add(name)
                return f(*given, **named)

            patch.setitem(table.TABLE, name, noted)  # type: ignore[arg-type]
        for call, array in CASES.values():
            call(torch.tensor(array).to("cuda"))
        x = torch.tensor(REAL[0]).to("cuda").requires_grad_()
        torch.linalg.det(x).backward()  # the cofactors
        y = torch.tensor(REAL[0]).requires_grad_()
        torch.linalg.det(y).backward()
        compared(x.grad, y.grad)
    assert seen == set(table.TABLE)


def test_in_a_compiled_step(fake: Fake) -> None:
    """Between kernels, with a gradient, on a stream of the user's; nobody waits for the default
    one; explain() says who runs what."""
    def step(x: Any) -> Any:
        y = torch.linalg.solve(x * 2 + 1, x.sin())
        z = torch.fft.rfft(y.cos() * 3, dim=-1).abs()
        return torch.linalg.inv(x).sum() + (z * z).mean()

    found = []
    for place in ("cpu", "cuda"):
        compiled = torch.compile(step, fullgraph=True)
        x = torch.tensor(SPD).to(place)
        results = []
        for stream in (None, torch.cuda.Stream() if place == "cuda" else None):
            with torch.cuda.stream(stream):
                leaf = x.clone().requires_grad_()
                loss = compiled(leaf)
                loss.backward()
                results += [loss.detach().cpu().numpy(), leaf.grad.cpu().numpy()]
        found.append(results)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5)
    assert fake.plans  # of the stream before
    assert {"linalg.solve", "linalg.inv", "fft.rfftn"} <= set(fake.calls)
    text = str(torch.explain(compiled, gpu(SPD)))
    assert "CuPy runs linalg_solve at" in text and "CuPy runs fft_real at" in text
    assert "NumPy" not in text and "on the host" not in text


def test_what_is_wrong_is_said_as_torch_says_it(fake: Fake) -> None:
    bad = SPD.copy()
    bad[1] = 0
    for call, said in (
        (lambda x: torch.linalg.solve(x, x), r"torch.linalg.solve: \(Batch element 1\): The solver"
         " failed because the input matrix is singular"),
        (torch.linalg.inv, r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"),
        (torch.linalg.cholesky, r"linalg.cholesky: \(Batch element 1\): The factorization could"),
        (lambda x: torch.linalg.svd(x / x), "linalg.svd: The algorithm failed to converge"),
        (lambda x: torch.linalg.eigh(x / x), "linalg.eigh: The algorithm failed to converge"),
    ):
        for function in (call, torch.compile(call)):
            with pytest.raises(torch.linalg.LinAlgError, match=said):
                function(gpu(bad))
    for function in (torch.linalg.inv_ex, torch.linalg.cholesky_ex, torch.linalg.slogdet):
        for a, b in zip(function(gpu(bad)), function(torch.tensor(bad)), strict=True):
            np.testing.assert_array_equal(a.cpu().numpy()[1], b.numpy()[1])


def test_nothing_and_other_types(fake: Fake) -> None:
    for shape in ((0, 3, 3), (2, 0, 0)):
        x = np.zeros(shape, "f4")
        for function in (torch.linalg.inv, torch.linalg.det, torch.linalg.matrix_exp):
            compared(function(gpu(x)), function(torch.tensor(x)))
        compared(torch.linalg.qr(gpu(x)), torch.linalg.qr(torch.tensor(x)))
    x = np.zeros((0, 4), "f4")
    got = torch.view_as_real(torch.fft.fft(gpu(x)))
    compared(got, torch.view_as_real(torch.fft.fft(torch.tensor(x))))
    assert fake.calls == []
    x = RNG.standard_normal((6, 4))[::2]  # f64, rows apart
    compared(torch.linalg.pinv(gpu(x).T), torch.linalg.pinv(torch.tensor(x).T))
    assert "linalg.svd" in fake.calls


def test_a_check_before(fake: Fake) -> None:
    """What failed is raised by the routine behind it, and nothing was computed of it."""
    def lookup(x: Any, i: Any) -> Any:
        return torch.linalg.inv(x[i])

    compiled = torch.compile(lookup)
    right = torch.tensor([2, 0]).to("cuda")
    compared(compiled(gpu(SPD), right), torch.linalg.inv(torch.tensor(SPD)[[2, 0]]))
    fake.calls.clear()
    with pytest.raises(IndexError):
        compiled(gpu(SPD), torch.tensor([5, 0]).to("cuda"))
        torch.cuda.synchronize()
    assert fake.calls == []


def test_memory_is_counted_and_comes_back(fake: Fake, backend: CudaBackend) -> None:
    x = gpu(SPD)
    torch.linalg.inv(x)
    gc.collect()  # what tests before this one have left
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.linalg.matrix_exp(x)
    assert torch.cuda.max_memory_allocated() > before
    assert torch.cuda.memory_allocated() == before


def test_in_place(fake: Fake) -> None:
    """A view of what is written is copied first; a loop does it again and again."""
    def step(x: Any) -> None:
        x.copy_(x.flip(0).transpose(1, 2))

    x, y = gpu(COMPLEX), torch.tensor(COMPLEX)
    compiled = torch.compile(step)
    for _ in range(3):
        compiled(x)
        step(y)
        compared(x, y)


def test_a_library_that_cupy_lacks(fake: Fake) -> None:
    fake.missing = "linalg.qr"
    try:
        x = REAL[:2, :, :3]
        with pytest.warns(RuntimeWarning, match=r"CuPy cannot compute linalg_qr, NumPy does inst"):
            got = torch.linalg.qr(gpu(x))
        want = torch.linalg.qr(torch.tensor(x))
        compared((got[0].abs(), got[1].abs()), (want[0].abs(), want[1].abs()))
    finally:
        fake.missing = ""


@pytest.mark.parametrize("text", [
    "raise AttributeError('`np.product` was removed')", "import lacking_library", "",
])
def test_a_cupy_that_does_not_import(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("cupy", "cupyx")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "cupy.py").write_text(text)
    (tmp_path / "cupyx.py").touch()  # no package
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"CuPy does not import.*Cure: pip install"):
        assert library.found() is None


def test_without_cupy(toolchain: Toolchain) -> None:
    with there(CountingDriver(toolchain)) as backend:
        placement.place_of("cuda")
        backend.routines = Routines(lambda: backend.memory.device, lambda: None)
        compiled = torch.compile(lambda x: torch.linalg.inv(x) * 2)
        compared(compiled(gpu(SPD)), torch.linalg.inv(torch.tensor(SPD)) * 2)
        text = str(torch.explain(compiled, gpu(SPD)))
    assert "the host waits for linalg_inv in NumPy at" in text
    assert "(CuPy would run it on the GPU)" in text and "CuPy runs" not in text


@pytest.mark.parametrize("release", [13, 14])
def test_releases_of_cupy(toolchain: Toolchain, release: int) -> None:
    """CuPy 14 warns of what CuPy 13 enters a stream with."""
    with there(CountingDriver(toolchain)) as backend:
        placement.place_of("cuda")
        made = Fake(backend.memory.driver, release)
        backend.routines = Routines(lambda: backend.memory.device, made.library)
        with torch.cuda.stream(torch.cuda.Stream()):
            compared(torch.linalg.inv(gpu(SPD)), torch.linalg.inv(torch.tensor(SPD)))
    assert "linalg.inv" in made.calls
