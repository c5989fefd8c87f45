"""Products by several values along k at a time: of bfloat16 and of narrow integers, where the CPU
has instructions for those (elsewhere the same results come of wider tiles)."""

import itertools
import re

import numpy as np
import pytest

import graphc as torch
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Convolution, Kernel, Operand, Param, Product, Store, Var
from graphc.ir.kernel.plan_contraction import plan_contraction
from graphc.ir.kernel.steps import step_of
from graphc.ir.record import replaced

from .contractions import B, Conv, Gemm, K, M, N, guarded, narrow_targets, run, unharmed
from .test_conv import KINDS as CONVOLVED
from .test_conv import check
from .test_gemm import LAYOUTS, product, reaches_no_sum
from .test_targets import loops

AVX512 = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
LINUX = "x86_64-unknown-linux-gnu"
WITH = make_target(LINUX, "znver4", f"{AVX512},+avx512bf16,+avx512vnni")
WITHOUT = make_target(LINUX, "skylake-avx512", AVX512)
AVX2 = make_target(LINUX, "haswell", "+avx2,+fma")
# of a stack slot; %rbp alone is a register like any other
_SPILLED = re.compile(r"\(%rsp|-\d+\(%rbp")
KINDS = {
    "bf16": (dtypes.bf16, dtypes.bf16, "vdpbf16ps"),
    "i8": (dtypes.i8, dtypes.i8, "vpdpbusd"),
    "u8 by i8": (dtypes.u8, dtypes.i8, "vpdpbusd"),
    "i8 by u8": (dtypes.i8, dtypes.u8, "vpdpbusd"),
    "u8": (dtypes.u8, dtypes.u8, "vpdpwssd"),
    "i8 by i16": (dtypes.i8, dtypes.i16, "vpdpwssd"),
    "i16": (dtypes.i16, dtypes.i16, "vpdpwssd"),
}
SHAPES = [
    (1, 1, 1, 1),
    (1, 300, 129, 1),  # dots of few rows, k odd
    (50, 1, 70, 3),
    (5, 63, 3, 1),
    (7, 65, 9, 2),
    (13, 130, 901, 1),  # k in two blocks
    (33, 17, 0, 1),  # empty sums
    (40, 33, 34, 5),
    (23, 67, 4101, 1),  # k split between chunks
    (300, 200, 301, 1),  # B packed once for all chunks
    (13, 300, 1000, 1),
]


def gemm(name: str, *sizes: int, **rest: bool) -> Gemm:
    """A product of one of KINDS."""
    left, right, _ = KINDS[name]
    acc = dtypes.f32 if left.is_float else dtypes.i32
    return Gemm(*sizes, dtype=left, b_dtype=right, acc=acc, **rest)


def step(case: Gemm, target: Target) -> str:
    """What a product is multiplied by."""
    template, tiling = case.kernel().template, target.machine.tiling
    assert isinstance(template, Product) and tiling is not None
    return step_of(template, tiling).name


def test_every_layout_of_every_shape() -> None:
    for shape, (a_t, b_t) in itertools.product(SHAPES, LAYOUTS):
        product(gemm("i8", *shape, a_t=a_t, b_t=b_t))


@pytest.mark.usefixtures("either_pairs")
def test_every_layout_of_bfloat16() -> None:
    for shape, (a_t, b_t) in itertools.product(SHAPES, LAYOUTS):
        product(gemm("bf16", *shape, a_t=a_t, b_t=b_t))


@pytest.mark.parametrize("target", [None, *narrow_targets()], ids=str)
def test_few_rows_meet_bfloat16_where_it_lies(target: Target | None) -> None:
    """Whose columns are neighbours: what packing would take longer for is widened in registers."""
    used = target or host_target()
    lanes = used.lanes(4)
    for m in (1, 2, 5, 6, 13, 24):
        for n, k, batch in (
            (lanes, 1, 1), (lanes + 1, 9, 2), (8 * lanes - 1, 300, 1), (5 * lanes + 3, 4101, 1),
            (1031, 513, 1), (64, 0, 3), (4 * lanes, 70, 5),
        ):
            case = gemm("bf16", m, n, k, batch)
            assert step(case, used) == "rows_bf16"
            results = [product(case, target, threads) for threads in (1, 3)]
            assert results[0].tobytes() == results[1].tobytes()
            product(gemm("bf16", m, n, k, batch, a_t=True), target)
    for case in (gemm("bf16", 25, 256, 64), gemm("bf16", 8, 256, 64, b_t=True),
                 gemm("bf16", 8, lanes - 1, 64)):
        assert step(case, used) != "rows_bf16"


