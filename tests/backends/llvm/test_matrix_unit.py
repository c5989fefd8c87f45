"""Products by a CPU's matrix unit: emulated here; its instructions in code for a CPU that has it,
and run where this one is such."""

import ctypes
import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
from graphc import backends
from graphc.backends.host import matrix_unit
from graphc.backends.host.elf import read
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.jit import compile_assembly, compile_object
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.matrix_unit import MatrixUnit, allocate_unit
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.target import Target, host_target, make_target, require_runnable
from graphc.backends.llvm.text import Module
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Kernel, Operand, Param, Product, Store, Var
from graphc.ir.record import replaced

from .contractions import B, Gemm, K, M, N, guarded, run, unharmed
from .test_gemm import LAYOUTS, product, reaches_no_sum

HOST = host_target()
# a CPU with such a unit has registers of 64 bytes; where this one has not, LLVM splits them
EMULATED = HOST._replace(matrix="emulated", vector_bytes=64)
AMX = make_target(
    "x86_64-unknown-linux-gnu", "sapphirerapids",
    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma,+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,"
    "+amx-int8",
)._replace(matrix="amx")
TARGETS = [
    pytest.param(EMULATED, id="emulated"),
    pytest.param(HOST, id="amx", marks=pytest.mark.skipif(
        not HOST.matrix, reason="this CPU has no matrix unit (AMX)"
    )),
]
KINDS = {
    "bf16": (dtypes.bf16, dtypes.bf16, "tdpbf16ps"),
    "i8": (dtypes.i8, dtypes.i8, "tdpbssd"),
    "i8 by u8": (dtypes.i8, dtypes.u8, "tdpbsud"),
    "u8 by i8": (dtypes.u8, dtypes.i8, "tdpbusd"),
    "u8": (dtypes.u8, dtypes.u8, "tdpbuud"),
}
SHAPES = [
    (64, 64, 64, 1),
    (33, 17, 31, 1),  # rows and columns of one more tile
    (48, 33, 34, 3),
    (65, 130, 901, 1),  # k in two blocks, the last ragged
    (40, 33, 0, 1),  # empty sums
    (300, 200, 301, 1),  # B packed once for all chunks
    (36, 67, 4101, 1),  # k split between chunks
]


def gemm(name: str, *sizes: int, **rest: bool) -> Gemm:
    """A product of one of KINDS."""
    left, right, _ = KINDS[name]
    acc = dtypes.f32 if left.is_float else dtypes.i32
    return Gemm(*sizes, dtype=left, b_dtype=right, acc=acc, **rest)


def libraries(case: Gemm, target: Target) -> tuple[str, ...]:
    """What its kernel is linked with."""
    return template_libraries(case.kernel(), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["bf16", "u8 by i8"])
def test_every_layout_of_every_shape(name: str, target: Target) -> None:
    for shape, (a_t, b_t) in itertools.product(SHAPES, LAYOUTS):
        case = gemm(name, *shape, a_t=a_t, b_t=b_t)
        assert any(library.endswith("m") for library in libraries(case, target))
        product(case, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in KINDS if name != "bf16"])
def test_integers_are_exact_at_their_extremes(name: str, target: Target) -> None:
    """Sums wrap as int32 do."""
    rng = np.random.default_rng(1)

    def extremes(dtype: DType, *shape: int) -> np.ndarray:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max, info.min + 1, 0], dtype.numpy), shape)

    for (a_t, b_t), k in zip(LAYOUTS, (1203, 401, 402, 5000), strict=True):
        case = gemm(name, 35, 37, k, a_t=a_t, b_t=b_t)
        a, b = extremes(case.dtypes[0], 1, 35, k), extremes(case.dtypes[1], 1, k, 37)
        memory, result = guarded(35 * 37, np.dtype(np.int32))
        run(case.kernel(), [*case.in_memory(a, b), result], target=target)
        want = (a[0].astype(np.int64) @ b[0].astype(np.int64)).astype(np.int32)
        assert (result.reshape(35, 37) == want).all() and unharmed(memory)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [20, 21, 32, 35])
def test_what_lies_around_operands_reaches_no_sum(k: int, target: Target) -> None:
    for a_t, b_t in LAYOUTS:
        reaches_no_sum(gemm("bf16", 40, 37, k, a_t=a_t, b_t=b_t), target)


