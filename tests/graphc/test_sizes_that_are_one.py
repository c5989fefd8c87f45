"""A symbolic size that happens to be 1 (n - 1, n // 2) is one row that all rows share, not many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import graphc as torch
from graphc import Tensor

CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all but the first": lambda a, b: a[1:] / (b.abs() + 1),
    "every other": lambda a, b: a[::2] + b,
    "a chunk": lambda a, b: a.chunk(2)[1] * b,
    "the middle": lambda a, b: a[1:-1] + b,
    "expanded": lambda a, b: a[1:].expand_as(b) * 2,
    "written": lambda a, b: b.clone().copy_(a[1:]),
    "chosen": lambda a, b: torch.where(a[1:] > 5, b, a[1:]),
    "squeezed": lambda a, b: a[1:].squeeze(0) + b,
}


def _outcome(function: Callable[[Tensor, Tensor], Tensor], rows: int) -> object:
    a, b = torch.arange(1.0, 1 + 4 * rows).view(rows, 4), torch.ones(rows, 4) * 3
    try:
        return function(a, b).tolist()
    except RuntimeError:
        return "refused"


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("sizes", [(4, 2, 3, 2), (2, 3, 2), (5, 3, 2, 4)])
@pytest.mark.parametrize("name", CASES)
def test_one_row_of_a_symbolic_size(name: str, sizes: Sequence[int], dynamic: bool | None) -> None:
    compiled = torch.compile(CASES[name], dynamic=dynamic)
    for rows in sizes:
        assert _outcome(compiled, rows) == _outcome(CASES[name], rows)