def test_few_rows_of_a_large_matrix() -> None:
    """A stream, and what lies near: several blocks of k, whose sums wait."""
    for m, n, k in ((1, 4100, 1100), (3, 4096, 700), (20, 700, 900), (7, 2048, 1500)):
        results = [product(gemm("bf16", m, n, k), threads=threads) for threads in (1, 3)]
        assert results[0].tobytes() == results[1].tobytes()


def test_what_lies_beside_few_columns_reaches_no_sum() -> None:
    for m, n, k in ((24, 37, 20), (12, 100, 21)):
        reaches_no_sum(Gemm(m, n, k, dtype=dtypes.bf16, acc=dtypes.f32))


def test_slow_pairs_are_for_what_waits_for_the_memory() -> None:
    """Few rows or columns along k, or as many as a call has; a matrix unit comes first."""
    for cpu, matrix, slow in (
        ("znver5", "", False), ("emeraldrapids", "", True), ("emeraldrapids", "emulated", True),
    ):
        target = WITH._replace(cpu=cpu, matrix=matrix)
        other = "f32" if slow else "bf16"
        many = "bf16m" if matrix else other
        assert step(gemm("bf16", 96, 256, 128, b_t=True), target) == many
        assert step(gemm("bf16", 96, 256, 128), target) == many
        assert step(gemm("bf16", 8, 256, 128, b_t=True), target) == "bf16"
        assert step(gemm("bf16", 500, 16, 128, b_t=True), target) == "bf16"
        assert step(gemm("i8", 500, 160, 128), target) == ("i8i8m" if matrix else "i8i8")
        convolution = replaced(Conv(2, 8, (20, 20), 8, (3, 3)), dtype=dtypes.bf16, acc=dtypes.f32)
        template, tiling = convolution.kernel("conv").template, target.machine.tiling
        assert isinstance(template, Convolution) and tiling is not None
        assert step_of(template, tiling).name == other


@pytest.mark.parametrize("name", KINDS)
def test_the_inner_loop_is_made_of_words_where_there_are_instructions(name: str) -> None:
    pairs = "vpmaddwd" if name != "bf16" else ""  # of narrow integers, two at a time
    for target, instruction, count in (
        (WITH, KINDS[name][-1], 24), (WITHOUT, pairs, 24), (AVX2, pairs, 12),
    ):
        kernel = gemm(name, 96, 256, 128).kernel()
        texts = [emit_library(each, target).text() for each in template_libraries(kernel, target)]
        bodies = [body for text in texts for body in loops(compile_assembly(text, target))]
        if not instruction:
            assert not any(KINDS[name][-1] in line for body in bodies for line in body)
            continue
        most = max(bodies, key=lambda body: sum(instruction in line for line in body))
        products = [line for line in most if instruction in line]
        register = "ymm" if target is AVX2 else "zmm"
        assert len(products) == count and all(register in line for line in products)
        assert not [line for line in most if _SPILLED.search(line)], most
        sums = count if instruction == "vpmaddwd" else 0
        assert len(products) + sums >= 0.55 * len(most)


def test_bytes_lose_their_signs_where_they_are_packed() -> None:
    """Not at each step of each panel: one instruction for four that multiply."""
    kernel = gemm("i8", 96, 256, 128).kernel()
    texts = [emit_library(each, WITH).text() for each in template_libraries(kernel, WITH)]
    bodies = [body for text in texts for body in loops(compile_assembly(text, WITH))]
    most = max(bodies, key=lambda body: sum("vpdpbusd" in line for line in body))
    assert not [line for line in most if "vpxor" in line or "vpternlog" in line]
    plan = plan_contraction(kernel.template, WITH.machine)  # type: ignore[arg-type]
    assert plan is not None and plan.left_packed


@pytest.mark.parametrize("name", [name for name in KINDS if name != "bf16"])
def test_integers_are_exact_at_their_extremes(name: str) -> None:
    """Sums wrap as int32 do. The last word of k has one value, two or three."""
    rng = np.random.default_rng(1)

    def extremes(dtype: DType, *shape: int) -> np.ndarray:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max, info.min + 1, 0], dtype.numpy), shape)

    for (a_t, b_t), k in zip(LAYOUTS, (4003, 801, 802, 65536), strict=True):
        case = gemm(name, 19, 37, k, a_t=a_t, b_t=b_t)
        a, b = extremes(case.dtypes[0], 1, 19, k), extremes(case.dtypes[1], 1, k, 37)
        a[0, 0], b[0, :, 0] = (np.iinfo(x.numpy).min or 255 for x in case.dtypes)  # the largest sum
        memory, result = guarded(19 * 37, np.dtype(np.int32))
        run(case.kernel(), [*case.in_memory(a, b), result])
        want = (a[0].astype(np.int64) @ b[0].astype(np.int64)).astype(np.int32)
        assert (result.reshape(19, 37) == want).all() and unharmed(memory)