@pytest.mark.parametrize("target", TARGETS)
def test_same_bits_for_any_number_of_threads(target: Target) -> None:
    """Each thread that works configures its own unit."""
    for case in (
        gemm("bf16", 300, 200, 301), gemm("bf16", 33, 40, 9001), gemm("i8", 100, 300, 801, 3),
    ):
        one, two, five = (product(case, target, threads) for threads in (1, 2, 5))
        assert one.tobytes() == two.tobytes() == five.tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_and_strides_of_a_call(target: Target) -> None:
    """One kernel for every size; neither operand has a stride of one, or the left one has."""
    i8, i32 = dtypes.i8, dtypes.i32
    t, e = Dim.var("t"), Dim.var("e")
    for step in (1, 2):
        template = Product(
            3, t, t, e, Operand("q", M * 3 * e * step + B * e * step + K * step, i8),
            Operand("k", N * 3 * e * 2 + B * e * 2 + K * 2, i8), i32,
            (Store("o", B * t * t + M * t + N, Var("acc", i32)),),
        )
        params = (
            Param("q", i8, t * 3 * e * step, "in"), Param("k", i8, t * 3 * e * 2, "in"),
            Param("o", i32, 3 * t * t, "out"),
        )
        kernel = Kernel("scores", params, ("t", "e"), (), template)
        assert "gemm.i8i8m" in template_libraries(kernel, target)
        rng = np.random.default_rng(0)
        for size, width in ((2, 3), (40, 16), (65, 501), (65, 1), (33, 0)):
            q, k = (rng.integers(-128, 128, (size, 3, width * s), np.int8) for s in (step, 2))
            out = np.zeros((3, size, size), np.int32)
            run(kernel, [q, k, out], (size, width), target)
            wide = q[..., ::step].astype(np.int32), k[..., ::2].astype(np.int32)
            assert (out == np.einsum("tbe,sbe->bts", *wide)).all()


def test_few_rows_or_columns_go_by_registers() -> None:
    """So do products whose sizes are a call's, if few of them would be dot products."""
    for sizes in ((32, 300), (300, 16)):
        assert "gemm.i8i8" in libraries(gemm("i8", *sizes, 64), AMX)
    assert "gemm.i8i8m" in libraries(gemm("i8", 33, 17, 64), AMX)
    kernel = gemm("bf16", 64, 64, 64, b_t=True).kernel()
    assert isinstance(kernel.template, Product)
    assert template_libraries(kernel, AMX)[0] == "gemm.bf16m"
    called = replaced(kernel, template=replaced(kernel.template, m=Dim.var("d0")), dims=("d0",))
    assert template_libraries(called, AMX)[0] == "gemm.bf16"


@pytest.mark.parametrize("name", KINDS)
def test_the_inner_loop_is_made_of_tiles(name: str) -> None:
    """Two by two of them, each loaded once; a chunk has one configuration, which it gives back."""
    instruction = KINDS[name][-1]
    library, *_ = libraries(gemm(name, 96, 256, 128), AMX)
    assembly = compile_assembly(emit_library(library, AMX).text(), AMX).split("\n")
    functions, found = {}, [""]
    for line in assembly:
        if line.startswith("graphc_"):
            found = functions[line.split(":")[0].strip()] = []
        found.append(line.strip())
    (chunk,) = (lines for symbol, lines in functions.items() if "_chunk_" in symbol)
    told = [line.split("\t")[0] for line in chunk if line.startswith(("ldtile", "tilerel", "call"))]
    assert told == ["ldtilecfg", "callq", "tilerelease"]
    (kernel,) = (lines for symbol, lines in functions.items() if "_tile_32x2_" in symbol)
    jumps = [i for i, line in enumerate(kernel) if line.startswith("j")]
    first = next(i for i, line in enumerate(kernel) if instruction in line)
    last = next(i for i in jumps if i > first)
    loop = [line.split("\t")[0] for line in kernel[max(i for i in jumps if i < first):last]]
    assert loop.count(instruction) == 4 and loop.count("tileloadd") == 4


# --- the trial before a unit is used --------------------------------------------------------------


def trial(target: Target) -> str:
    """The text of matrix_unit.CHECK."""
    module = Module()
    f = module.function("void @check(ptr %config, ptr %a, ptr %b, ptr %c)")
    tiles = [Tile(name, target) for name in ("bf16m", "i8i8m", "i8u8m", "u8i8m", "u8u8m")]
    state = allocate_unit(f, tiles[0]) if target.matrix == "emulated" else "null"
    units = [MatrixUnit(f, tile, state) for tile in tiles]
    units[0].use("%config")
    units[0].load(6, "%a", 64)
    units[0].load(7, "%b", 64)
    for number, unit in enumerate(units):
        unit.zero(number)
        unit.multiply_add(number, 6, 7)
        unit.store(number, f.gep("%c", 1024 * number, "i8"), 64)
    units[0].release()
    f.ret()
    return module.text()


