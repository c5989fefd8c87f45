"""Runs kernels given as text: natively, and by the interpreter of the kernel IR."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

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

from .emulated import NEON, Emulated

Array = np.ndarray
GUARD = 0xAB


@functools.cache
def pool(threads: int = 1) -> Pool:
    """One pool per number of threads."""
    return Pool(threads)


def function_of(
    objects: Sequence[bytes], name: str, target: Target, threads: int = 1
) -> Callable[..., Any]:
    """A function of addresses and integers, linked and ready to be called: by this machine, or, if
    it is for another one, by an emulated CPU, which has one thread."""
    if target.arch == NEON.arch != host_target().arch:
        return functools.partial(Emulated(objects).call, name)
    library = Library(objects, {"graphc_par": pool(threads).address})

    def call(*words: int) -> None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(words))
        kind(library.address(name))(*words)

    return call


class Native:
    """A compiled kernel that can be called with arrays."""

    def __init__(self, kernel: Kernel, target: Target | None = None) -> None:
        self.kernel, self.target = kernel, target or host_target()
        self.text = emit(kernel, self.target)
        self.object = ObjectCache().compile(self.text, self.target)

    def __call__(self, buffers: list[Array], dims: tuple[int, ...] = (), threads: int = 1) -> None:
        """Runs the kernel in place; raises RuntimeError("message: value") for a failed Check."""
        words = [b.ctypes.data for b in buffers] + list(dims)
        args = (ctypes.c_int64 * len(words))(*words)
        status = (ctypes.c_int64 * 4)()
        function = function_of([self.object], kernel_symbol(self.kernel), self.target, threads)
        function(ctypes.addressof(args), ctypes.addressof(status))
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
