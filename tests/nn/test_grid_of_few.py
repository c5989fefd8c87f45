"""grid_sample of few numbers: by a graph after enough calls, to the bit as it is written."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import graphc as torch
from graphc.nn import as_one
from graphc.nn.functional import grid as file
from graphc.nn.functional import grid_sample

NAN, INF = math.nan, math.inf
WAYS = list(itertools.product(
    ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)
))


@pytest.fixture(autouse=True)
def soon(only_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third call has a graph, the fifth is no longer held to what is written."""
    monkeypatch.setattr(file, "_ENOUGH", 3)
    monkeypatch.setattr(file, "_few", {})


def written(*args: Any) -> Any:
    return file._sampled.__wrapped__(*args)  # type: ignore[attr-defined]


def operands(*sizes: int, dtype: Any = torch.float32) -> tuple[Any, Any]:
    n, c, h, w, p = sizes
    x, places = torch.randn(n, c, h, w, dtype=dtype), torch.rand(n, p, p, 2, dtype=dtype) * 3 - 1.5
    places.view(-1)[:5] = torch.tensor([NAN, INF, -INF, 1.0, -1.0], dtype=dtype)
    return x, places


@pytest.mark.parametrize("mode, padding, align", WAYS)
def test_the_bits_are_those_of_what_is_written(mode: str, padding: str, align: bool) -> None:
    dtype = torch.float64 if align else torch.float32
    served = 0
    for _ in range(7):
        x, places = operands(*((1, 2, 8, 8, 4) if align else (2, 1, 1, 5, 3)), dtype=dtype)
        found = grid_sample(x, places, mode, padding, align)
        right = written(x, places, mode, padding, align)
        assert found._graphc_array.tobytes() == right._graphc_array.tobytes()
        assert found.stride() == right.stride() and found._version == 0
        assert found.grad_fn is None and not found.requires_grad
        served = file._few[file._key(x, places, mode, padding, align)]._right
    assert served == as_one._HELD


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


def test_a_graph_with_other_bits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_whole", lambda *_: lambda x, g: torch.zeros(1, 2, 2, 2))
    x, places = operands(1, 2, 4, 4, 2)
    places = places.nan_to_num(0.1).clamp(-0.5, 0.5)
    right = written(x, places, "bilinear", "zeros", False)
    for _ in range(8):
        assert torch.equal(grid_sample(x, places, align_corners=False), right)
