"""Named sizes of a library: those of 1, and those that follow from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import Dim, ExportError, aot, export

from . import client
from .client import Failed, Library
from .libraries import arrays, expected, same


class _Other(nn.Module):
    """Another graph where a size is 1."""

    def forward(self, x: Any) -> Any:
        return x.sum(0) if x.shape[0] > 1 else x[0] * 3


class _Fewer(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.squeeze(0) + 1


def test_a_graph_of_its_own_for_a_size_of_one(tmp_path: Path) -> None:
    program = export(_Other(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n", max=6)}})
    library = Library(aot(program, tmp_path, name="other").library, "other")
    assert library.named_sizes() == [("n", 1, 6)]
    context = library.context()
    for n in (1, 2, 6, 1):
        x = torch.randn(n, 4)
        same(context(*arrays((x,))), expected(program(x)))
    context.close()
    program = export(_Fewer(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n", max=6)}})
    with pytest.raises(ExportError, match=r"where n is 1.*other kinds.*\(2, \.\.\.\)"):
        aot(program, tmp_path, name="fewer")
    library = Library(aot(program, tmp_path, name="fewer", sizes={"n": (2, 6)}).library, "fewer")
    assert library.named_sizes() == [("n", 2, 6)]


def test_sizes_that_follow_another(tmp_path: Path) -> None:
    n = Dim("n", max=5)
    program = export(
        lambda x, y: x.sum() + y, (torch.randn(2), torch.randn(5)),
        dynamic_shapes={"x": {0: n}, "y": {0: 2 * n + 1}},
    )
    library = Library(aot(program, tmp_path, name="follows").library, "follows")
    assert library.entries("input")[1][2] == [-(1 << 63)]
    context = library.context()
    for size in (1, 3, 5):
        args = (torch.randn(size), torch.randn(2 * size + 1))
        same(context(*arrays(args)), expected(program(*args)))
    for sizes, code, text in (
        ((2, 6), client.SHAPE, "dim 0 of y is 6, which no value of n gives"),
        ((2, 7), client.SHAPE, "dim 0 of y gives 3 for n, which is 2 elsewhere"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            context(*(np.zeros(each, np.float32) for each in sizes))
        assert raised.value.code == code
    context.close()
