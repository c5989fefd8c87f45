"""L-BFGS on arrays gives the bits of L-BFGS on tensors, and leaves the state that it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.optim import lbfgs


def trained(dtype: Any, history: int, search: str | None) -> tuple[list[float], list[Any]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    ).to(dtype)
    x = torch.randn(20, 3, dtype=dtype)
    y = x.sum(1, keepdim=True).sin()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=6, history_size=history, line_search_fn=search
    )

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(3)]
    kept = optimizer.state_dict()["state"][0]
    return losses, [
        part._graphc_array if isinstance(part, torch.Tensor) else part
        for value in kept.values() for part in (value if isinstance(value, list) else [value])
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("history, search", [(1, "strong_wolfe"), (4, None), (100, "strong_wolfe")])
def test_the_same_bits(
    dtype: Any, history: int, search: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    right = lbfgs._two_loops_of_arrays
    monkeypatch.setattr(
        lbfgs, "_two_loops_of_arrays", lambda *given: (taken.append(1), right(*given))[1]
    )
    ours, left = trained(dtype, history, search)
    assert taken
    monkeypatch.setattr(lbfgs, "arrays_of", lambda tensors: None)
    want, other = trained(dtype, history, search)
    assert ours == want and len(left) == len(other)
    for one, two in zip(left, other, strict=True):
        assert type(one) is type(two)
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype and one.shape == two.shape
            assert one.tobytes() == two.tobytes()
        else:
            assert one == two
