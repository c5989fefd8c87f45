"""Which of several NaNs a maximum is, and who has its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

inf, nan = float("inf"), float("nan")
VALUES = [
    [1.0, nan, 2.0, nan], [nan] * 4, [1.0, 1.0, nan, 1.0], [inf, nan, -inf, inf],
    [2.0, 2.0, 1.0, 2.0], [-inf] * 4,
]
Call = Callable[[Any, Any], Any]


def plane(t: Any, x: Any) -> Any:
    return t.cat([x] * 16).reshape(1, 1, 8, 8)


CALLS: dict[str, Call] = {
    "max": lambda t, x: x.max(),
    "min": lambda t, x: x.min(),
    "max of rows": lambda t, x: x.reshape(2, 2).max(1)[0],
    "amax of rows": lambda t, x: x.reshape(2, 2).amax(1),
    "max_pool1d": lambda t, x: t.nn.functional.max_pool1d(x[None, None], 2, stride=1),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(plane(t, x), 3, 2, 1),
    "max_pool2d apart": lambda t, x: t.nn.functional.max_pool2d(plane(t, x), 3, 1, 1, 2),
    "max_pool2d without padding": lambda t, x: t.nn.functional.max_pool2d(plane(t, x), 2),
    "max_pool3d": lambda t, x: t.nn.functional.max_pool3d(plane(t, x)[None], (1, 2, 2)),
    "adaptive_max_pool2d": lambda t, x: t.nn.functional.adaptive_max_pool2d(plane(t, x), 4),
}
PLACES: dict[str, Call] = {
    name: lambda t, x, name=name, args=args: getattr(t.nn.functional, name)(
        plane(t, x), *args, return_indices=True)[1]
    for name, args in {"max_pool2d": (3, 2, 1), "adaptive_max_pool2d": (2,)}.items()
}
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


@COMPILED
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str, compiled: bool) -> None:
    for row in VALUES:
        found = []
        for t in (torch, graphc):
            call = lambda x, t=t: CALLS[name](t, x)  # noqa: E731
            x = t.tensor(row, requires_grad=True)
            y = (graphc.compile(call) if compiled and t is graphc else call)(x)
            y.sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-6, err_msg=str(row))


@COMPILED
@pytest.mark.parametrize("name", PLACES)
def test_places(name: str, compiled: bool) -> None:
    for row in VALUES:
        call = lambda x: PLACES[name](graphc, x)  # noqa: E731
        found = (graphc.compile(call) if compiled else call)(graphc.tensor(row))
        assert found.tolist() == PLACES[name](torch, torch.tensor(row)).tolist(), row


def test_mode() -> None:
    """Each NaN is a value of its own: any other comes before it."""
    assert graphc.tensor([1.0, nan, nan]).mode()[0] == 1
    assert graphc.tensor([nan, 2.0, nan, 2.0]).mode()[0] == 2
    assert graphc.tensor([nan, nan]).mode()[0].isnan()
