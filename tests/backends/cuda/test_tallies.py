"""Partials of epilogues as CUDA C: on the emulator as they are meant, and with the same bits for
whoever multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from graphc.backends.cuda import apart
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Library, Schedule, Toolchain
from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import gemm_plan, renders
from graphc.backends.numpy import TABLE
from graphc.ir.kernel import Kernel, Partial
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.layout import layout
from tests.ir import kernel_cases as cases
from tests.ir.test_fuse_partials import SMALL, conv_norm, in_places

from . import needs
from .product_cases import arrays, launch

SCHEDULES = (ALL[1], ALL[-2], Schedule(watch=True), Schedule(watch=True, early=True))
EPSILON = {"bf16": 1.6e-2, "f16": 2e-3, "f32": 2e-5, "f64": 1e-12}


class Case(NamedTuple):
    """A product that is stored rounded (unless `bare`), its moments, and sums of another value."""

    dtype: str
    m: int
    n: int
    k: int
    rows: int = 64
    bare: bool = False
    left: str = "k"

    def kernel(self) -> Kernel:
        d, m, n, k = self.dtype, self.m, self.n, self.k
        wide = "f64" if d == "f64" else "f32"
        blocks = -(-m // self.rows) * n
        rounded = "t0" if d == wide else f"cast.{d}(t0)"
        store = "" if self.bare else f"store o[{n}*m + n] = {rounded}"
        a = f"{k}*m + k" if self.left == "k" else f"{m}*k + m"
        outs = ", ".join(f"p{i}: {wide}[{blocks}] out" for i in range(4))
        kernel = parse_kernel(f"""kernel product(a: {d}[{m * k}] in, w: {d}[{n * k}] in,
            bias: {wide}[{n}] in, o: {d}[{m * n}] {'inout' if self.bare else 'out'},
            {outs}) dims () {{
          gemm batch [1] m [{m}] n [{n}] k [{k}] acc {wide} {{
          left a[{a}]: {d}
          right w[{k}*n + k]: {d}
            epilogue {{
              t0 = add.{wide}(acc, bias[n])
              {store}
              partial p0 = squares of t0 rows {self.rows}
              t1 = mul.{wide}(t0, t0)
              partial p1 = mean of t0 rows {self.rows}
              partial p2 = sum of t1 rows {self.rows}
              partial p3 = sum of acc rows {self.rows}
            }}
          }}
        }}""")
        verify_kernel(kernel)
        return kernel


def different(kernel: Kernel, dtype: str, terms: int, results: list[np.ndarray]) -> str:
    """Where results are not what the kernel means; "" where they are."""
    want = arrays(kernel, {})
    run_kernel(kernel, want, (), TABLE)
    error = EPSILON[dtype] * max(terms, 1) ** 0.5
    for p, x, y in zip(kernel.params, results, want, strict=True):
        x, y = x.astype("f8"), y.astype("f8")
        if p.access == "out" and not np.allclose(x, y, rtol=error, atol=error * 8, equal_nan=True):
            return f"{p.name}: {np.abs(x - y).max()} of {np.abs(y).max()}"
    return ""


FLOATS = Case("f32", 70, 66, 50)
CASES = (Case("bf16", 150, 72, 100), Case("bf16", 100, 8, 600, rows=32), FLOATS)
MORE = (
    Case("bf16", 70, 66, 264), Case("f16", 129, 40, 64, bare=True), Case("f64", 70, 33, 30),
    Case("f32", 5, 70, 300), Case("bf16", 16, 72, 520), Case("f32", 200, 9, 2000),
    Case("bf16", 64, 64, 0), Case("f32", 1, 1, 1), Case("bf16", 65, 136, 64, left="r"),
)


def compiled(toolchain: Toolchain, *sources: Source) -> Library:
    return toolchain.compile({source.stages[0].name: source.text for source in sources})


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    return compiled(toolchain, *(emit(case.kernel()) for case in CASES))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_rows(case: Case, library: Library) -> None:
    check(case, library)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE, ids=str)
def test_more_sums_of_rows(case: Case, toolchain: Toolchain) -> None:
    check(case, compiled(toolchain, emit(case.kernel())))


def check(case: Case, library: Library) -> None:
    """As it is meant, and the same whatever the grid."""
    kernel = case.kernel()
    assert kernel.template is not None and renders(kernel.template)
    source = emit(kernel)
    results = []
    for blocks, schedule in ((None, SCHEDULES[0]), (1, SCHEDULES[1]), (3, SCHEDULES[2]),
                             (None, SCHEDULES[3])):
        found = arrays(kernel, {})
        launch(library, source, found, {}, schedule, blocks)
        assert not different(kernel, case.dtype, case.k, found)
        results.append(found)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


def emitted(kernel: Kernel, way: str, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The code of a way to multiply."""
    wide, narrow = gemm_plan.WARPGROUPS
    if way == "small":
        return emit(kernel)
    if way == "apart":
        return apart.epilogue(kernel)
    with monkeypatch.context() as m:
        m.setattr(gemm_plan, "BLOCKS", 1)
        if way == "large":
            return emit(kernel)
        chosen = (wide, narrow) if way == "wide" else (narrow, wide)
        m.setattr(gemm_plan, "WARPGROUPS", chosen)
        return emit(kernel, Target("sm_90a"))


