"""Epilogues of templates: neighbours together where memory allows it, and the same values."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda import apart
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule, Toolchain
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel

from .product_cases import arrays, launch, wrong


class Case(NamedTuple):
    """A product with this epilogue, and how many neighbours a thread takes. Rows are `pitch` apart
    (0: n)."""

    name: str
    n: int
    body: str
    lanes: int
    pitch: int = 0
    k: int = 32

    def kernel(self) -> Kernel:
        pitch = self.pitch or self.n
        size = 33 * pitch
        kernel = parse_kernel(f"""kernel product(
            a: bf16[{33 * self.k}] in, w: bf16[{self.k * self.n}] in,
            bias: bf16[{self.n + 8}] in, r: f32[{size}] in, h: bf16[{2 * size + 8}] in,
            o: bf16[{size}] out, p: f32[{size}] inout, c: u8[{size}] out) dims () {{
          gemm batch [1] m [33] n [{self.n}] k [{self.k}] acc f32 {{
          left a[{self.k}*m + k]: bf16
          right w[{self.k}*n + k]: bf16
            epilogue {{
              {self.body.replace("ROW", f"{pitch}*m + n").replace("N", str(pitch))}
            }}
          }}
        }}""")
        verify_kernel(kernel)
        return kernel


CASES = (
    Case("a bias and a residual", 40, """t0 = bias[n]
              t1 = cast.f32(t0)
              t2 = add.f32(acc, t1)
              t3 = r[ROW]
              t4 = add.f32(t2, t3)
              store o[ROW] = cast.bf16(t4)
              store p[ROW] = t4""", 8),
    Case("floats alone", 12, """t0 = p[ROW]
              t1 = mul.f32(t0, 0.5:f32)
              store p[ROW] = add.f32(t1, acc)""", 4),
    Case("a byte", 24, """store c[ROW] = cast.u8(gt.bool(acc, 0.0:f32))
              store o[ROW] = cast.bf16(acc)""", 8),
    Case("what is read from elsewhere", 16, """t0 = h[2*N*m + 2*n]
              t1 = h[33*n + m]
              t2 = cast.f32(add.bf16(t0, t1))
              t3 = mul.f32(cast.f32(bias[m % 8]), t2)
              store o[ROW] = cast.bf16(add.f32(acc, t3))
              store p[ROW] = cast.f32(index[n])""", 8),
    Case("rows that are not aligned", 20, """store o[ROW] = cast.bf16(acc)""", 1),
    Case("an operand that begins in between", 16, """t0 = h[ROW + 3]
              store o[ROW] = add.bf16(cast.bf16(acc), t0)""", 1),
    Case("columns", 8, """store o[33*n + m] = cast.bf16(acc)""", 1),
    Case("rows that end in between", 20, """t0 = bias[n]
              t1 = h[2*N*m + 2*n]
              t2 = cast.f32(add.bf16(t0, t1))
              t3 = p[ROW]
              store o[ROW] = cast.bf16(add.f32(acc, t2))
              store p[ROW] = add.f32(t3, acc)""", 8, pitch=24),
    Case("parts of rows that end in between", 21, """t0 = bias[n]
              store o[ROW] = add.bf16(cast.bf16(acc), t0)""", 8, pitch=24, k=1000),
    Case("dear work", 16, """t0 = tanh.f32(acc)
              t1 = tanh.f32(t0)
              t2 = tanh.f32(t1)
              t3 = tanh.f32(t2)
              t4 = tanh.f32(t3)
              store o[ROW] = cast.bf16(t4)""", 4),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lanes(case: Case) -> None:
    text = emit(case.kernel()).text
    found = {int(lanes) for lanes in re.findall(r"Pack<[\w ]+, (\d)> out_\d", text)}
    assert found == ({case.lanes} if case.lanes > 1 else set())
    assert f"i = threadIdx.x * {case.lanes};" in text


def test_the_same_values(toolchain: Toolchain) -> None:
    sources = {case.name: emit(case.kernel()) for case in CASES}
    library = toolchain.compile({s.stages[0].name: s.text for s in sources.values()})
    for case in CASES:
        for schedule in (ALL[1], Schedule(watch=True)):
            assert not wrong(case.kernel(), sources[case.name], library, schedule), case.name


def test_epilogues_alone(toolchain: Toolchain) -> None:
    """On sums that a library has left."""
    sources = {case.name: apart.epilogue(case.kernel()) for case in CASES}
    library = toolchain.compile({s.stages[0].name: s.text for s in sources.values()})
    for case in CASES:
        kernel = case.kernel()
        template = kernel.template
        assert isinstance(template, Product)
        want = arrays(kernel, {})
        got = [array.copy() for array in want]
        left, right = (x.astype("f4").reshape(-1, case.k) for x in want[:2])
        sums = np.full((33, apart.pitch(template)), np.nan, apart.stored(template).numpy)
        sums[:, : case.n] = left @ right.T
        scratch = sums.view(np.uint8).ravel()
        launch(library, sources[case.name], got, {}, Schedule(watch=True), scratch=scratch)
        run_kernel(kernel, want, (), TABLE)
        error = 1.6e-2 * case.k**0.5
        for x, y in zip(got, want, strict=True):
            x, y = x.astype("f4"), y.astype("f4")
            np.testing.assert_allclose(x, y, rtol=error, atol=error, err_msg=case.name)
