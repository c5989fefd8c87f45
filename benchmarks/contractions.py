"""Matrix products and convolutions of our own against PyTorch's, one thread, kernel by kernel.

    python benchmarks/contractions.py [gemm] [lenet] [demo] [resnet] [--budget 0.1]

Microseconds of CPU time per call (a low quantile, so that neighbours on the machine matter less)
and GF/s; the last column is PyTorch's time over ours. Kernels are called directly, without the
compiler above them.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from graphc.backends.llvm.cache import ObjectCache  # noqa: E402
from graphc.backends.llvm.emit import emit  # noqa: E402
from graphc.backends.llvm.libraries import emit_library, template_libraries  # noqa: E402
from graphc.backends.llvm.library import Library  # noqa: E402
from graphc.backends.llvm.pool import Pool  # noqa: E402
from graphc.backends.llvm.target import host_target  # noqa: E402
from graphc.ir.kernel import Kernel  # noqa: E402
from graphc.ir.kernel.plan_contraction import plan_contraction  # noqa: E402
from graphc.ir.kernel.text import kernel_symbol  # noqa: E402
from tests.backends.llvm.contractions import Conv, Gemm  # noqa: E402

Array = np.ndarray

GEMMS = [
    (64, 784, 256), (256, 256, 256), (768, 128, 384), (768, 512, 128), (64, 64, 64),
    (1, 784, 256), (64, 256, 10), (512, 512, 512), (1024, 1024, 1024),
]

# batch, channels, size, outputs, window, stride, pad
CONVS = {
    "lenet": [(64, 3, 32, 6, 5, 1, 0), (64, 6, 14, 16, 5, 1, 0)],
    "demo": [(64, 1, 28, 16, 3, 1, 1), (64, 16, 14, 32, 3, 1, 1)],
    "resnet": [
        (16, 3, 32, 64, 3, 1, 1), (16, 64, 32, 64, 3, 1, 1), (16, 64, 32, 128, 3, 2, 1),
        (16, 64, 32, 128, 1, 2, 0), (16, 128, 16, 128, 3, 1, 1), (16, 128, 16, 256, 3, 2, 1),
        (16, 256, 8, 256, 3, 1, 1), (16, 256, 8, 512, 3, 2, 1), (16, 256, 8, 512, 1, 2, 0),
        (16, 512, 4, 512, 3, 1, 1),
    ],
}


def aligned(shape: tuple[int, ...]) -> Array:
    """Random float32 numbers from a cache line's start on."""
    count = int(np.prod(shape))
    raw = np.empty(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + 4 * count].view(np.float32).reshape(shape)
    array[...] = np.random.default_rng(0).standard_normal(shape)
    return array


class Ours:
    """A kernel, compiled and linked; calling it is one native call."""

    _cache, _pool = ObjectCache(), Pool(1)

    def __init__(self, kernel: Kernel, buffers: list[Array]) -> None:
        target, cache = host_target(), self._cache
        objects = [cache.compile(emit(kernel, target), target)]
        for name in template_libraries(kernel, target):
            objects.append(cache.compile(emit_library(name, target).text(), target))
        self._library = Library(objects, {"graphc_par": self._pool.address})
        self._buffers = buffers
        self._args = (ctypes.c_int64 * len(buffers))(*(b.ctypes.data for b in buffers))
        assert kernel.template is not None
        plan = plan_contraction(kernel.template, target.machine)
        assert plan is not None
        raw = np.empty(plan.scratch(1) + 64, np.uint8)
        self._scratch = raw[-raw.ctypes.data % 64 :]
        self._status = (ctypes.c_int64 * 6)(0, 0, 0, 0, self._scratch.ctypes.data, 1)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self._function = kind(self._library.address(kernel_symbol(kernel)))

    def __call__(self) -> None:
        self._function(ctypes.addressof(self._args), ctypes.addressof(self._status))


def seconds(call: Callable[[], Any], budget: float) -> float:
    """CPU seconds per call: the lower eighth of batches of about 5 ms."""
    call()
    start = time.thread_time()
    call()
    count = max(1, int(0.005 / max(time.thread_time() - start, 1e-7)))
    times: list[float] = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 3:
        start = time.thread_time()
        for _ in range(count):
            call()
        times.append((time.thread_time() - start) / count)
    return sorted(times)[len(times) // 8]


def show(name: str, flops: float, ours: Callable[[], Any], theirs: Callable[[], Any], budget: float
         ) -> None:
    """One line: both sides twice, in turn, the better of each."""
    times = [[seconds(call, budget) for call in (ours, theirs)] for _ in range(2)]
    mine, torch = (min(column) for column in zip(*times, strict=True))
    print(f"{name:44} graphc {mine * 1e6:9.1f} us {flops / mine / 1e9:6.1f} GF/s   "
          f"torch {torch * 1e6:9.1f} us {flops / torch / 1e9:6.1f}   {torch / mine:5.2f}x",
          flush=True)


def gemms(torch: Any, budget: float) -> None:
    """Every size in the four layouts."""
    for m, k, n in GEMMS:
        for a_t, b_t in ((False, False), (False, True), (True, False), (True, True)):
            case = Gemm(m, n, k, a_t=a_t, b_t=b_t)
            a, b = aligned((k, m) if a_t else (m, k)), aligned((n, k) if b_t else (k, n))
            result = aligned((m, n))
            left, right = (
                x.T if flipped else x
                for x, flipped in ((torch.from_numpy(a), a_t), (torch.from_numpy(b), b_t))
            )
            out = torch.empty(m, n)
            name = f"{m}x{k}x{n} {'A^T' if a_t else 'A'} {'B^T' if b_t else 'B'}"
            ours = Ours(case.kernel(), [a, b, result])

            def theirs(left: Any = left, right: Any = right, out: Any = out) -> Any:
                return torch.mm(left, right, out=out)

            show(name, 2.0 * m * k * n, ours, theirs, budget)


def convolutions(torch: Any, group: str, budget: float) -> None:
    """Forward, input gradient and weight gradient of every layer."""
    backward = torch.ops.aten.convolution_backward
    for batch, channels, size, outputs, window, stride, pad in CONVS[group]:
        case = Conv(batch, channels, (size, size), outputs, (window, window), (stride, stride),
                    (pad, pad))
        arrays = {name: aligned(shape) for name, shape in case.shapes.items()}
        x, w, y = (torch.from_numpy(arrays[name]) for name in "xwy")
        flops = 2.0 * batch * outputs * channels * window**2 * case.output[0] ** 2
        for kind, names, mask in (
            ("conv", "wx", None),
            ("conv_input_grad", "wy", (True, False, False)),
            ("conv_weight_grad", "yx", (False, True, False)),
        ):
            kernel = case.kernel(kind)
            result = aligned(case.shapes[kernel.params[2].name])
            ours = Ours(kernel, [arrays[names[0]], arrays[names[1]], result])

            def theirs(mask: Any = mask, data: Any = (x, w, y), s: int = stride, p: int = pad
                       ) -> Any:
                x, w, y = data
                if mask is None:
                    return torch.nn.functional.conv2d(x, w, None, s, p)
                sizes = ((s, s), (p, p), (1, 1), False, (0, 0), 1)
                return backward(y, x, w, None, *sizes, mask)

            name = f"{batch}x{channels}x{size}x{size} -> {outputs} k{window} s{stride} {kind[5:]}"
            show(name, flops, ours, theirs, budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", default=["gemm", *CONVS])
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per measurement")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for group in args.groups:
        if group == "gemm":
            gemms(torch, args.budget)
        else:
            convolutions(torch, group, args.budget)


if __name__ == "__main__":
    main()