@pytest.mark.slow
def test_who_multiplies_makes_no_difference(
    toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warps, warpgroups, and a library whose sums are the same."""
    case = Case("bf16", 150, 264, 64)
    kernel = case.kernel()
    results = []
    for way in ("small", "large", "wide", "narrow", "apart"):
        source = emitted(kernel, way, monkeypatch)
        library = compiled(toolchain, source)
        found = arrays(kernel, {})
        sums = None
        if way == "apart":
            a, w = found[0].astype("f4").reshape(150, 64), found[1].astype("f4").reshape(264, 64)
            sums = np.frombuffer((a @ w.T).tobytes(), np.uint8).copy()
            assert apart.stored(kernel.template).name == "f32"  # type: ignore[arg-type]
        launch(library, source, found, {}, SCHEDULES[2], scratch=sums)
        assert not different(kernel, case.dtype, case.k, found)
        results.append(found)
    for other in results[1:4]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


def test_infinities_are_those_of_the_values(library: Library) -> None:
    kernel, source = FLOATS.kernel(), emit(FLOATS.kernel())
    found, want = arrays(kernel, {}), arrays(kernel, {})
    for each in (found, want):
        each[2][3], each[2][5] = np.inf, np.nan
    launch(library, source, found, {}, SCHEDULES[0])
    run_kernel(kernel, want, (), TABLE)
    for x, y in zip(found[4:], want[4:], strict=True):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_array_equal(np.isinf(x), np.isinf(y))


def test_squares_around_a_large_mean(library: Library) -> None:
    kernel = Case("f32", 640, 66, 1).kernel()
    source = emit(kernel)
    found = arrays(kernel, {})
    found[0][:], found[2][:] = np.random.default_rng(0).normal(1e3, 1, 640), 0
    found[1][:] = 1
    launch(library, source, found, {}, SCHEDULES[0])
    values, (squares, means) = found[3].reshape(10, 64, 66).astype("f8"), found[4:6]
    np.testing.assert_allclose(means.reshape(10, 66), values.mean(1), rtol=2e-7)
    np.testing.assert_allclose(squares.reshape(10, 66), values.var(1) * 64, rtol=1e-5)


# --- convolutions -----------------------------------------------------------------------------


def convolutions() -> list[Kernel]:
    """With partial sums: forward with its moments, of one tap, of groups, and a gradient."""
    def norm(x: Any, w: Any, weight: Any, bias: Any) -> Any:
        return conv_norm(x, w, weight, bias)

    def pointwise(x: Any, w: Any) -> Any:
        y = cases.ops.conv(x, w, **in_places(2, pad_low=0, pad_high=0))
        return y, cases.total(y, (0, 2, 3))

    def grouped(x: Any, w: Any) -> Any:
        y = cases.ops.conv(x, w, **in_places(1, stride=2) | {"groups": 2})
        return y, cases.total(y, (0, 2))

    def gradient(g: Any, w: Any, act: Any) -> Any:
        y = cases.ops.conv_input_grad(g, w, input_shape=act.shape, **in_places(2)) * act
        return y, cases.total(y, (0, 2, 3)), cases.total(y * act, (0, 2, 3))

    graphs = [
        cases.build(norm, (3, 8, 5, 7), (9, 8, 3, 3), (9,), (9,)),
        cases.build(pointwise, (3, 8, 5, 7), (12, 8, 1, 1)),
        cases.build(grouped, (5, 16, 31), (24, 8, 3)),
        cases.build(gradient, (3, 16, 5, 7), (16, 8, 3, 3), (3, 8, 5, 7)),
    ]
    found = []
    for graph in graphs:
        program = cases.compiled(layout(decompose(graph), SMALL), machine=SMALL)
        found += [
            k for k in cases.kernels(program)
            if k.template and any(isinstance(s, Partial) for s in k.template.epilogue)
        ]
    assert len(found) == len(graphs)
    return found


@pytest.mark.slow
def test_convolutions(toolchain: Toolchain) -> None:
    kernels = convolutions()
    sources = [emit(kernel) for kernel in kernels]
    library = compiled(toolchain, *sources)
    for kernel, source in zip(kernels, sources, strict=True):
        assert kernel.template is not None and renders(kernel.template)
        for schedule in SCHEDULES[1:3]:
            found = arrays(kernel, {})
            launch(library, source, found, {}, schedule)
            assert not different(kernel, "f32", 300, found), kernel.name


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90a"))
def test_registers(
    architecture: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they use is recorded; one that spills fails."""
    nvrtc = needs.compiler(12)
    monkeypatch.setattr(gemm_plan, "BLOCKS", 1)
    lines = []
    for case in (Case("bf16", 256, 264, 64), Case("f32", 256, 256, 64), Case("bf16", 9, 64, 512)):
        source = emit(case.kernel(), Target(architecture))
        uses = nvrtc.compile(source.text, architecture).uses
        assert all(use.spilled == 0 for use in uses.values()), case
        for stage in source.stages:
            lines.append(
                f"{case.dtype} {case.m} x {case.n}, {stage.name.split('_')[-1]}: "
                f"{uses[stage.name].registers} registers, {stage.threads} threads, "
                f"{stage.shared} bytes\n"
            )
    if nvrtc.version == (12, 9):
        golden(f"cuda/tallies_{architecture}.txt", "".join(lines))
