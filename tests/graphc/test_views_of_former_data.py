"""Views that were made before `x.data = y` stay views of the memory that x had before."""

from __future__ import annotations

from typing import Any

import graphc as torch
from graphc import Tensor


def test_a_view_of_what_was_there() -> None:
    kept: dict[str, Any] = {}

    def step(x: Tensor, y: Tensor) -> Tensor:
        view = x[..., :2]
        kept["row"] = x[0]
        x.data = (y * 2).clone()
        kept["later"] = x[0]
        return view

    compiled = torch.compile(step, fullgraph=True)
    for _ in range(3):
        x, y = torch.ones(2, 3), torch.arange(6.0).view(2, 3)
        former = x.data
        view = compiled(x, y)
        assert view.tolist() == [[1, 1], [1, 1]]
        assert kept["row"].tolist() == [1, 1, 1]
        assert kept["later"].tolist() == [0, 2, 4] == x[0].tolist()
        former.fill_(7)
        assert view.tolist() == [[7, 7], [7, 7]]


def test_a_view_of_a_result_that_was_there() -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1
        row = y[0]
        y.data = (x.data * 2).clone()
        return y, row

    compiled = torch.compile(step, fullgraph=True)
    for _ in range(2):
        x = torch.arange(4.0).view(2, 2).requires_grad_()
        y, row = compiled(x)
        assert y.tolist() == [[0, 2], [4, 6]]
        assert row.tolist() == [0, 1]
        row.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [[1, 1], [0, 0]]
