"""Numbers that a tensor's dtype is too small for are infinite, without a word (a warning fails
here), as in PyTorch; where PyTorch refuses them, they are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F

MUCH = 1e300
X = np.arange(8, dtype=np.float32).reshape(2, 4)
CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "layer_norm": (lambda x: F.layer_norm(x, (4,), eps=MUCH), 0.0),
    "group_norm": (lambda x: F.group_norm(x, 2, eps=MUCH), 0.0),
    "instance_norm": (lambda x: F.instance_norm(x[None], eps=MUCH), 0.0),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True, eps=MUCH), 0.0),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=MUCH), np.nan,
    ),
    "add": (lambda x: x + MUCH, np.inf),
    "pad": (lambda x: F.pad(x, (1, 0), value=MUCH)[:, 0], np.inf),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_they_are_infinite(name: str, compiled: bool, dtype: torch.dtype) -> None:
    function, expected = CASES[name]
    found = (torch.compile(function) if compiled else function)(torch.from_numpy(X).to(dtype))
    np.testing.assert_array_equal(np.abs(found.numpy()), np.full(found.shape, expected))


def test_linspace_refuses_them() -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.linspace(0, MUCH, 3)
    assert torch.linspace(0, MUCH, 3, dtype=torch.float64)[1] == MUCH / 2
