"""Convolutions whose channels are last, line by line."""

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution, plan_last_lines
from graphc.ir.kernel.plan_last_lines import LastLines, lines_of_last
from graphc.ir.kernel.plan_spans import spans_of_line
from graphc.ir.kernel.window import Window
from graphc.ir.record import replaced

from .contractions import narrow_targets, run
from .test_conv_last import CASES, OF_PAIRS, Last, check, check_threads, kernel_of, name

# what is chosen hangs on a machine
ZEN4 = make_target(
    "x86_64-unknown-linux-gnu", "znver4",
    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx512bf16,+avx512vnni,+avx2,+fma",
)
# some lines of the window at a time: their weights are more than half of a cache
WAITING = Last(2, 512, (5, 6), 40, (3, 3), (1, 1), (1, 1), (1, 1), 2)


def _plan(case: Last, target: Target) -> LastLines | None:
    c = kernel_of(case, target)[0].template
    assert isinstance(c, Convolution)
    return lines_of_last(c, target.machine)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They take no steps, so that this way is always chosen."""
    monkeypatch.setattr(plan_last_lines, "seen_by", lambda *_: 0)
    yield


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", [*(c for c in CASES if len(c.input) < 3), WAITING], ids=name)
def test_sums_are_the_references_for_any_threads(case: Last) -> None:
    plain = set(case.window) == {1} and set(case.stride) == {1}
    assert (_plan(case, host_target()) is None) == plain
    check_threads(case)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
def test_narrow_registers(target: Target) -> None:
    for case in (*CASES[:3], WAITING):
        assert _plan(case, target)
        check(case, target)


@pytest.mark.usefixtures("always")
def test_float64() -> None:
    check(replaced(CASES[1], dtype=dtypes.f64))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", OF_PAIRS)
def test_pairs_of_channels(case: Last) -> None:
    check_threads(case)


def test_which_go_line_by_line() -> None:
    """Those whose lines fill tiles."""
    target = ZEN4
    wide = Last(1, 16, (14, 14), 64, (3, 3), (1, 1), (1, 1), (1, 1), 2)
    assert _plan(wide, target)
    narrow = replaced(wide, input=(14, 1), window=(3, 1), pad=(1, 0), registers=1)
    assert _plan(narrow, target) is None
    assert _plan(replaced(wide, window=(1, 1), pad=(0, 0)), target) is None  # one long line
    names = template_libraries(kernel_of(wide, target)[0], target)
    tiles = [name for name in names if name.startswith("strip_tile.")]
    assert {"conv_last_lines.f32", *tiles} == {*names} and tiles


def test_sums_wait_where_weights_are_many() -> None:
    found = _plan(WAITING, ZEN4)
    assert found and found.waits and found.window.size[1] == 3 > found.block
    few = _plan(replaced(WAITING, channels=16), ZEN4)
    assert few is None or not few.waits


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
def test_registers_of_32_bytes_have_few_sums_and_ask_ahead() -> None:
    """Lines of 14 are no multiple of a tile's rows; weights come from memory."""
    target = narrow_targets()[0]
    case = Last(1, 256, (14, 14), 256, (3, 3), (1, 1), (1, 1), (1, 1), 2)
    found = _plan(case, target)
    assert found and [span.rows for span in found.spans] == [5, 5, 4]
    names = template_libraries(kernel_of(case, target)[0], target)
    tiles = [name for name in names if name.startswith("strip_tile_asking.")]
    assert tiles and not any(name.startswith("strip_tile.") for name in names)
    assert all("@llvm.prefetch" in emit_library(name, target).text() for name in tiles)
    near = template_libraries(kernel_of(replaced(case, channels=8), target)[0], target)
    assert not any("asking" in name for name in near)  # all weights stay in a cache
    assert "@llvm.prefetch" in emit_library("conv_last.6.f32", target).text()


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
def test_lines_of_the_window_fill_half_of_the_second_cache() -> None:
    target = narrow_targets()[0]
    case = Last(1, 512, (7, 7), 512, (3, 3), (1, 1), (1, 1), (1, 1), 3)
    found, tiling = _plan(case, target), target.machine.tiling
    assert found and found.waits and tiling is not None
    assert found.block * 3 * 512 * 24 * 4 <= tiling.pack_bytes


@pytest.mark.parametrize("case", [
    Last(1, 256, (7, 7), 70, (3, 3), (1, 1), (1, 1), (1, 1), 3),  # waits, the last panel not full
    Last(5, 256, (4, 9), 40, (3, 3), (1, 1), (2, 1), (1, 1), 2),  # several chunks of a panel
    Last(2, 300, (7, 7), 260, (1, 1), (1, 1), (0, 0), (1, 1), 2),
], ids=name)
def test_weights_from_memory(case: Last) -> None:
    check_threads(case)


@pytest.mark.usefixtures("always")
def test_an_infinite_weight_beside_the_image_gives_no_nan() -> None:
    target = host_target()
    case = Last(2, 20, (14, 14), 32, (3, 3), (1, 1), (1, 1), (1, 1), 2)
    assert _plan(case, target)
    kernel, shapes, _ = kernel_of(case, target)
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    plain, infinite = (np.zeros((2, 14, 14, 32), np.float32) for _ in range(2))
    run(kernel, [x, w, bias, plain], target=target)
    w[:, 0, :, 3] = np.inf  # the first line of the window: the first line of the image has none
    w[:, :, 2, 5] = -np.inf
    run(kernel, [x, w, bias, infinite], target=target)
    seen = infinite[:, 0, -1]
    np.testing.assert_array_equal(seen, plain[:, 0, -1])
    assert not np.isfinite(infinite[:, 1:, :-1]).any()


@pytest.mark.parametrize("width", [1, 5, 7, 14, 56, 112, 225])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_spans_fill_a_line(width: int, vectors: int) -> None:
    tiling = host_target().machine.tiling
    assert tiling is not None
    for size, step, low, dilation in ((3, 1, 1, 1), (7, 2, 3, 1), (3, 1, 5, 4), (2, 3, 0, 2)):
        image = max(1, (width - 1) * step + (size - 1) * dilation + 1 - 2 * low)
        w = Window(
            (1, 1, image), (1, 1, size), (1, 1, width), (1, 1, step), (0, 0, low), (1, 1, dilation)
        )
        at = 0
        for span in spans_of_line(w, vectors, tiling):
            assert span.first == at
            for number in range(span.count):
                first = at + number * span.rows
                for tap, (a, b) in enumerate(span.taps):
                    inside = [
                        row for row in range(span.rows)
                        if 0 <= (first + row) * step - low + tap * dilation < image
                    ]
                    assert inside == list(range(a, b))
            at += span.count * span.rows
        assert at == width
