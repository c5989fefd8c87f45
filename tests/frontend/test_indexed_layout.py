"""How x[index] lies in memory where x is not row-major: strides and values as PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from tests.reference import torch

SOURCES: dict[str, Any] = {
    "channels last": lambda t, x: x.to(memory_format=t.channels_last),
    "turned": lambda t, x: x.to(memory_format=t.channels_last).transpose(1, 3),
    "permuted": lambda t, x: x.permute(1, 2, 3, 0),
    "expanded": lambda t, x: x[:, :1].expand(2, 3, 4, 5),
    "with gaps": lambda t, x: x.to(memory_format=t.channels_last)[:, :, ::2],
    "in rows": lambda t, x: x,
}
INDICES: dict[str, Any] = {
    "rows": lambda t, x: x[t.tensor([1, 0])],
    "a list": lambda t, x: x[[1, 0, 1]],
    "columns": lambda t, x: x[:, t.tensor([2, 0])],
    "the third": lambda t, x: x[:, :, t.tensor([1, 0, 1])],
    "the last": lambda t, x: x[..., t.tensor([1, 0])],
    "two": lambda t, x: x[t.tensor([1, 0]), t.tensor([1, 2])],
    "two apart": lambda t, x: x[t.tensor([1, 0]), :, t.tensor([1, 0])],
    "two within": lambda t, x: x[:, t.tensor([1, 0]), t.tensor([1, 0])],
    "a table": lambda t, x: x[t.tensor([[1, 0, 1], [0, 1, 1]])],
    "a mask": lambda t, x: x[t.arange(x.shape[0]) < 1],
    "a column and rows": lambda t, x: x[:, 1][t.tensor([1, 0])],
}


def looked_up(library: Any, source: str, index: str, compile: Any) -> Any:
    x = library.arange(120.0).reshape(2, 3, 4, 5).requires_grad_()
    found = compile(lambda x: INDICES[index](library, x))(SOURCES[source](library, x))
    (found * library.arange(float(found.numel())).reshape(found.shape)).sum().backward()
    return found.stride(), found.tolist(), x.grad.tolist(), found.is_contiguous()


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("source", SOURCES)
def test_strides_of_what_is_looked_up(source: str, index: str) -> None:
    expected = looked_up(torch, source, index, lambda f: f)
    assert looked_up(graphc, source, index, lambda f: f) == expected
    if index != "a mask":  # how many there are ends a graph
        assert looked_up(graphc, source, index, graphc.compile) == expected
