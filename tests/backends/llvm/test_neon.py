"""Code for AArch64 with NEON, run: on unicorn, an emulated CPU (skipped where that is missing).

Everything is held against what the same tests hold this machine's code against, and, where the
arithmetic is the same operations in the same order, against this machine's bits. Sums are not: they
have as many lanes as registers do.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from graphc import backends
from graphc.backends.llvm import stream
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.stream_text import stream_text
from graphc.backends.llvm.target import Target, host_target
from graphc.backends.numpy import random as reference
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, Kernel, Load, Loop, Param, Store
from graphc.ir.op import Op

from ..cells import ELEMENTWISE, cells
from . import (
    test_attention,
    test_conv,
    test_conv_last,
    test_gemm,
    test_stream,
    test_targets,
    test_vmath,
)
from .contractions import Gemm, narrow_targets
from .emulated import NEON, Emulated, EmulatedBackend
from .emulated_cpu import unicorn
from .native import Native, compare

V = Dim.var("v")


@pytest.fixture(autouse=True)
def emulator() -> None:
    unicorn()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a backend that emulates."""
    monkeypatch.setattr(backends, "_entries", dict(backends._entries))
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    backends.register("neon", lambda: EmulatedBackend(NEON), ("debug",))
    return "neon"


# --- loops ----------------------------------------------------------------------------------------


