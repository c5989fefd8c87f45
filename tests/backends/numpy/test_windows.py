"""Sums of windows whose place in memory is known beforehand: the bits of the table's."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphc.backends.numpy import bound_windows
from graphc.backends.numpy.contract import TABLE
from graphc.ir.dtypes import from_numpy
from graphc.ir.types import TensorType


@pytest.mark.parametrize("seed", range(40))
def test_sums_have_the_tables_bits(seed: int) -> None:
    r = random.Random(seed)
    for spatial in (1, 2, 3):
        shape = [r.randint(3, 7) for _ in range(spatial + r.choice([0, 1, 2]))]
        x = np.random.default_rng(seed).standard_normal(shape) * 10
        x = x.astype(r.choice([np.float32, np.float64, np.int64]))
        x.flat[0] = 0 if x.dtype.kind == "i" else r.choice([-0.0, np.inf, np.nan])
        x = r.choice([x, np.asfortranarray(x)])

        def each(*choices: int, count: int = spatial) -> tuple[int, ...]:
            return tuple([r.choice(choices) for _ in range(count)])

        attrs = {
            "window": each(1, 2, 3), "stride": each(1, 2, 3), "pad_low": each(0, 0, 1),
            "pad_high": each(0, 0, 2), "dilation": each(1, 1, 2),
        }
        made = bound_windows.window_sum([TensorType(from_numpy(x.dtype), x.shape)], **attrs)
        right = TABLE["window_sum"](x, **attrs)
        if made is None:
            assert right.size == 0
            continue
        found = made(x)
        assert found.dtype == right.dtype and found.shape == right.shape
        assert found.tobytes() == right.tobytes() and not np.shares_memory(found, x)