def test_the_trial_is_what_llvm_makes_of_its_instructions() -> None:
    data = compile_object(trial(AMX), AMX)
    found = read(data)
    assert found is not None
    (code,) = (section.data for section in found.sections if section.name == ".text")
    assert code == matrix_unit.CHECK


def test_a_unit_that_computes_wrong_is_found() -> None:
    """Each byte of the results is looked at: where the tiles end, too."""
    library = Library([compile_object(trial(EMULATED), HOST)])
    check = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(library.address("check"))
    assert matrix_unit.computes(check)
    rng = np.random.default_rng(0)
    for _ in range(40):
        # of the product of bfloat16 in the second trial, of those of bytes in the first
        place, first = int(rng.integers(5 * 1024)), []

        def wrong(
            config: int, a: int, b: int, c: int, place: int = place, first: list[int] = first
        ) -> None:
            check(config, a, b, c)
            first.append(c)
            if (place < 1024) == (len(first) == 2):
                (ctypes.c_uint8 * 5120).from_address(c)[place] ^= 16

        assert not matrix_unit.computes(wrong)


def test_a_cpu_without_the_unit_is_asked_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nflags\t\t: fpu amx_tile avx512f\n")
    assert not matrix_unit.usable(tmp_path) and not matrix_unit.usable(tmp_path / "nowhere")


def test_a_unit_that_may_not_be_used_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is another machine's then, and code for it is refused."""
    with pytest.raises(ValueError, match="may not use a matrix unit"):
        require_runnable(HOST._replace(matrix="" if HOST.matrix else "amx"))
    require_runnable(EMULATED)
    identity.cache_clear()
    one = identity()
    monkeypatch.setattr("graphc.backends.llvm.identity.usable", lambda: not HOST.matrix)
    identity.cache_clear()
    other = identity()
    identity.cache_clear()
    assert one is not None and other is not None and one != other


@pytest.fixture
def emulated() -> str:
    """A backend whose unit is emulated, by name."""
    backends.register("a matrix unit", lambda: LlvmBackend(EMULATED), ("debug",))
    return "a matrix unit"


def test_a_layer_of_halves_and_its_gradients(
    emulated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast's products, forwards and backwards, go by tiles."""
    linked: list[str] = []

    def noted(kernel: Kernel, target: Target) -> tuple[str, ...]:
        linked.extend(template_libraries(kernel, target))
        return template_libraries(kernel, target)

    monkeypatch.setattr("graphc.backends.llvm.compile_program.template_libraries", noted)
    weight = torch.randn(50, 70, requires_grad=True)
    x = torch.randn(40, 70)

    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ weight.t()
        return torch.autograd.grad((y.float() ** 2).sum(), weight)[0]

    run = torch.compile(step, backend=emulated)
    for _ in range(2):
        np.testing.assert_allclose(
            run(x, weight).numpy(), step(x, weight).numpy(), rtol=0.02, atol=1
        )
    assert linked.count("gemm.bf16m") == 2


def at_the_end_of_memory(x: np.ndarray) -> np.ndarray:
    """A copy behind which there is a page that nobody may read."""
    pages = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert protect(memory.ctypes.data + pages, mmap.PAGESIZE, 0) == 0
    inside = memory[pages - x.nbytes : pages].view(x.dtype)
    inside[:] = x.ravel()
    return inside


@pytest.mark.parametrize(
    "target", [pytest.param(HOST._replace(matrix=""), id="registers"), *TARGETS]
)
@pytest.mark.parametrize("name", ["bf16", "i8"])
def test_nothing_is_read_behind_an_operand(name: str, target: Target) -> None:
    """Rows and words of k that fill no tile are read as far as they go."""
    for (a_t, b_t), (m, k) in itertools.product(LAYOUTS, ((33, 36), (47, 7), (60, 100))):
        case = gemm(name, m, 39, k, a_t=a_t, b_t=b_t)
        a, b = case.operands(np.random.default_rng(5))
        result = np.zeros((m, 39), case.acc_dtype.numpy)
        operands = [at_the_end_of_memory(x) for x in case.in_memory(a, b)]
        run(case.kernel(), [*operands, result], target=target)
        want = a[0].astype(np.float32) @ b[0].astype(np.float32)
        np.testing.assert_allclose(result, want, atol=1e-4)


def test_nobody_is_asked_where_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : amx_tile amx_bf16 amx_int8\n")
    asked = []

    def leave() -> bool:
        asked.append(True)
        return False

    monkeypatch.setattr(matrix_unit, "_leave", leave)
    find = matrix_unit.usable.__wrapped__
    assert not find(tmp_path) and asked == [True]
    monkeypatch.setattr(matrix_unit.Wanted, "unit", False)
    assert not find(tmp_path) and asked == [True]
