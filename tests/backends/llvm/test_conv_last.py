"""Convolutions whose channels are last, and weights in panels, against the reference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pytest

from graphc.backends.host.machine import cpu
from graphc.backends.llvm.conv_last_kernel import asks_rows, follows, panel_columns, renders_last
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import emit_library
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.prefetch import beside
from graphc.backends.llvm.target import Target, host_target
from graphc.backends.numpy.ops import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr
from graphc.ir.kernel import Apply, Convolution, Kernel, Load, Store, Var
from graphc.ir.kernel.plan_alone import spans_of
from graphc.ir.kernel.plan_last import panel_vectors, plan_last, rows_of, runs_of
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.record import replaced
from graphc.ir.types import TensorType

from .contractions import guarded, narrow_targets, run, unharmed


@dataclass(frozen=True)
class Last:
    """Sizes; `columns` in registers."""

    batch: int
    channels: int
    input: tuple[int, ...]
    outputs: int
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    registers: int
    alone: bool = False  # each channel by itself; channels are counted in registers, too
    dtype: DType = dtypes.f32
    group: int = 1  # channels of a word


CASES = [
    Last(1, 16, (7, 7), 64, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    Last(2, 5, (9, 11), 20, (3, 2), (2, 1), (1, 1), (1, 2), 2),  # the last panel is not full
    Last(1, 3, (20,), 70, (5,), (2,), (2,), (1,), 1),
    Last(1, 4, (5, 6, 7), 16, (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    Last(3, 24, (4, 4), 24, (1, 1), (1, 1), (0, 0), (1, 1), 2),
    Last(1, 2, (3, 3), 3, (3, 3), (1, 1), (5, 5), (2, 2), 1),  # tiles beside the image
    Last(2, 6, (1, 1), 9, (1, 1), (3, 3), (0, 0), (1, 1), 1),
    Last(1, 40, (6, 5), 33, (5, 5), (1, 1), (2, 2), (1, 1), 2),
    Last(1, 4, (6, 25), 18, (3, 3), (2, 1), (1, 1), (1, 1), 1),  # tiles inside of the image
    Last(4, 7, (13, 3), 5, (1, 3), (1, 1), (0, 1), (1, 1), 1),
    Last(1, 9, (7, 9), 48, (3, 3), (2, 1), (1, 1), (1, 1), 3),  # wide panels, of which rows are few
    Last(2, 24, (5, 7), 20, (1, 1), (1, 1), (0, 0), (1, 1), 3),
    Last(3, 32, (4, 5), 6, (2, 2), (1, 1), (1, 0), (1, 1), 1),  # runs of pixels beside the image
]
ALONE = [
    Last(2, 2, (9, 9), 2, (3, 3), (1, 1), (1, 1), (1, 1), 2, alone=True),
    Last(1, 6, (8, 5), 6, (3, 3), (2, 2), (1, 1), (1, 1), 2, alone=True),
    Last(1, 4, (17,), 4, (4,), (1,), (3,), (2,), 1, alone=True),
    Last(1, 1, (4, 4), 1, (7, 7), (1, 1), (3, 3), (1, 1), 1, alone=True),
    Last(1, 4, (6, 41), 4, (3, 3), (1, 1), (1, 1), (1, 1), 2, alone=True),  # tiles of two heights
    Last(2, 2, (7, 7), 2, (5, 5), (2, 2), (2, 2), (1, 1), 1, alone=True),
    Last(1, 2, (4, 3, 9), 2, (2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 2), 1, alone=True),
    Last(1, 1, (2, 2), 1, (3, 3), (1, 1), (4, 4), (1, 1), 1, alone=True),  # lines beside the image
    Last(1, 1, (3, 200), 1, (3, 3), (1, 1), (1, 60), (1, 60), 1, alone=True),  # edges of all kinds
]


Shapes: TypeAlias = list[tuple[int, ...]]


def kernel_of(case: Last, target: Target) -> tuple[Kernel, Shapes, dict[str, Any]]:
    """A kernel that adds a bias for each channel, its operands' shapes, and the attributes."""
    lanes = target.lanes(max(case.dtype.itemsize, 4))
    unit = lanes if case.alone else 1
    channels, outputs = case.channels * unit, case.outputs * unit
    groups = channels if case.alone else 1
    columns = case.registers * lanes
    shapes: Shapes = [
        (case.batch, *case.input, channels),
        (
            -(-outputs // columns), *case.window, channels // groups // case.group,
            columns * case.group,
        ),
        (outputs,),
    ]
    attrs = {
        "outputs": outputs, "stride": case.stride, "pad_low": case.pad, "pad_high": case.pad,
        "dilation": case.dilation, "groups": groups,
        "group": case.group,
    }
    builder = Builder()
    x, w, bias = (
        Expr(builder, builder.input(TensorType(case.dtype, shape))) for shape in shapes
    )
    graph = builder.build([(ops.conv_last(x, w, **attrs) + bias).node])
    fused = fuse(graph, target.machine, lambda node: False)
    (found,) = lower(fused, target.machine).values()
    kernel = found.kernel
    assert isinstance(kernel.template, Convolution)
    assert kernel.template.kind == "conv_last"
    return kernel, shapes, attrs


def check(case: Last, target: Target | None = None, threads: int = 1) -> bytes:
    kernel, shapes, attrs = kernel_of(case, target or host_target())
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(shape).astype(case.dtype.numpy) for shape in shapes)
    want = TABLE["conv_last"](x.astype(np.float64), w.astype(np.float64), **attrs) + bias
    want = want.astype(np.float64)
    memory, result = guarded(want.size, case.dtype.numpy)
    # beside what is read lies NaN: what is multiplied by it shows
    whole, image = guarded(x.size, case.dtype.numpy)
    whole[:] = np.nan
    image[:] = x.ravel()
    operands = {"x": image, "w": w.ravel(), "b": bias}
    run(kernel, [*operands.values(), result], target=target, threads=threads)
    assert unharmed(memory)
    assert renders_last(kernel.template, (target or host_target()).machine.tiling)  # type: ignore[arg-type]
    unit = {dtypes.f32: 2e-6, dtypes.bf16: 2.0**-8}.get(case.dtype, 1e-13)
    terms = max(1.0, float(np.sqrt(float(kernel.template.k))))  # type: ignore[union-attr, arg-type]
    got = result.astype(np.float64)
    np.testing.assert_allclose(got, want.ravel(), rtol=0, atol=unit * 8 * terms)
    return result.tobytes()


