"""How contractions are tiled: one rule, run in Python, or in the call where sizes are symbolic."""

import ctypes
import random

import numpy as np
import pytest

from graphc.backends.host.machine import CPU, cpu
from graphc.backends.host.memory import HOST
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.executable import build
from graphc.backends.llvm.gemm_descriptor import PLAN, WORDS, Word
from graphc.backends.llvm.gemm_plan import emit_plan
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.pool import Pool
from graphc.backends.llvm.target import Target, host_target
from graphc.backends.llvm.text import Module
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import BufferRef, Launch, Product, Program
from graphc.ir.kernel.blocking import Blocking, Request, tiled
from graphc.ir.kernel.plan_contraction import plan_contraction
from graphc.ir.kernel.steps import STEPS
from graphc.ir.machine import Machine
from graphc.ir.record import replaced
from graphc.ir.types import TensorType

from .contractions import Gemm, narrow_targets

# what a Request's fields are in the descriptor
WORD_OF = {
    "batch": Word.BATCH, "m": Word.M, "n": Word.N, "k": Word.K, "terms": Word.TERMS,
    "left_direct": Word.LEFT_DIRECT, "right_direct": Word.RIGHT_DIRECT, "segment": Word.SEGMENT,
    "quantum": Word.K_QUANTUM, "most_steps": Word.MOST_STEPS,
    "panels": Word.PANEL, "window": Word.GEOMETRY,
    "pack_scratch": Word.PACK_SCRATCH, "pack_scratch_column": Word.PACK_SCRATCH_COLUMN,
}


def random_request(rng: random.Random) -> Request:
    """Sizes of every order, 0 among them; k in whole segments."""

    def size() -> int:
        return rng.choice((rng.randint(0, 3), rng.randint(1, 70), rng.randint(1, 3000)))

    segment, k = size(), rng.choice((1, 1, 1, 4, 50))
    return Request(
        size(), size(), size(), segment * k, segment * k * rng.choice((1, 300)),
        rng.random() < 0.5, rng.random() < 0.5, segment, rng.choice((1, 1, 9, 16)),
        rng.choice((384, 384, 2)), rng.random() < 0.7, rng.random() < 0.2, rng.random() < 0.4,
        rng.choice((0, 4000)), rng.choice((0, 80)),
    )


@pytest.mark.parametrize("target", [host_target(), *narrow_targets()], ids=lambda t: t.cpu)
def test_the_plan_made_in_the_call_is_the_one_made_in_python(target: Target) -> None:
    for name, step in STEPS.items():
        module, tile = Module(), Tile(name, target)
        emit_plan(module, tile)
        f = module.function("void @plan(ptr %d)")
        f.call("void", f"@graphc_plan_{name}", "ptr %d")
        f.ret()
        library = Library([ObjectCache().compile(module.text(), target)])
        plan = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("plan"))
        rng = random.Random(0)
        for _ in range(2000):
            request = replaced(random_request(rng), heads=step.heads)
            words = (ctypes.c_int64 * WORDS)()
            for field, word in WORD_OF.items():
                words[word] = int(getattr(request, field))
            words[Word.SEGMENT] *= tile.group  # in values
            words[Word.POINTER_COLUMNS] = int(not request.dense)
            plan(ctypes.addressof(words))
            want = tiled(request, tile.machine, tile.bytes)
            assert [words[w] for w in PLAN.values()] == [int(getattr(want, x)) for x in PLAN]


def test_chunks_cover_a_product_once_and_scratch_holds_what_they_pack() -> None:
    machine, rng = host_target().machine, random.Random(1)
    for _ in range(500):
        r = random_request(rng)
        p = tiled(r, machine, 4)
        assert (p.split_m - 1) * p.chunk_m < max(r.m, 1) <= p.split_m * p.chunk_m
        assert (p.split_n - 1) * p.chunk_n < max(r.n, 1) <= p.split_n * p.chunk_n
        assert (p.split_k - 1) * p.chunk_blocks < p.blocks <= p.split_k * p.chunk_blocks
        assert p.blocks * p.block_k >= r.k
        assert p.chunks <= 2 * machine.template_chunks or r.batch == 0
        assert p.pack_at <= p.pack_scratch_at <= p.chunk_scratch
        assert p.right_at <= p.partial_at <= p.chunks_at <= p.scratch(1) <= p.scratch(99)
        assert all(at % 64 == 0 for at in (p.pack_at, p.chunk_scratch, p.right_at, p.chunks_at))


def test_a_template_is_planned_where_its_sizes_are_known() -> None:
    machine = host_target().machine
    template = Gemm(100, 300, 1000).kernel().template
    assert template is not None
    found = plan_contraction(template, machine)
    assert found is not None and found.chunks > 1 and "blocks of k" in str(found)
    unknown = replaced(template, m=Dim.var("d0"))
    assert plan_contraction(unknown, machine) is None
    assert plan_contraction(unknown, machine, {"d0": 100}) == found


