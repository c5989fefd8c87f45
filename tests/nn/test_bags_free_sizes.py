"""Bags of a free number of indices: exported, and compiled once for many."""

from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.export import Dim, export


class Bags(nn.Module):
    def __init__(self, mode: str, padding_idx: int | None) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(20, 4, mode=mode, padding_idx=padding_idx)

    def forward(self, *given: Any) -> Any:
        return self.bags(*given)


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_export(mode: str, padding_idx: int | None) -> None:
    model = Bags(mode, padding_idx)
    given = torch.tensor([1, 2, 3, 4, 5, 6]), torch.tensor([0, 2, 5])
    program = export(model, given, dynamic_shapes={"given": (
        {0: Dim("n", min=6)}, {0: Dim("bags")}
    )})
    for n, offsets in ((9, [0, 3, 4]), (12, [0, 0, 7, 11]), (6, [0])):
        other = torch.arange(n), torch.tensor(offsets)
        torch.testing.assert_close(program.module()(*other), model(*other))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_export_bags_of_one_length(mode: str) -> None:
    model = Bags(mode, 2)
    program = export(model, (torch.arange(6).reshape(2, 3),), dynamic_shapes={"given": (
        {0: Dim("bags"), 1: Dim("n")},
    )})
    for shape in ((4, 5), (1, 3), (5, 1)):
        other = torch.arange(shape[0] * shape[1]).reshape(shape)
        torch.testing.assert_close(program.module()(other), model(other))


def test_compiled_once_for_many() -> None:
    model = nn.EmbeddingBag(20, 4)
    compiled = torch.compile(lambda *given: model(*given))
    for n in range(3, 15):
        given = torch.arange(n) % 7, torch.tensor([0, 1])
        torch.testing.assert_close(compiled(*given), model(*given))
    assert compiled.compile_count <= 2
