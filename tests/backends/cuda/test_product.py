"""Products rendered as CUDA C: their sums on the emulator against float64, their cubins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda.emulator import ALL, Schedule
from graphc.backends.cuda.templates import renders
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel

from .emulated import EmulatedBackend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
WATCHED = (Schedule(watch=True), Schedule(watch=True, early=True))
TOLERANCE = {"bf16": 1.6e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13}


class Case(NamedTuple):
    """A product with relu(acc + bias) and, of every second, a second result. `left`, `right`: "k"
    where k is contiguous, "r" where rows are, "s" where neither is; `pad`: of the lines."""

    dtype: str
    m: int
    n: int
    k: int
    left: str = "k"
    right: str = "k"
    batch: int = 1
    pad: int = 0

    def text(self) -> str:
        """The kernel's."""
        d, acc = self.dtype, "f64" if self.dtype == "f64" else "f32"
        a, a_size = self._operand("m", self.m, self.left)
        w, w_size = self._operand("n", self.n, self.right)
        rounded = "acc" if acc == d else f"cast.{d}(acc)"
        size = self.batch * self.m * self.n
        place = f"{self.m * self.n}*b + {self.n}*m + n"
        return f"""kernel product(a: {d}[{a_size}] in, w: {d}[{w_size}] in,
            bias: {d}[{self.n}] in, o: {d}[{size}] out, p: f32[{size}] out) dims () {{
          gemm batch [{self.batch}] m [{self.m}] n [{self.n}] k [{self.k}] acc {acc} {{
          left a[{a}]: {d}
          right w[{w}]: {d}
            epilogue {{
              t0 = {rounded}
              t1 = add.{d}(t0, bias[n])
              store o[{place}] = relu.{d}(t1)
              store p[{place}] = cast.f32(acc)
            }}
          }}
        }}"""

    def _operand(self, row: str, rows: int, kind: str) -> tuple[str, int]:
        lines, length = (self.k, rows) if kind == "r" else (rows, self.k)
        step = 3 if kind == "s" else 1
        pitch = length * step + self.pad
        line, along = ("k", row) if kind == "r" else (row, "k")
        return f"{lines * pitch}*b + {pitch}*{line} + {step}*{along}", self.batch * lines * pitch


def arrays(kernel: Kernel, dims: dict[str, int] | None = None) -> dict[str, Array]:
    """Random operands; NaN where results are written."""
    found = {}
    for p in kernel.params:
        size = max(evaluate(p.size, dims or {}), 1)
        values = RNG.standard_normal(size) if p.access == "in" else np.full(size, np.nan)
        found[p.name] = values.astype(p.dtype.numpy)
    return found


def check(
    kernel: Kernel, emulated: EmulatedBackend, schedule: Schedule,
    dims: dict[str, int] | None = None,
) -> None:
    """A kernel's results on the emulator are those of its meaning."""
    dims = dims or {}
    memory = arrays(kernel, dims)
    emulated.schedule = schedule
    got = {name: array.copy() for name, array in memory.items()}
    emulated.launch(kernel, list(got.values()), list(dims.values()))
    t = kernel.template
    assert isinstance(t, Product)
    run_kernel(kernel, list(memory.values()), list(dims.values()), TABLE)
    scale = np.sqrt(max(evaluate(t.k, dims), 1))
    for p in kernel.params:
        if p.access != "in":
            want = memory[p.name].astype("f8")
            error = TOLERANCE[t.left.dtype.name] * scale
            np.testing.assert_allclose(
                got[p.name].astype("f8"), want, rtol=error, atol=error, err_msg=str(schedule)
            )


def parsed(case: Case) -> Kernel:
    kernel = parse_kernel(case.text())
    verify_kernel(kernel)
    return kernel


CASES = [
    Case("bf16", 70, 66, 264),
    Case("bf16", 70, 66, 264, "r", "r"),
    Case("f16", 65, 130, 72, "k", "r", batch=2),
    Case("bf16", 33, 40, 100, "r", "k", pad=1),
    Case("bf16", 5, 3, 7, "s", "s"),
    Case("f16", 1, 1, 1),
    Case("bf16", 64, 64, 0),
    Case("f32", 70, 66, 50),
    Case("f32", 70, 66, 50, "r", "r", pad=2),
    Case("f32", 65, 130, 33, "k", "r", batch=2),
    Case("f32", 9, 17, 600, "r", "k"),
    Case("f32", 7, 5, 3, "s", "s"),
    Case("f32", 3, 2, 0),
    Case("f64", 70, 66, 50),
    Case("f64", 17, 70, 300, "r", "r", pad=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_product(case: Case, emulated: EmulatedBackend) -> None:
    kernel = parsed(case)
    assert renders(kernel.template)
    for schedule in (ALL[1], ALL[-2], *WATCHED):
        check(kernel, emulated, schedule)