def test_few_rows_of_operands_along_k_are_dot_products() -> None:
    machine = cpu(64, 32)
    for m, steps in ((8, 1), (200, 256)):
        template = Gemm(m, 4096, 512, b_t=True).kernel().template
        assert template is not None
        found = plan_contraction(template, machine)
        assert found is not None
        assert found.block_k == steps and not found.right_in_place


def test_what_few_rows_meet_is_shared_by_its_bytes() -> None:
    """Half a million multiply-adds of one row take as long as a megabyte takes to come."""
    machine = host_target().machine
    for along, m in ((True, 1), (False, 1), (True, 4)):
        template = Gemm(m, 512, 512, b_t=along).kernel().template
        assert template is not None
        found = plan_contraction(template, machine)
        assert found is not None and found.chunks == 8 and found.split_k == 1
    template = Gemm(1, 64, 128, b_t=True).kernel().template
    assert template is not None
    found = plan_contraction(template, machine)
    assert found is not None and found.chunks == 1


@pytest.mark.parametrize(
    ("m", "k", "n", "in_place", "steps"),
    [
        (128, 768, 256, True, 384), (128, 768, 512, True, 384), (25, 1024, 2048, True, 384),
        (192, 1024, 4096, True, 384), (193, 1024, 2049, False, 384), (193, 1024, 2048, True, 384),
        (25, 1024, 4097, False, 384), (2000, 3000, 3000, False, 384), (24, 1024, 2048, True, 96),
        (6, 1024, 2048, True, 8), (7, 1024, 2048, True, 96), (24, 1024, 4097, True, 8),
        (24, 3000, 3000, True, 8), (24, 512, 512, True, 384),
    ],
)
def test_only_large_operands_of_many_rows_are_packed(
    m: int, k: int, n: int, in_place: bool, steps: int
) -> None:
    template = Gemm(m, n, k).kernel().template
    assert isinstance(template, Product)
    plan = plan_contraction(template, CPU)
    assert plan is not None
    assert plan.right_in_place is in_place
    assert plan.block_k <= steps and (plan.block_k > 8) is (steps > 8)


def test_a_large_operand_is_packed_once_for_chunks_of_several_panels() -> None:
    """With one panel each, every panel has all of the left operand come from memory again."""
    for size, machine, columns in ((2048, cpu(64, 32), 256), (1000, cpu(32, 16), 64)):
        plan = plan_contraction(Gemm(size, size, size).kernel().template, machine)
        assert plan is not None
        assert plan.right_packed and plan.chunk_n == columns and plan.split_m > 1


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64])
def test_few_registers_take_k_in_long_blocks(dtype: DType) -> None:
    """Sums that wait for another block of k cost 4% to 6% of a product with AVX2. A tile's rows of
    a block fit the first cache."""
    most = 4096 // dtype.itemsize
    for k, blocks in ((500, 1), (most, 1), (most + 1, 2), (5 * most, 5)):
        template = Gemm(300, 512, k, dtype=dtype).kernel().template
        found = plan_contraction(template, cpu(32, 16))
        assert found is not None and found.blocks == blocks
        wide = plan_contraction(template, cpu(64, 32))
        assert wide is not None and wide.block_k <= 384


def test_narrow_panels_of_constants_are_met_four_at_a_time() -> None:
    """With one of 16 columns each, a chunk had its rows come from the second cache for each panel
    (256 rows of 784 by 512, AVX2: 83% of the most multiply-adds, 91% with four)."""
    for machine in (cpu(32, 16), cpu(64, 32)):
        request = Request(
            batch=1, m=256, n=512, k=784, terms=784, left_direct=True, right_direct=False,
            segment=784, quantum=1, most_steps=1024, dense=True, panels=True, window=False,
            pack_scratch=0, pack_scratch_column=0,
        )
        found = tiled(request, machine, 4)
        assert found.chunk_n == 64 and found.split_m > 1 and found.chunks >= 32


def test_a_block_fills_half_of_the_second_cache_that_cpus_with_so_many_registers_have() -> None:
    template = Gemm(2048, 2048, 2048).kernel().template
    for machine, cache in ((cpu(64, 32), 1 << 20), (cpu(32, 16), 512 << 10)):
        plan = plan_contraction(template, machine)
        assert plan is not None
        assert 0.3 * cache < plan.block_k * plan.chunk_n * 4 <= cache / 2


def test_the_machine_of_a_target_has_its_registers() -> None:
    for target in (host_target(), *narrow_targets()):
        tiling = target.machine.tiling
        assert tiling is not None and tiling.rows == MR
        assert tiling.vector_bytes == target.vector_bytes
    assert set(Blocking.__match_args__) == set(PLAN)