def check_threads(case: Last) -> None:
    """With any number of threads the same bits."""
    assert check(case) == check(case, threads=4)


def name(case: Last) -> str:
    return f"{case.input}-{case.window}-{case.stride}"


@pytest.mark.parametrize("case", [*CASES, *ALONE], ids=name)
def test_sums_are_the_references_for_any_threads(case: Last) -> None:
    check_threads(case)


PAIRS = [
    Last(1, 16, (7, 7), 64, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    Last(2, 6, (9, 11), 20, (3, 2), (2, 1), (1, 1), (1, 2), 2),  # the last panel is not full
    Last(1, 4, (20,), 70, (5,), (2,), (0,), (1,), 1),  # taps of a line are one run
    Last(1, 4, (5, 6, 7), 16, (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    Last(3, 24, (4, 4), 24, (1, 1), (1, 1), (0, 0), (1, 1), 4),
    Last(1, 2, (3, 3), 3, (3, 3), (1, 1), (5, 5), (2, 2), 1),  # tiles beside the image
    Last(3, 32, (4, 5), 6, (2, 2), (1, 1), (1, 0), (1, 1), 1),
]


pairs = pytest.mark.skipif(
    host_target().machine.tiling is None or "bf16" not in host_target().machine.tiling.steps,  # type: ignore[union-attr]
    reason="this CPU multiplies no pairs of bfloat16",
)
OF_PAIRS = [
    pytest.param(replaced(case, dtype=dtypes.bf16, group=2), marks=pairs, id=name(case))
    for case in PAIRS
]


@pytest.mark.parametrize("case", OF_PAIRS)
def test_pairs_of_channels(case: Last) -> None:
    check_threads(case)


def test_as_many_zeros_as_a_run_is_long() -> None:
    target = host_target()
    kernel, _, _ = kernel_of(CASES[-1], target)
    assert isinstance(kernel.template, Convolution)
    runs = runs_of(kernel.template, target.machine)
    assert runs.depth == 64  # two pixels
    assert plan_last(kernel.template, target.machine, {}).chunks_at >= 4 * runs.depth


def test_words_are_read_only_as_the_machine_multiplies_them() -> None:
    kernel, _, _ = kernel_of(replaced(PAIRS[0], group=2), host_target())  # pairs of float32
    tiling = host_target().machine.tiling
    assert isinstance(kernel.template, Convolution) and tiling is not None
    assert not renders_last(kernel.template, tiling)


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
def test_narrow_registers(target: Target) -> None:
    for case in (*CASES[:3], *ALONE):
        check(case, target)


def test_float64() -> None:
    for case in (CASES[1], ALONE[0], ALONE[4]):
        check(replaced(case, dtype=dtypes.f64))


@pytest.mark.parametrize("target", [host_target(), *narrow_targets()],
                         ids=lambda t: f"{t.vector_bytes} bytes")
def test_tiles_of_channels_by_themselves_fill_a_line(target: Target) -> None:
    for case in ALONE:
        c = kernel_of(case, target)[0].template
        assert isinstance(c, Convolution)
        at, spans = 0, spans_of(c, target.machine)
        for span in spans:
            assert span.first == at
            at += span.count * span.rows
        assert at == (c.geometry.output[-1] if spans else 0)
    wide = kernel_of(ALONE[4], target)[0].template
    assert isinstance(wide, Convolution)
    spans = spans_of(wide, target.machine)
    heights = {span.rows for span in spans}
    assert max(heights) - min(heights) <= 1  # no tile computes in vain
    assert (spans[0].low, spans[-1].high) == (1, 1)
    assert {span.low + span.high for span in spans[1:-1]} <= {0}


def test_many_kinds_of_edges_are_read_through_tables() -> None:
    case, target = ALONE[-1], host_target()
    c = kernel_of(case, target)[0].template
    assert isinstance(c, Convolution) and spans_of(c, target.machine) == ()


def test_an_epilogue_knows_how_wide_its_panels_are() -> None:
    target = host_target()
    lanes = target.lanes(4)
    for outputs, registers, columns in ((4, 2, 2), (1, 2, 1), (3, 2, None)):
        case = replaced(CASES[0], outputs=outputs * lanes, registers=registers)
        kernel = kernel_of(case, target)[0]
        assert isinstance(kernel.template, Convolution)
        assert panel_columns(kernel.template, lanes) == (columns and columns * lanes)
        text = emit(kernel, target)
        epilogue = text[text.index(".epilogue(ptr noalias") :]
        body = epilogue[epilogue.index("{") : epilogue.index("\n}")]
        assert ("%columns" in body) == (columns is None)


def test_panels_are_as_wide_as_registers_allow() -> None:
    many, few = cpu(64, 32).tiling, cpu(32, 16).tiling
    assert many is not None and few is not None
    assert [rows_of(many, width) for width in (1, 2, 3, 4)] == [6] * 4
    assert [panel_vectors(n, many) for n in (1, 2, 3, 4, 5, 6, 7, 9)] == [1, 2, 3, 4, 3, 3, 4, 3]
    # sums, weights and an element in 16 registers
    assert all(rows_of(few, width) * width + width + 1 <= 16 for width in (1, 2, 3))
    assert [panel_vectors(n, few) for n in (1, 2, 3, 4, 5, 8, 9, 125)] == [1, 2, 3, 2, 2, 2, 3, 2]


def test_the_text_is_read_back() -> None:
    kernel, _, _ = kernel_of(CASES[1], host_target())
    assert parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
@pytest.mark.parametrize("input", [(7, 7), (13, 1), (3, 1), (5, 5), (1, 61)])
def test_tiles_of_an_image_are_equally_high_with_registers_of_32_bytes(
    input: tuple[int, int],
) -> None:
    target = narrow_targets()[0]
    for registers in (1, 2, 3):
        case = Last(2, 300, input, 260, (1, 1), (1, 1), (0, 0), (1, 1), registers)
        check(case, target)
    for rows in (4, 6):
        text = emit_library(f"conv_last.{rows}.f32", target).text()
        assert f"@graphc_asking_{rows - 1}x" in text  # 49 positions: tiles of 6 rows and of 5


def test_tiles_that_read_weights_in_a_cache_ask_for_nothing() -> None:
    text = emit_library("conv_last.6.f32", host_target()).text()
    for function in text.split("define ")[1:]:
        if "@graphc_last_6x" in function.split("(")[0]:
            assert "@llvm.prefetch" not in function


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
def test_tiles_ask_for_the_rows_of_the_next_one_where_the_image_is_large() -> None:
    target, other = narrow_targets()
    large = Last(2, 256, (24, 23), 40, (1, 1), (1, 1), (0, 0), (1, 1), 2)
    cases = {
        True: (large, replaced(large, registers=3), replaced(large, outputs=7)),
        False: (
            replaced(large, input=(9, 9)), replaced(large, channels=2048),
            replaced(large, stride=(2, 2)), replaced(large, window=(3, 3)),
        ),
    }
    for asks, each in cases.items():
        for case in each:
            c = kernel_of(case, target)[0].template
            assert isinstance(c, Convolution)
            assert asks_rows(c, Tile("f32", target)) == asks
            assert not asks_rows(c, Tile("f32", other))
            check(case, target)
    assert check(large, target) == check(large, target, threads=4)


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
def test_epilogues_ask_for_the_rows_that_the_next_tile_adds() -> None:
    """Of the next panel where a chunk has all of them, else of the next positions, or line."""
    target = narrow_targets()[0]
    case = Last(1, 64, (14, 14), 96, (1, 1), (1, 1), (0, 0), (1, 1), 2)
    tile = Tile("f32", target)
    many, by_lines = replaced(case, channels=4096), replaced(case, window=(3, 3), pad=(1, 1))
    for each, place in ((case, (0, 16)), (many, (6, 0)), (by_lines, (14, 0))):
        assert follows(kernel_of(each, target)[0].template, tile) == place
    m, n = Dim.var("m"), Dim.var("n")
    row = Load("residual", m * 96 + n, dtypes.f32)
    acc, bias = Var("acc", dtypes.f32), Load("bias", n, dtypes.f32)
    add = Apply("add", (Apply("add", (acc, row), dtypes.f32), bias), dtypes.f32)
    stores = (Store("to", m * 96 + n, add),)
    for rows, columns, further in ((0, 16, 16), (6, 0, 6 * 96)):
        keys = ("residual", row.index), ("to", row.index)
        assert beside(stores, rows, columns) == dict.fromkeys(keys, further)
    text = emit(kernel_of(many, target)[0], target)
    assert re.search(r"i64 576\n.*@llvm.prefetch.p0\(.*, i32 1, i32 3, i32 1\)", text)  # to write