def numbers(dtype: DType, size: int, seed: int = 0) -> np.ndarray:
    """Some of each kind, the extremes among them."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return rng.random(size) < 0.5
    if dtype.is_float:
        found = (rng.standard_normal(size) * 10).astype(dtype.numpy)
        found[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5]
        return found
    limits = np.iinfo(dtype.numpy)
    found = rng.integers(-9, 9, size).astype(dtype.numpy)
    found[:4] = [limits.max, limits.min, 0, 1]
    return found


def every_cell(op: Op, size: int) -> Kernel:
    """One loop for each dtype."""
    params: list[Param] = []
    loops = []
    for cell in cells(op, [dtype for dtype in dtypes.ALL if not dtype.is_complex]):
        own = [Param(f"{cell.name}_{n}", dtype, size, "in") for n, dtype in enumerate(cell.inputs)]
        out = Param(f"{cell.name}_out", cell.result, size, "out")
        value = Apply(op.name, tuple(Load(each.name, V, each.dtype) for each in own), cell.result)
        loops.append(Loop("vector", "v", size, (Store(out.name, V, value),)))
        params += [*own, out]
    return Kernel("k", tuple(params), (), tuple((loop,) for loop in loops))


def here() -> Target:
    """This machine without the registers of 512 bits, in which erf looks coefficients up."""
    return next(iter(narrow_targets()), host_target())


@pytest.mark.parametrize("op", [
    op if op.name in ("cast", "floor_divide", "maximum")
    else pytest.param(op, marks=pytest.mark.slow) for op in ELEMENTWISE
], ids=lambda op: op.name)
def test_operators_have_this_machines_bits(op: Op) -> None:
    """Of every dtype, for a run that fills registers and one that does not."""
    kernel = every_cell(op, 37)
    given = []
    for number, param in enumerate(kernel.params):
        values = numbers(param.dtype, 37, number)
        if op.name in ("floor_divide", "remainder", "trunc_divide", "fmod"):
            values[values == 0] = 1  # integers refuse it
        given.append(values)
    found = []
    for target in (here(), NEON):
        arrays = [each.copy() for each in given]
        Native(kernel, target)(arrays)
        found.append(arrays)
    for param, ours, theirs in zip(kernel.params, *found, strict=True):
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        assert same.all(), (param.name, ours[~same][:4], theirs[~same][:4])


def test_loops_reductions_and_checks() -> None:
    rows = """kernel k(a: f32[480] in, o: f32[12] out) dims () {
      stage { parallel p in [12] chunk [5] {
        vector v in [40] carry c: f32 = 0.0:f32 { next c add exp.f32(a[40*p + v]) }
        store o[p] = c
      } } }"""
    x = np.random.default_rng(0).standard_normal(480, np.float32)
    compare(rows, [x, np.zeros(12, "f4")], tolerance=1e-5, target=NEON)
    masked = """kernel k(a: f32[n] in, b: bool[n] out, o: f32[1] out) dims (n) {
      stage { vector v in [n] carry c: f32 = 0.5:f32 {
        t = exp.f32(a[v])
        store b[v] = gt.bool(t, 1.0:f32)
        next c add t
      }
      store o[0] = c
      } }"""
    for size in (1, 3, 4, 37):
        inputs = [x[:size], np.zeros(size, bool), np.zeros(1, "f4")]
        compare(masked, inputs, (size,), 1e-5, target=NEON)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("names", [
    ["exp", "log", "tanh", "sin"],
    pytest.param(list(test_vmath.REFERENCE), marks=pytest.mark.slow, id="all"),
], ids=" ".join)
def test_vector_maths_has_this_machines_bits(names: list[str], dtype: Any) -> None:
    lanes = NEON.lanes(test_vmath.NUMPY[dtype]().itemsize)
    for name in names:
        x = np.concatenate([test_vmath.samples(name, dtype, 50), test_vmath.specials(dtype)])
        expected = test_vmath.build(name, dtype, 8 if dtype == "f32" else 4, here())(x)
        found = test_vmath.build(name, dtype, lanes, NEON)(x)
        np.testing.assert_array_equal(found, expected, err_msg=name)


# --- templates ------------------------------------------------------------------------------------

PRODUCTS = [
    Gemm(7, 65, 9, 2), Gemm(13, 70, 400, a_t=True), Gemm(31, 40, 60, b_t=True),
    Gemm(2, 2131, 30), Gemm(3, 10, 3000), Gemm(33, 17, 0),
    Gemm(17, 33, 50, dtype=dtypes.f64), Gemm(17, 33, 50, dtype=dtypes.i64),
    Gemm(17, 33, 50, b_t=True, dtype=dtypes.bf16, acc=dtypes.f32),
    Gemm(17, 33, 50, dtype=dtypes.f16, acc=dtypes.f32),
    Gemm(17, 33, 50, dtype=dtypes.u8, acc=dtypes.i32),
]


@pytest.mark.parametrize("case", [
    case if number < 4 or case.dtype is dtypes.bf16 else pytest.param(case, marks=pytest.mark.slow)
    for number, case in enumerate(PRODUCTS)
], ids=str)
def test_products(case: Gemm) -> None:
    test_gemm.product(case, NEON)


@pytest.mark.slow
@pytest.mark.parametrize("shape", test_gemm.SHAPES, ids=str)
def test_products_of_every_layout(shape: tuple[int, int, int, int]) -> None:
    for a_t, b_t in test_gemm.LAYOUTS:
        test_gemm.product(Gemm(*shape, a_t=a_t, b_t=b_t), NEON)


@pytest.mark.parametrize("case", [
    case if number == 5 else pytest.param(case, marks=pytest.mark.slow)
    for number, case in enumerate([*test_conv.CASES, *test_conv.PLANES])
], ids=str)
def test_convolutions(case: test_conv.Conv) -> None:
    for kind in test_conv.KINDS:
        test_conv.check(case, kind, NEON)


@pytest.mark.parametrize("case", [
    case if number in (1, 10) else pytest.param(case, marks=pytest.mark.slow)
    for number, case in enumerate([*test_conv_last.CASES, *test_conv_last.ALONE])
], ids=str)
def test_convolutions_with_channels_last(case: test_conv_last.Last) -> None:
    test_conv_last.check(case, NEON)


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
@pytest.mark.parametrize("sizes", [
    size if size == (3, 5, 7, 3, 2) else pytest.param(size, marks=pytest.mark.slow)
    for size in test_attention.SIZES
], ids=str)
def test_attention_of_sizes(name: str, sizes: tuple[int, int, int, int, int]) -> None:
    for causal in (False, True):
        test_attention.check(test_attention.kernel(name, *sizes, causal=causal), NEON)


@pytest.mark.slow
def test_attention_with_masks_and_dropout() -> None:
    for name in ("attention", "attention_grad"):
        mask = dtypes.bool_, (20, 30)
        sizes = 2, 20, 30, 10, 12
        test_attention.check(
            test_attention.kernel(name, *sizes, mask=mask, dtype=dtypes.f64), NEON
        )
        test_attention.check(
            test_attention.kernel(name, *sizes, dropout=0.5, drawn=True), NEON
        )


# --- draws ----------------------------------------------------------------------------------------


class Draws:
    """stream._Code in an emulated CPU."""

    def __init__(self) -> None:
        code = Emulated([ObjectCache().compile(stream_text(), NEON, opt_level=2)])
        for name in stream.SIGNATURES:
            setattr(self, name, functools.partial(code.call, f"graphc_stream_{name}"))


def test_draws_are_torchs_bits() -> None:
    code, state = Draws(), reference.seed_state(20261123)
    for name in sorted(stream.FUNCTIONS):
        for case in test_stream.cases(name):
            count = case["n"] if "n" in case else case["shape"][0]
            if count not in (33, 625):
                continue
            right = reference.TABLE[name](state, **case)
            found = stream._drawn(code, name, state, **case)  # type: ignore[arg-type]
            for ours, theirs in zip(found, right, strict=True):
                assert ours.tobytes() == theirs.tobytes(), (name, case)
            state = right[1]


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [
    name if name == "mlp" else pytest.param(name, marks=pytest.mark.slow)
    for name in test_targets.MODELS
])
def test_training_steps(model: str, backend: str) -> None:
    for found, eager in zip(
        test_targets.steps(model, backend), test_targets.steps(model, "eager"), strict=True
    ):
        np.testing.assert_allclose(found, eager, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("seeds", [
    range(1), pytest.param(range(100, 180), marks=pytest.mark.slow)
], ids=str)
def test_random_graphs(seeds: range, backend: str) -> None:
    test_targets.same_as_numpy(backend, seeds)
