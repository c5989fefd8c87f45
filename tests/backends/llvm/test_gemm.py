"""Matrix products against NumPy: shapes, layouts, dtypes, epilogues, dims, thread counts."""

import itertools

import numpy as np
import pytest

from graphc.backends.llvm.target import Target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import Apply, Kernel, Let, Load, Operand, Param, Product, Store, Var
from graphc.ir.record import replaced

from .contractions import B, Gemm, K, M, N, guarded, narrow_targets, run, unharmed

LAYOUTS = list(itertools.product((False, True), (False, True)))
SHAPES = [
    (1, 1, 1, 1),
    (6, 64, 8, 1),
    (5, 63, 3, 1),
    (11, 64, 16, 2),  # a row of the last tile stands in for a missing one
    (9, 192, 5, 3),
    (7, 65, 9, 2),
    (64, 64, 64, 1),
    (13, 130, 400, 1),  # k in two blocks
    (100, 75, 1000, 1),
    (3, 10, 5000, 1),  # k split between chunks
    (300, 200, 300, 1),  # several chunks, B packed once for all
    (50, 1, 70, 3),
    (1, 300, 129, 1),
    (2, 48, 33, 70),  # many small products
    (33, 17, 0, 1),  # empty sums
    (31, 97, 800, 2),
    (1, 2131, 140, 1),  # a stream: few rows meet a large right operand
    (2, 5003, 60, 1),
    (4, 300, 1003, 1),
    (5, 2100, 131, 2),
    (23, 67, 4100, 1),
    (18, 700, 530, 1),  # panels that stay in the first cache
    (24, 1100, 403, 1),
]


def product(case: Gemm, target: Target | None = None, threads: int = 1) -> np.ndarray:
    """Runs a case, checks it against NumPy in float64 or int64, returns the result."""
    rng = np.random.default_rng(case.m * 7 + case.n)
    a, b = case.operands(rng)
    memory, result = guarded(case.batch * case.m * case.n, case.acc_dtype.numpy)
    run(case.kernel(), [*case.in_memory(a, b), result], target=target, threads=threads)
    assert unharmed(memory)
    got = result.reshape(case.batch, case.m, case.n)
    if case.dtype.is_float:
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        bound = np.abs(wide_a) @ np.abs(wide_b) + 1e-30
        unit = 1e-6 if case.acc_dtype is dtypes.f32 else 1e-14
        assert (np.abs(got - wide_a @ wide_b) <= unit * bound).all()
    else:
        want = a.astype(np.int64) @ b.astype(np.int64)
        assert (got == want.astype(case.acc_dtype.numpy)).all()
    return got.copy()


