"""Lanes whose serial loops differ in length go one after another: what is sorted and added up side
by side, on a CPU that is given a GPU's kernels."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc import backends
from graphc.backends.llvm.backend import LlvmBackend
from graphc.ir.record import replaced
from tests.ir.machines import SORTS

NAME = "llvm that sorts side by side"


class Sorting(LlvmBackend):
    """Borrows another machine."""

    machine = replaced(SORTS, by_counter=False)


SORTING = Sorting()
backends.register(NAME, lambda: SORTING, ("debug",))


@pytest.mark.parametrize("length", (1, 13, 50))
def test_what_has_an_order(length: int) -> None:
    def ordered(x: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
        places = (x * 3).long().abs()
        added = graphc.zeros(2, 60).scatter_add(1, places, x)
        return x.cumsum(1), x.cummax(1)[0], x.sort(1)[0], x.topk(1, 1)[1], added

    numbers = np.random.default_rng(length).integers(-9, 9, (2, length)).astype("f4")
    x = graphc.tensor(numbers)
    compiled = graphc.compile(ordered, backend=NAME, fullgraph=True)
    for found, wanted in zip(compiled(x), ordered(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
