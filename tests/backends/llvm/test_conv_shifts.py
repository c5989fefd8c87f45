"""Convolutions whose tiles read a copy of the input for each tap along a line."""

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.backends.host.machine import cpu
from graphc.backends.llvm.conv_reach import conv_reach
from graphc.backends.llvm.libraries import template_libraries
from graphc.backends.llvm.target import Target, host_target
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_convolution import contractions
from graphc.ir.kernel.plan_shifts import Shifts, shifts_of
from graphc.ir.record import replaced

from .contractions import Conv
from .test_conv import check

CASES = [
    Conv(2, 17, (28, 28), 40, (3, 3), pad=(1, 1)),
    Conv(2, 3, (60, 61), 33, (7, 7), (2, 2), (3, 3)),  # two phases of lines, every second pixel
    Conv(1, 5, (40, 39), 20, (3, 3), (3, 3), (1, 1)),  # gathered
    Conv(1, 5, (41, 30), 20, (3, 3), (3, 1), (2, 2)),
    Conv(1, 5, (19, 45), 20, (1, 4), (2, 2), (0, 1)),  # a phase that no tap reads
    Conv(2, 6, (30, 25), 21, (3, 5), (2, 1), (4, 7), (3, 2)),  # more padding than taps need
    Conv(3, 8, (9, 7), 48, (5, 5), pad=(2, 2)),  # several images in a tile, lines in a register
    Conv(9, 6, (19, 3), 30, (7, 3), (2, 2), (3, 0)),  # lines of one position
    Conv(2, 130, (8, 32), 33, (3, 3), pad=(1, 1)),  # several blocks of k
    Conv(2, 2, (9, 9), 13, (23, 23), pad=(11, 11)),  # a channel has more taps than a block has
    Conv(2, 40, (12, 16), 48, (3, 3), (2, 2), (1, 1), groups=2),
    Conv(3, 24, (100,), 40, (5,), (2,), (2,)),
    Conv(1, 64, (70, 90), 64, (3, 3), (2, 2), (1, 1)),  # several parts of an image
]
STRIDED = Conv(8, 3, (224, 224), 64, (7, 7), (2, 2), (3, 3))  # of few channels


def _split() -> Target:
    """This machine's CPU with registers that are computed in halves."""
    host = host_target()
    if host.vector_bytes != 64:
        pytest.skip("masks are registers on CPUs with AVX-512 alone")
    return replaced(host, cpu="znver4")


def _kind(case: Conv, target: Target) -> str:
    template = case.kernel("conv").template
    assert isinstance(template, Convolution)
    (found,) = contractions(template, target.machine) or ()
    return found.kind


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Copies cost nothing, nor do the products: what reads them is always chosen."""
    conv_reach.cache_clear()
    monkeypatch.setattr(Shifts, "copying", lambda *_: -(1 << 60))
    yield
    conv_reach.cache_clear()


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_values(case: Conv) -> None:
    target = _split()
    for dtype in (dtypes.f32, dtypes.f64):
        typed = replaced(case, dtype=dtype)
        assert _kind(typed, target) == "shifts"
        results = [check(typed, "conv", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()


def test_strided_convolutions_of_large_inputs_go_this_way() -> None:
    machine, whole = cpu(64, 32, split=True), cpu(64, 32)
    template = STRIDED.kernel("conv").template
    assert isinstance(template, Convolution)
    assert [(contractions(template, each) or ())[0].kind for each in (machine, whole)] == [
        "shifts", "shifts"
    ]


def test_what_it_is_linked_with() -> None:
    target = _split()
    names = template_libraries(STRIDED.kernel("conv"), target)
    assert "conv_shifts.f32" in names
    assert not any(name.startswith(("conv_pad", "conv_windows", "conv_rows")) for name in names)


def test_copies_have_room_for_the_lines_that_columns_see() -> None:
    """However columns fall on images."""
    tiling = cpu(64, 32).tiling
    assert tiling is not None
    rng = np.random.default_rng(0)
    for _ in range(300):
        lines, length, images, channels = (int(rng.integers(1, most)) for most in (40, 60, 9, 90))
        height, width, step, dilation = (int(rng.integers(1, most)) for most in (8, 8, 4, 4))
        s = shifts_of(
            channels * height * width, height * width, (height, width), step, dilation,
            (lines, length), images, tiling, 4,
        )
        padded = -(lines * length // -16) * 16
        for first in range(0, images * padded, s.columns):
            last, seen = min(first + s.columns, images * padded), 0
            for image in range(first // padded, (last - 1) // padded + 1):
                begin = max(first - image * padded, 0) // length
                end = (min(last - image * padded, lines * length) - 1) // length
                seen += end - begin + 1 + s.halo
            assert seen * length + 16 <= s.phase
