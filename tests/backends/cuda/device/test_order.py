"""What has an order, done side by side: sorts, running sums, scatters of many updates, as the CPU
has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch


def spots(count: int, size: int) -> Any:
    found = np.random.default_rng(1).integers(0, size, count)
    found[: count // 2] = 3
    return torch.tensor(found)


ORDERED: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(0, descending=True, stable=True),
    "topk": lambda x: x.topk(7, 0),
    "argsort": lambda x: x.round().argsort(0, stable=True),
    "cumsum": lambda x: x.round().cumsum(0),
    "cummax": lambda x: x.cummax(0),
    "index_add": lambda x: torch.zeros(20, 3, device=x.device).index_add(
        0, spots(len(x), 20).to(x.device), x.round()
    ),
    "scatter_reduce": lambda x: torch.zeros(20, 3, device=x.device).scatter_reduce(
        0, spots(len(x), 20).to(x.device)[:, None].expand(-1, 3), x, "amax"
    ),
}


@pytest.mark.parametrize("compiled", (False, True))
@pytest.mark.parametrize("name", ORDERED)
def test_what_has_an_order(name: str, compiled: bool) -> None:
    x = torch.tensor(np.random.default_rng(0).standard_normal((300, 3)).astype("f4") * 9)
    function = torch.compile(ORDERED[name]) if compiled else ORDERED[name]
    for a, b in zip(_listed(function(x.to("cuda"))), _listed(ORDERED[name](x)), strict=True):
        np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]
