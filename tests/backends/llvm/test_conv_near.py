"""Convolutions whose panels take turns at a part of the image that stays in the second cache."""

import pytest

from graphc.backends.llvm.target import Target, make_target
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_last import ANY, near_of
from graphc.ir.kernel.plan_last_lines import lines_of_last
from graphc.ir.record import replaced

from .contractions import narrow_targets
from .test_conv_last import Last, check, kernel_of
from .test_conv_last_lines import ZEN4

AVX2 = make_target("x86_64-unknown-linux-gnu", features="+avx2,+fma")
POSITIONS = Last(1, 512, (20, 21), 270, (1, 1), (1, 1), (0, 0), (1, 1), 2)
LINES = Last(1, 512, (27, 56), 270, (1, 1), (2, 2), (0, 0), (1, 1), 2)


def _near(case: Last, target: Target = AVX2) -> int:
    """Positions of a part."""
    c = kernel_of(case, target)[0].template
    assert isinstance(c, Convolution)
    lines = lines_of_last(c, target.machine)
    assert (lines is not None) == (case.stride != (1, 1))
    return lines.near if lines else near_of(c, target.machine, 6)


@pytest.mark.parametrize("case", [POSITIONS, LINES], ids=["positions", "lines"])
def test_parts_fill_a_quarter_of_the_second_cache(case: Last) -> None:
    each = 28 if case is LINES else 6
    assert 64 << 10 < _near(case) * each * 512 * 4 <= 128 << 10
    assert _near(replaced(case, channels=128)) == ANY  # all weights, or the image, in a cache
    if case is POSITIONS:
        assert _near(replaced(case, channels=4096, input=(10, 14))) == ANY  # more weights
        assert _near(case, ZEN4) == ANY


@pytest.mark.skipif(not narrow_targets(), reason="for an x86 with 32 bytes of registers")
@pytest.mark.parametrize("case", [
    POSITIONS, LINES, replaced(LINES, batch=2, registers=3), replaced(POSITIONS, batch=3),
], ids=["positions", "lines", "lines of two", "positions of three"])
def test_sums_are_the_references_for_any_threads(case: Last) -> None:
    target = narrow_targets()[0]
    assert check(case, target) == check(case, target, threads=4)