@pytest.mark.parametrize("name", ["i8", "u8 by i8", "i8 by u8"])
def test_last_words_of_any_length_in_operands_of_any_strides(name: str) -> None:
    """Neither operand has a stride of one; what lies between and behind is not multiplied."""
    left, right, _ = KINDS[name]
    rng = np.random.default_rng(2)
    for k in range(1, 9):
        a, b = (
            rng.integers(np.iinfo(x.numpy).min, np.iinfo(x.numpy).max, shape, x.numpy, True)
            for x, shape in ((left, (7, 3 * k)), (right, (3 * k, 80)))
        )
        template = Product(
            1, 7, 40, k, Operand("A", M * 3 * k + K * 3, left),
            Operand("B", K * 3 * 80 + N * 2, right), dtypes.i32,
            (Store("C", M * 40 + N, Var("acc", dtypes.i32)),),
        )
        params = (
            Param("A", left, a.size, "in"), Param("B", right, b.size, "in"),
            Param("C", dtypes.i32, 280, "out"),
        )
        memory, result = guarded(280, np.dtype(np.int32))
        run(Kernel("strided", params, (), (), template), [a, b, result])
        want = a[:, ::3].astype(np.int32) @ b[::3, ::2].astype(np.int32)
        assert (result.reshape(7, 40) == want).all() and unharmed(memory)


@pytest.mark.parametrize("k", [20, 21])
def test_what_lies_around_operands_reaches_no_sum(k: int) -> None:
    for a_t, b_t in LAYOUTS:
        reaches_no_sum(Gemm(40, 37, k, a_t=a_t, b_t=b_t, dtype=dtypes.bf16, acc=dtypes.f32))


def test_sizes_and_strides_of_a_call() -> None:
    """One kernel for every k, odd and even, its operands a strided batch, for few rows and many."""
    bf16, f32 = dtypes.bf16, dtypes.f32
    t, e = Dim.var("t"), Dim.var("e")
    left = Operand("q", M * 3 * e + B * e + K, bf16)
    right = Operand("k", N * 3 * e + B * e + K, bf16)
    epilogue = (Store("o", B * t * t + M * t + N, Var("acc", f32)),)
    scores = Product(3, t, t, e, left, right, f32, epilogue)
    params = (
        Param("q", bf16, t * 3 * e, "in"),
        Param("k", bf16, t * 3 * e, "in"),
        Param("o", f32, 3 * t * t, "out"),
    )
    kernel = Kernel("scores", params, ("t", "e"), (), scores)
    rng = np.random.default_rng(0)
    for size, width in ((2, 3), (40, 16), (65, 501), (65, 1), (33, 0)):
        q, k = (
            rng.standard_normal((size, 3, width)).astype(bf16.numpy) for _ in range(2)
        )
        out = np.zeros((3, size, size), np.float32)
        run(kernel, [q, k, out], (size, width))
        want = np.einsum("tbe,sbe->bts", q.astype(np.float64), k.astype(np.float64))
        np.testing.assert_allclose(out, want, atol=1e-3)


def test_same_bits_for_any_number_of_threads() -> None:
    for case in (
        Gemm(300, 200, 301, dtype=dtypes.bf16, acc=dtypes.f32),
        Gemm(10, 12, 40001, dtype=dtypes.bf16, acc=dtypes.f32),
        Gemm(3, 700, 4097, b_t=True, dtype=dtypes.bf16, acc=dtypes.f32),
        gemm("i8", 300, 200, 3001, b_t=True),
    ):
        one, two, five = (product(case, threads=threads) for threads in (1, 2, 5))
        assert one.tobytes() == two.tobytes() == five.tobytes()


