"""Linear algebra and Fourier transforms by CuPy: what they compute beside the CPU's, what they
take, and torch's errors."""

from __future__ import annotations

from typing import Any

import graphc
from graphc import backends
from graphc.backends.cuda.routines import table

from ..bed import Bed
from ..results import Record
from ..timing import Timed

WORKS: dict[str, Any] = {
    "solve": lambda t, x: t.linalg.solve(x, x[..., :2] + 1),
    "solve_triangular": lambda t, x: t.linalg.solve_triangular(x, x, upper=False),
    "inv": lambda t, x: t.linalg.inv(x),
    "slogdet": lambda t, x: t.linalg.slogdet(x)[1],
    "det": lambda t, x: t.linalg.det(x / x.abs().max()),
    "cholesky": lambda t, x: t.linalg.cholesky(x),
    "qr": lambda t, x: t.linalg.qr(x)[1].abs(),
    "svd": lambda t, x: t.linalg.svd(x, full_matrices=False)[1],
    "eigh": lambda t, x: t.linalg.eigh(x)[0],
    "pinv": lambda t, x: t.linalg.pinv(x),
    "matrix_exp": lambda t, x: t.linalg.matrix_exp(x / x.abs().max()),
    "fft, product, ifft": lambda t, x: t.fft.ifft2(t.fft.fft2(x) * t.fft.fft2(x).conj()).real,
    "rfft, irfft": lambda t, x: t.fft.irfftn(t.fft.rfftn(x, dim=(-2, -1)) * 2, dim=(-2, -1)),
}


def run(bed: Bed, record: Record) -> None:
    """A line for each function, of one matrix and of a batch."""
    with bed.device():
        backend: Any = backends.get("cuda")
        library = backend.routines.library
        if library is None:
            why = "it is not installed" if bed.large else "it has no emulated device"
            record("CuPy", missing=f"{why}: NumPy does all of this on the host")
        else:
            record("CuPy", version=str(getattr(library.cupy, "__version__", "?")))
        record("operators", by_cupy=len(table.TABLE))
        for shape in ((512, 512), (64, 32, 32)) if bed.large else ((6, 6), (3, 4, 4)):
            for name, work in WORKS.items():
                record(f"{name} {'x'.join(map(str, shape))}", **_measured(bed, work, shape))
        record("a singular matrix", said=_error())


def _measured(bed: Bed, work: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    graphc.manual_seed(0)
    x = graphc.randn(*shape, dtype=graphc.float64)
    x = x @ x.mT + shape[-1] * graphc.eye(shape[-1], dtype=graphc.float64)
    there = x.float().to("cuda")
    call = graphc.compile(lambda x: work(graphc, x))
    try:
        found, want = call(there).double().cpu(), work(graphc, x)
    except Exception as error:  # the next function has its turn
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    said = graphc.explain(call, there).parts[0].built.executable.stats.remarks
    off = float((found - want).norm() / want.norm())
    ms = Timed(bed).median(call, (there,), compiled=False)
    return {"off": off, "ms": ms, "on_host": sum("in NumPy" in line for line in said)}


def _error() -> str:
    try:
        graphc.linalg.solve(graphc.zeros(3, 3, device="cuda"), graphc.ones(3, 1, device="cuda"))
    except graphc.linalg.LinAlgError as error:
        return str(error)[:120]
    return "nothing"
