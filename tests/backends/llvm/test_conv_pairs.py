"""Convolutions of bfloat16 read in a copy whose words are pairs of channels."""

import numpy as np
import pytest

import graphc as torch
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.plan_convolution import Contraction, contractions
from graphc.ir.kernel.plan_pairs import images_together
from graphc.ir.machine import Machine
from graphc.ir.record import replaced

from .contractions import Conv
from .test_conv import check
from .test_steps import WITH

pytestmark = pytest.mark.usefixtures("either_pairs")

CASES = [
    Conv(2, 8, (20, 20), 8, (3, 3), pad=(1, 1)),
    Conv(2, 33, (30, 31), 7, (3, 3), pad=(1, 1)),  # a channel alone
    Conv(1, 5, (40, 16), 3, (5, 4), pad=(2, 1)),
    Conv(2, 12, (18, 37), 9, (3, 3), pad=(2, 0), dilation=(2, 1)),
    Conv(3, 21, (33, 40), 15, (5, 5), (2, 2), (2, 2), groups=3),  # phases; seven channels a group
    Conv(2, 6, (31, 90), 4, (7, 7), (2, 3), (3, 2)),  # gathered
    Conv(2, 14, (90,), 6, (9,), (2,), (4,)),
    Conv(2, 4, (12, 70), 5, (5, 5), (1, 2), (2, 2)),  # 25 taps: more than a register has
    Conv(1, 9, (4, 50), 8, (3, 41), pad=(1, 20)),
    Conv(40, 16, (6, 6), 4, (3, 3), pad=(1, 1)),
]


def pairs(case: Conv) -> Conv:
    """The same of bfloat16."""
    return replaced(case, dtype=dtypes.bf16, acc=dtypes.f32)


def planned(case: Conv, machine: Machine = WITH.machine) -> list[Contraction]:
    """What its forward comes to where the machine has instructions for pairs."""
    template = pairs(case).kernel("conv").template
    assert isinstance(template, Convolution)
    found = contractions(template, machine)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.channels}-{c.input}-{c.window}")
def test_pairs_of_channels_are_read_in_a_copy(case: Conv) -> None:
    assert {each.kind for each in planned(case)} == {"windows"}
    for kind in ("conv", "conv_input_grad"):
        results = [check(pairs(case), kind, threads=threads) for threads in (1, 3)]
        assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.usefixtures("without_strips")
def test_many_rows_meet_packed_positions() -> None:
    """Packing is shared by all of them, and no position is computed in vain."""
    for rows, kind in ((16, "windows"), (512, "tiles")):
        case = Conv(8, 64, (14, 14), rows, (3, 3), pad=(1, 1))
        assert [each.kind for each in planned(case)] == [kind]


def test_strips_take_less_time_than_a_copy() -> None:
    for rows, kind in ((16, "strips"), (64, "strips")):
        case = Conv(8, 64, (14, 14), rows, (3, 3), pad=(1, 1))
        assert [each.kind for each in planned(case)] == [kind]


def test_one_thread_copies_as_many_images_at_a_time_as_stay_in_its_caches() -> None:
    tiling = WITH.machine.tiling
    assert tiling is not None
    half = tiling.in_place_bytes // 2
    for images, size, together in (
        (8, half // 8, 8), (8, half // 3, 3), (8, half // 2, 2), (7, half // 5, 4), (5, 2 * half, 1)
    ):
        assert images_together(images, size, tiling) == together
    case = Conv(5, 64, (40, 40), 8, (3, 3), pad=(1, 1))
    whole, some, rest = (each.n for each in planned(case))  # all; two, two and one
    assert (whole, some) == (5 * rest, 2 * rest)
    results = [check(pairs(case), "conv", threads=threads) for threads in (1, 2)]
    assert results[0].tobytes() == results[1].tobytes()


def test_sums_of_several_blocks_of_k_are_the_same_for_any_number_of_threads() -> None:
    """Fewer images would have their sums split elsewhere."""
    case = Conv(6, 202, (26, 26), 3, (3, 3), pad=(1, 1))
    assert {each.kind for each in planned(case)} == {"windows"}
    assert len({each.n for each in planned(case)}) > 1
    results = [check(pairs(case), "conv", threads=threads) for threads in (1, 2)]
    assert results[0].tobytes() == results[1].tobytes()


def test_sizes_known_in_the_call() -> None:
    """Batches of images, and what they need of scratch, as where sizes are known before."""
    rng = np.random.default_rng(0)
    weight = torch.tensor(rng.standard_normal((8, 64, 3, 3)).astype(np.float32)).bfloat16()
    convolve = torch.compile(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1))
    for images, height in ((2, 9), (5, 40), (1, 7), (3, 90), (7, 40)):
        values = rng.standard_normal((images, 64, height, 40)).astype(np.float32)
        x = torch.tensor(values).bfloat16()
        want = torch.nn.functional.conv2d(x.float(), weight.float(), padding=1)
        torch.testing.assert_close(convolve(x, weight).float(), want, rtol=2**-7, atol=1e-2)
    assert torch.explain(convolve).versions == 3