def reaches_no_sum(case: Gemm, target: Target | None = None) -> None:
    """Beside the operands there is NaN; in them a NaN and an infinity stay in their row and column,
    and what meets no other keeps its sign."""
    a, b = case.operands(np.random.default_rng(3))
    a[0, 4, 5], b[0, case.k - 1, 30] = np.nan, np.inf
    a[0, :4, case.k - 1] = 1
    inside = []
    for x in case.in_memory(a, b):
        around = np.full(x.size + 128, np.nan, x.dtype)
        around[64:-64] = x.ravel()
        inside.append(around[64:-64])
    memory, result = guarded(case.m * case.n, np.dtype(np.float32))
    run(case.kernel(), [*inside, result], target=target)
    got = result.reshape(case.m, case.n)
    bad = np.zeros(got.shape, bool)
    bad[4], bad[:, 30] = True, True
    assert (np.isfinite(got) == ~bad).all() and unharmed(memory)
    assert (got[:4, 30] == np.inf).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_layout_of_every_shape(shape: tuple[int, int, int, int]) -> None:
    for a_t, b_t in LAYOUTS:
        product(Gemm(*shape, a_t=a_t, b_t=b_t))


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        (dtypes.f64, None),
        (dtypes.bf16, dtypes.f32),
        (dtypes.f16, dtypes.f32),
        (dtypes.i32, None),
        (dtypes.i64, None),
        (dtypes.u8, dtypes.i32),
    ],
    ids=str,
)
def test_dtypes(dtype: dtypes.DType, acc: dtypes.DType | None) -> None:
    for (a_t, b_t), shape in itertools.product(LAYOUTS, [(64, 65, 400, 1), (17, 33, 50, 3)]):
        product(Gemm(*shape, a_t=a_t, b_t=b_t, dtype=dtype, acc=acc))


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
def test_a_transposed_left_operand_of_rows_known_in_the_call(target: Target) -> None:
    """Few are read where they lie, many are packed: one kernel does both."""
    rows, kernel = Dim.var("d0"), Gemm(60, 150, 500, a_t=True).kernel()
    template = kernel.template
    assert isinstance(template, Product)
    left = Operand("A", M + K * rows, dtypes.f32)
    template = replaced(template, m=rows, left=left)
    sizes = (rows * 500, 500 * 150, rows * 150)
    params = tuple(
        replaced(param, size=size) for param, size in zip(kernel.params, sizes, strict=True)
    )
    kernel = replaced(kernel, template=template, params=params, dims=("d0",))
    for m in (20, 32, 33, 200):
        case = Gemm(m, 150, 500, a_t=True)
        a, b = case.operands(np.random.default_rng(m * 7 + 150))  # as `product` draws them
        memory, result = guarded(m * 150, np.dtype(np.float32))
        run(kernel, [*case.in_memory(a, b), result], dims=(m,), target=target)
        assert unharmed(memory)
        # that is right, and the plan of known sizes has the same bits
        assert (result == product(case, target).ravel()).all()


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
def test_narrow_registers(target: Target) -> None:
    for shape in [(7, 65, 9, 2), (13, 130, 400, 1), (100, 75, 1000, 1), (300, 200, 300, 1),
                  (1, 2131, 140, 1), (3, 2131, 140, 1)]:
        for a_t, b_t in LAYOUTS:
            product(Gemm(*shape, a_t=a_t, b_t=b_t), target)
    product(Gemm(64, 65, 400, dtype=dtypes.f64), target)
    product(Gemm(64, 65, 400, b_t=True, dtype=dtypes.bf16, acc=dtypes.f32), target)


@pytest.mark.parametrize(
    "case",
    [
        Gemm(300, 200, 300, b_t=True),
        Gemm(10, 12, 40000),  # k split
        Gemm(3, 5003, 61),  # a stream
        Gemm(18, 700, 530),
        Gemm(64, 32, 64, batch=48, a_t=True),
        Gemm(520, 130, 600, dtype=dtypes.bf16, acc=dtypes.f32),
    ],
    ids=str,
)
def test_same_bits_for_any_number_of_threads(case: Gemm) -> None:
    one, two, five = (product(case, threads=threads) for threads in (1, 2, 5))
    assert one.tobytes() == two.tobytes() == five.tobytes()


def test_epilogue_with_bias_and_two_stores() -> None:
    f32 = dtypes.f32
    case = Gemm(70, 90, 500)
    biased = Apply("add", (Var("acc", f32), Load("bias", N, f32)), f32)
    epilogue = (
        Let("y", biased),
        Store("C", M * 90 + N, Apply("relu", (Var("y", f32),), f32)),
        Store("D", N * 70 + M, Var("y", f32)),  # transposed
    )
    params = (Param("bias", f32, 90, "in"), Param("D", f32, 70 * 90, "out"))
    rng = np.random.default_rng(0)
    a, b = case.operands(rng)
    bias = rng.standard_normal(90).astype(np.float32)
    c, d = np.zeros((70, 90), np.float32), np.zeros((90, 70), np.float32)
    run(case.kernel(epilogue, params), [a, b, c, bias, d])
    want = a[0].astype(np.float64) @ b[0] + bias
    np.testing.assert_allclose(c, np.maximum(want, 0), atol=1e-3)
    np.testing.assert_allclose(d.T, want, atol=1e-3)