CONVOLUTIONS = [
    Conv(2, 64, (12, 12), 64, (3, 3), pad=(1, 1)),  # its gradient reads a copy
    Conv(2, 7, (14, 14), 40, (3, 3), pad=(1, 1)),  # k odd
    Conv(3, 64, (7, 7), 70, (3, 3), pad=(1, 1)),  # pairs of positions across images
    Conv(2, 33, (15, 15), 64, (1, 1)),
    Conv(2, 64, (9, 9), 50, (3, 3), (2, 2), (1, 1)),
    Conv(2, 3, (30, 30), 64, (7, 7), (2, 2), (3, 3)),
    Conv(2, 4, (9, 11), 6, (3, 2), (2, 3), (1, 2), (2, 1), groups=2),
    Conv(2, 6, (10, 10), 12, (3, 3), (2, 2), (1, 1), groups=6),  # groups of one channel: no pairs
    Conv(2, 4, (5, 6, 7), 6, (2, 3, 3), (1, 2, 2), (1, 1, 0), (1, 1, 2), groups=2),
    Conv(40, 3, (1, 1), 5, (1, 1)),
    Conv(2, 3, (9, 9), 4, (1, 1), (3, 3)),  # positions that no tap sees
    Conv(2, 1, (9, 5), 3, (3, 3), pad=(3, 3)),
    Conv(2, 300, (13, 13), 17, (3, 3), pad=(1, 1)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: f"{c.channels}-{c.input}-{c.window}")
def test_convolutions_and_their_gradients(case: Conv) -> None:
    case = replaced(case, dtype=dtypes.bf16, acc=dtypes.f32)
    for kind in CONVOLVED:
        one, three = (check(case, kind, threads=threads) for threads in (1, 3))
        assert one.tobytes() == three.tobytes()


@pytest.mark.parametrize("kind", CONVOLVED)
@pytest.mark.parametrize("channels", [3, 8])
def test_a_value_in_a_convolution_reaches_only_its_own_sums(kind: str, channels: int) -> None:
    """What lies around an operand is NaN; one infinity in the images, or in the gradients of the
    results that weights are multiplied with, makes the same sums infinite as in float32. (One that
    is multiplied with padding may make a NaN, as in torch: some ways leave padding out.)"""
    case = Conv(3, channels, (7, 7), channels, (3, 3), pad=(1, 1))
    results = []
    for each in (case, replaced(case, dtype=dtypes.bf16, acc=dtypes.f32)):
        rng, kernel = np.random.default_rng(0), each.kernel(kind)
        operands = []
        images = "x" if kind == "conv_weight_grad" else kernel.params[1].name
        for param in kernel.params[:2]:
            x = rng.standard_normal(each.shapes[param.name]).astype(dtypes.bf16.numpy)
            around = np.full(x.size + 128, np.nan, each.dtype.numpy)
            around[64:-64] = x.ravel().astype(each.dtype.numpy)
            if param.name == images:
                around[64 + x.size // 2] = np.inf
            operands.append(around[64:-64])
        size = int(np.prod(each.shapes[kernel.params[2].name]))
        memory, result = guarded(size, np.dtype(np.float32))
        run(kernel, [*operands, result])
        assert unharmed(memory)
        results.append(result)
    assert (np.isfinite(results[0]) == np.isfinite(results[1])).all()
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


def test_a_product_of_bytes_reads_bytes_and_scales_its_sums() -> None:
    """torch._int_mm, and what dynamic quantization does around it, is one kernel."""
    rng = np.random.default_rng(0)
    a = torch.tensor(rng.integers(-128, 128, (33, 301), dtype=np.int8))
    b = torch.tensor(rng.integers(-128, 128, (50, 301), dtype=np.int8))

    def scaled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(a, b.t()) * 0.25

    compiled = torch.compile(scaled)
    want = (a.numpy().astype(np.int64) @ b.numpy().T.astype(np.int64)) * np.float32(0.25)
    for _ in range(2):
        assert (compiled(a, b).numpy() == want).all()
        assert (scaled(a, b).numpy() == want).all()
    text = torch.explain(scaled, a, b).kernels_text
    assert text.count("kernel ") == 1 and "acc i32" in text and text.count("]: i8") == 2


def test_denormal_values_are_zero_in_pairs_alone() -> None:
    """As the instruction has it, and so torch's products on such a CPU."""
    small = np.float32(2.0**-130)  # denormal, in bfloat16 too
    case = Gemm(8, 16, 2, b_t=True, dtype=dtypes.bf16, acc=dtypes.f32)
    a = np.full((1, 8, 2), small, dtypes.bf16.numpy)
    b = np.full((1, 2, 16), 2.0**20, dtypes.bf16.numpy)
    assert (a != 0).all()
    result = np.ones(8 * 16, np.float32)
    run(case.kernel(), [*case.in_memory(a, b), result])
    pairs = step(case, host_target()) == "bf16"
    assert (result == (0 if pairs else 2 * small * np.float32(2.0**20))).all()
