"""grid_sample of few numbers, which is done again on arrays (tests/graphc/test_eager_programs.py
has the bits): what checks it, records it or lies otherwise."""

from __future__ import annotations

import math
from typing import Any

import pytest

import graphc as torch
from graphc.nn.functional import grid as file
from graphc.nn.functional import grid_sample

NAN, INF = math.nan, math.inf
pytestmark = pytest.mark.usefixtures("only_the_cpu")


def written(*args: Any) -> Any:
    return file._sampled.__wrapped__(*args)  # type: ignore[attr-defined]


def operands(*sizes: int) -> tuple[Any, Any]:
    n, c, h, w, p = sizes
    x, places = torch.randn(n, c, h, w), torch.rand(n, p, p, 2) * 3 - 1.5
    places.view(-1)[:5] = torch.tensor([NAN, INF, -INF, 1.0, -1.0])
    return x, places


def test_others_go_as_they_are_written() -> None:
    x, places = operands(1, 2, 4, 4, 2)
    for _ in range(8):
        grid_sample(x, places, align_corners=False)
    w = x.clone().requires_grad_()
    loss = grid_sample(w, places.nan_to_num(), align_corners=False)
    assert loss.grad_fn is not None and loss.grad_fn.name() == "GridSampler2DBackward0"
    loss.sum().backward()
    assert w.grad is not None
    with torch.no_grad():
        assert not grid_sample(w, places, align_corners=False).requires_grad
    last = x.contiguous(memory_format=torch.channels_last)
    found = grid_sample(last, places, align_corners=False)
    wanted = written(last, places, "bilinear", "zeros", False)
    assert found.stride() == wanted.stride()
    assert torch.equal(found.nan_to_num(), wanted.nan_to_num())
    assert grid_sample(x, places[:, :0], align_corners=False).shape == (1, 2, 0, 2)
    for wrong in ({"mode": "cubic"}, {"padding_mode": "none"}, {"mode": ["bilinear"]}):
        with pytest.raises((ValueError, TypeError)):
            grid_sample(x, places, align_corners=False, **wrong)
    with pytest.raises(RuntimeError, match="batch size"):
        grid_sample(torch.cat([x, x]), places, align_corners=False)
    with pytest.warns(UserWarning, match="align_corners"):
        grid_sample(x, places)
    with torch.inference_mode():
        assert grid_sample(x, places, align_corners=False).is_inference()
    y = torch.compile(lambda a, b: grid_sample(a, b, align_corners=False))(x, places)
    assert torch.equal(y.nan_to_num(), grid_sample(x, places, align_corners=False).nan_to_num())