@pytest.mark.parametrize(("m", "n"), [(11, 64), (9, 128), (6, 65), (3, 16), (13, 80)])
def test_tiles_are_stored_between_what_is_not_theirs(m: int, n: int) -> None:
    """The rows and products of a result that is part of a larger buffer lie apart."""
    f32, batch, row, k = dtypes.f32, 2, n + 5, 20
    apart = m * row + 37
    case = Gemm(m, n, k, batch)
    store = (Store("C", B * apart + M * row + N + 3, Var("acc", f32)),)
    kernel = case.kernel()
    assert isinstance(kernel.template, Product)
    template = replaced(kernel.template, epilogue=store)
    params = (*kernel.params[:2], replaced(kernel.params[2], size=batch * apart))
    a, b = case.operands(np.random.default_rng(0))
    found = np.full(batch * apart, 7, np.float32)
    run(replaced(kernel, params=params, template=template), [*case.in_memory(a, b), found])
    want = np.full((batch, apart), 7, np.float32)
    for one, product_ in zip(want, a.astype(np.float64) @ b, strict=True):
        one[: m * row].reshape(m, row)[:, 3 : 3 + n] = product_
    np.testing.assert_allclose(found.reshape(batch, apart), want, atol=1e-4)
    assert (found.reshape(batch, apart)[want == 7] == 7).all()


def test_symbolic_sizes_and_strides() -> None:
    """One kernel for every m, n and k, its operands a strided batch as attention has them."""
    f32 = dtypes.f32
    t, e = Dim.var("t"), Dim.var("e")  # q, k: [t, 3, e] seen as [3, t, e]
    left = Operand("q", M * 3 * e + B * e + K, f32)
    right = Operand("k", N * 3 * e + B * e + K, f32)
    epilogue = (Store("o", B * t * t + M * t + N, Var("acc", f32)),)
    product = Product(3, t, t, e, left, right, f32, epilogue)
    params = (
        Param("q", f32, t * 3 * e, "in"),
        Param("k", f32, t * 3 * e, "in"),
        Param("o", f32, 3 * t * t, "out"),
    )
    kernel = Kernel("scores", params, ("t", "e"), (), product)
    rng = np.random.default_rng(0)
    for size, width in ((2, 3), (40, 16), (65, 500)):
        q, k = (rng.standard_normal((size, 3, width)).astype(np.float32) for _ in range(2))
        out = np.zeros((3, size, size), np.float32)
        run(kernel, [q, k, out], (size, width))
        want = np.einsum("tbe,sbe->bts", q.astype(np.float64), k)
        np.testing.assert_allclose(out, want, atol=1e-3)


def test_special_values_reach_only_their_own_sums() -> None:
    """Padding and tails must not mix lanes: a NaN or infinity stays in its row and column."""
    for b_t in (False, True):
        case = Gemm(9, 37, 21, b_t=b_t)
        a, b = case.operands(np.random.default_rng(3))
        a[0, 4, 5], b[0, 7, 30] = np.nan, np.inf
        memory, result = guarded(9 * 37, np.dtype(np.float32))
        run(case.kernel(), [*case.in_memory(a, b), result])
        got = result.reshape(9, 37)
        bad = np.zeros((9, 37), bool)
        bad[4], bad[:, 30] = True, True
        assert (np.isfinite(got) == ~bad).all() and unharmed(memory)


def test_refuses_what_is_not_affine() -> None:
    case = Gemm(8, 8, 8)
    kernel = case.kernel()
    product = kernel.template
    assert isinstance(product, Product)
    left = Operand("A", M * M + K, dtypes.f32)
    squared = replaced(product, left=left)
    with pytest.raises(ValueError, match="not affine in m and k"):
        run(Kernel("g", kernel.params, (), (), squared), [])


def test_refuses_sums_that_no_tile_has() -> None:
    with pytest.raises(ValueError, match="uint8 are not generated"):
        run(Gemm(2, 2, 2, dtype=dtypes.u8).kernel(), [])
    with pytest.raises(ValueError, match=r"float64 summed in torch\.float32"):
        run(Gemm(2, 2, 2, dtype=dtypes.f64, acc=dtypes.f32).kernel(), [])