def test_threads_may_come_and_go_between_calls_and_sizes_may_change() -> None:
    """Scratch follows them; the bits of the result do not."""
    case = Gemm(400, 300, 700, b_t=True)
    kernel = case.kernel()
    template = kernel.template
    assert isinstance(template, Product)
    rows = Dim.var("d0")
    template = replaced(template, m=rows)
    params = tuple(
        replaced(param, size=(rows * 700, 300 * 700, rows * 300)[i])
        for i, param in enumerate(kernel.params)
    )
    kernel = replaced(kernel, template=template, params=params, dims=("d0",))
    a, b, c = (TensorType(dtypes.f32, s) for s in ((rows, 700), (300, 700), (rows, 300)))
    places = (BufferRef("input", 0), BufferRef("input", 1), BufferRef("output", 0))
    program = Program(
        "p", ("d0",), (a, b), (c,), (), (Launch(kernel, places, (rows,)),), 0,
    )
    pool = Pool(1)
    executable = build(program, pool=pool, memory=HOST, table={})
    results: dict[int, bytes] = {}
    for threads, m in ((1, 400), (3, 400), (2, 7), (1, 7), (2, 900), (1, 900), (2, 400)):
        pool.set_threads(threads)
        rng = np.random.default_rng(m)
        left, right = (rng.random(shape, np.float32) for shape in ((m, 700), (300, 700)))
        result = np.empty((m, 300), np.float32)
        executable.run([left, right], [result], [m])
        np.testing.assert_allclose(result, left @ right.T, rtol=1e-4)
        assert results.setdefault(m, result.tobytes()) == result.tobytes()
    pool.set_threads(1)


@pytest.mark.parametrize(
    ("size", "in_place", "columns"), [(96, True, 64), (256, False, 256), (1000, False, 64)]
)
def test_few_registers_pack_what_a_cache_does_not_hold(
    size: int, in_place: bool, columns: int
) -> None:
    """With 16 registers a tile is 16 columns wide: a row of it is one line of a cache."""
    template = Gemm(size, size, size).kernel().template
    assert template is not None
    found = plan_contraction(template, cpu(32, 16))
    assert found is not None
    assert found.right_in_place == in_place and found.right_packed == (not in_place)
    assert found.chunk_n == columns and found.split_k == 1


@pytest.mark.parametrize(
    ("m", "k", "n", "in_place"),
    [
        (2048, 64, 64, True), (97, 64, 65, False), (96, 64, 65, True), (96, 128, 128, True),
        (97, 128, 128, False), (96, 128, 129, False), (24, 128, 129, True),
    ],
)
def test_few_registers_pack_what_fills_half_of_the_first_cache_and_many_rows_meet(
    m: int, k: int, n: int, in_place: bool
) -> None:
    """Rows of a power of two evict each other there. CPUs of 32 registers read all in place."""
    for batch in (1, 64):
        template = Gemm(m, n, k, batch=batch).kernel().template
        assert template is not None
        for machine in (cpu(32, 16), cpu(64, 32)):
            found = plan_contraction(template, machine)
            assert found is not None
            assert found.right_in_place == (in_place or machine == cpu(64, 32))


@pytest.mark.parametrize(
    ("m", "k", "n", "packed"),
    [(512, 512, 512, True), (129, 128, 128, True), (128, 128, 128, False), (512, 512, 127, False)],
)
def test_few_registers_pack_a_transposed_left_operand(
    m: int, k: int, n: int, packed: bool
) -> None:
    """Where it is more than a cache holds, and enough columns meet it."""
    for a_t, machine in ((True, cpu(32, 16)), (False, cpu(32, 16)), (True, cpu(64, 32))):
        template = Gemm(m, n, k, a_t=a_t).kernel().template
        assert template is not None
        found = plan_contraction(template, machine)
        assert found is not None
        assert found.left_packed == (packed and a_t and machine == cpu(32, 16))


@pytest.mark.parametrize("machine", [cpu(32, 16), cpu(64, 32)], ids=["16", "32"])
def test_sums_of_a_split_k_have_room_for_a_whole_chunk(machine: Machine) -> None:
    rng = np.random.default_rng(0)
    split = 0
    for _ in range(2000):
        m, k, n = (int(2 ** rng.uniform(0, 15)) for _ in range(3))
        window, panels = bool(rng.integers(2)), bool(rng.integers(2))
        request = Request(
            batch=int(rng.integers(1, 4)), m=m, n=n, k=k, terms=k, left_direct=True,
            right_direct=not (window or panels), segment=k, quantum=1, most_steps=384, dense=True,
            panels=panels, window=window, pack_scratch=0, pack_scratch_column=0,
        )
        for itemsize in (4, 8):
            found = tiled(request, machine, itemsize)
            split += found.split_k > 1
            assert found.split_k == 1 or min(found.chunk_n, n) <= found.block_n, request
    assert split > 100
