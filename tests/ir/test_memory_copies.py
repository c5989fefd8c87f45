"""Copies of arrays that lie across: whatever the sizes, NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir import memory

SIZES = [(64, 1024), (600, 70), (3, 40, 513)]


@pytest.mark.parametrize("dtype", ["f4", "i1", "c16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_copies_are_numpys(sizes, dtype, monkeypatch):
    monkeypatch.setattr(memory, "MANY", 1000)
    x = np.arange(np.prod(sizes)).astype(dtype).reshape(sizes)
    for turned in (x.swapaxes(-1, -2), x.swapaxes(0, -1), x[..., ::2].swapaxes(-1, -2), x[::-1].T):
        wanted = np.ascontiguousarray(turned)
        np.testing.assert_array_equal(memory.contiguous(turned), wanted)
        target = np.empty_like(wanted)
        memory.overwrite(target, turned)
        np.testing.assert_array_equal(target, wanted)


def test_what_is_overwritten_may_be_what_is_read(monkeypatch):
    monkeypatch.setattr(memory, "MANY", 1000)
    x = np.arange(600 * 600, dtype=np.float32).reshape(600, 600)
    wanted = x.T.copy()
    memory.overwrite(x, x.T)
    np.testing.assert_array_equal(x, wanted)
