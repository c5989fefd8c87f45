"""Runs kernels given as text: natively, and by the interpreter of the kernel IR."""

import ctypes
import functools

import numpy as np

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.emit import emit, kernel_checks
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.target import Target, host_target
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import ops  # noqa: F401  (the verifier looks operators up)
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import kernel_symbol, parse_kernel
from graphc.ir.kernel.verify import verify_kernel

Array = np.ndarray
GUARD = 0xAB


@functools.cache
def pool(threads: int = 1) -> Pool:
    """One pool per number of threads."""
    return Pool(threads)


class Native:
    """A compiled kernel that can be called with arrays."""

    def __init__(self, kernel: Kernel, target: Target | None = None) -> None:
        self.kernel = kernel
        self.text = emit(kernel, target or host_target())
        self.object = ObjectCache().compile(self.text, target or host_target())

    def __call__(self, buffers: list[Array], dims: tuple[int, ...] = (), threads: int = 1) -> None:
        """Runs the kernel in place; raises RuntimeError("message: value") for a failed Check."""
        library = Library([self.object], {"graphc_par": pool(threads).address})
        words = [b.ctypes.data for b in buffers] + list(dims)
        args = (ctypes.c_int64 * len(words))(*words)
        status = (ctypes.c_int64 * 4)()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        kind(library.address(kernel_symbol(self.kernel)))(
            ctypes.addressof(args), ctypes.addressof(status)
        )
        if status[0]:
            check = kernel_checks(self.kernel)[status[2]]
            raise RuntimeError(check.message.replace("{value}", str(status[3])))


def kernel_of(text: str) -> Kernel:
    """Parses and verifies."""
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return kernel


def compare(
    text: str,
    inputs: list[Array],
    dims: tuple[int, ...] = (),
    tolerance: float = 0.0,
    target: Target | None = None,
    threads: int = 1,
) -> list[Array]:
    """Runs a kernel both ways on copies of the same buffers; returns the native ones."""
    kernel = kernel_of(text)
    guarded = [_guarded(x) for x in inputs]
    native = [g[: x.size] for g, x in zip(guarded, inputs, strict=True)]
    reference = [x.copy() for x in inputs]
    Native(kernel, target)(native, dims, threads)
    run_kernel(kernel, reference, dims, TABLE)
    for memory, x in zip(guarded, inputs, strict=True):
        assert (memory[x.size :].view(np.uint8) == GUARD).all(), "a write past the end"
    for got, want in zip(native, reference, strict=True):
        if got.dtype.kind in "biu" or tolerance == 0:
            same = (got == want) | ((got != got) & (want != want))
            assert same.all(), (got[~same][:8], want[~same][:8], np.flatnonzero(~same)[:8])
        else:
            wide, expected = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(wide, expected, rtol=tolerance, atol=tolerance)
    return native


def _guarded(x: Array) -> Array:
    """A copy followed by bytes that a write past the end would change."""
    memory = np.full(x.nbytes + 256, GUARD, np.uint8)
    memory[: x.nbytes] = np.frombuffer(x.tobytes(), np.uint8)
    return memory.view(x.dtype)
