"""Products as kernels, and what they come to on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.backends.cuda.emulator import Counts, Library, Schedule
from graphc.backends.cuda.source import Source, grid
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel

Array = np.ndarray[Any, Any]
TOLERANCE = {"bf16": 1.6e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13}  # of a sum of one term


class Case(NamedTuple):
    """relu(acc + bias), and acc as f32. `left`, `right`: "k" where k is contiguous, "r" where rows
    are, "s" where neither is. Lines are `pad` longer than they have to be, and begin `offset`
    elements into their buffer; batches lie as `heads` of a row, where that is not 1. `tf32`: floats
    are rounded so before they are multiplied."""

    dtype: str
    m: int
    n: int
    k: int
    left: str = "k"
    right: str = "k"
    batch: int = 1
    pad: int = 0
    offset: int = 0
    heads: int = 1
    tf32: bool = False

    def kernel(self) -> Kernel:
        """Verified."""
        d, acc = self.dtype, "f64" if self.dtype == "f64" else "f32"
        sums = f"acc {acc} tf32" if self.tf32 else f"acc {acc}"
        a, a_size = self._operand("m", self.m, self.left)
        w, w_size = self._operand("n", self.n, self.right)
        rounded = "acc" if acc == d else f"cast.{d}(acc)"
        size = self.batch * self.m * self.n
        place = f"{self.m * self.n}*b + {self.n}*m + n"
        kernel = parse_kernel(f"""kernel product(a: {d}[{a_size}] in, w: {d}[{w_size}] in,
            bias: {d}[{self.n}] in, o: {d}[{size}] out, p: f32[{size}] out) dims () {{
          gemm batch [{self.batch}] m [{self.m}] n [{self.n}] k [{self.k}] {sums} {{
          left a[{a}]: {d}
          right w[{w}]: {d}
            epilogue {{
              t0 = {rounded}
              t1 = add.{d}(t0, bias[n])
              store o[{place}] = relu.{d}(t1)
              store p[{place}] = cast.f32(acc)
            }}
          }}
        }}""")
        verify_kernel(kernel)
        return kernel

    def _operand(self, row: str, rows: int, kind: str) -> tuple[str, int]:
        lines, length = (self.k, rows) if kind == "r" else (rows, self.k)
        step = 3 if kind == "s" else 1
        inner = length * step + self.pad
        pitch = inner * self.heads
        line, along = ("k", row) if kind == "r" else (row, "k")
        h = self.heads
        batch = f"{lines * pitch}*b" if h == 1 else (
            f"{lines * pitch}*(b // {h}) + {inner}*(b % {h})"
        )
        size = -(-self.batch // h) * lines * pitch + self.offset
        return f"{batch} + {pitch}*{line} + {step}*{along} + {self.offset}", size


def arrays(kernel: Kernel, dims: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Random operands; NaN where results are written (no integer is one)."""
    found, rng = [], np.random.default_rng(seed)
    for p in kernel.params:
        size = max(evaluate(p.size, dict(dims)), 1)
        unwritten = np.nan if p.dtype.is_float else 77
        values = np.full(size, unwritten) if p.access == "out" else rng.standard_normal(size)
        found.append(values.astype(p.dtype.numpy))
    return found


def launch(
    library: Library, source: Source, buffers: Sequence[Array], dims: Mapping[str, int],
    schedule: Schedule, blocks: int | None = None, scratch: Array | None = None,
) -> list[Counts]:
    """All stages, on at most so many blocks; what was counted of each. `scratch`: what is in it."""
    named = dict(dims)
    sizes = [evaluate(size, named) for size in (*source.sizes, source.scratch)]
    arguments = [*buffers, *named.values(), *sizes[:-1], np.zeros(4, np.int64)]
    if sizes[-1]:
        poisoned = np.full(sizes[-1], 0xFF, np.uint8)  # NaN
        arguments.append(poisoned if scratch is None else scratch)
    return [
        library.launch(
            stage.name, (min(grid(stage, list(named.items())), blocks or 1 << 30),),
            (stage.threads,), arguments, stage.shared, schedule,
        )
        for stage in source.stages
    ]


def wrong(
    kernel: Kernel, source: Source, library: Library, schedule: Schedule,
    dims: Mapping[str, int] | None = None,
) -> str:
    """How the results differ from the kernel's meaning; "" where they do not."""
    dims = dims or {}
    want = arrays(kernel, dims)
    got = [array.copy() for array in want]
    launch(library, source, got, dims, schedule)
    run_kernel(kernel, want, list(dims.values()), TABLE)
    t = kernel.template
    assert isinstance(t, Product)
    error = TOLERANCE[t.left.dtype.name] * max(evaluate(t.k, dict(dims)), 1) ** 0.5
    for p, x, y in zip(kernel.params, got, want, strict=True):
        close = np.isclose(
            x.astype("f8"), y.astype("f8"), rtol=error, atol=error, equal_nan=True
        )
        if not close.all():
            return f"{p.name}, {schedule}: {np.sum(~close)} of {close.size}"
    return ""
