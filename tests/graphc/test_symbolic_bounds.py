"""One compiled version for many sizes never leaves its buffers: where a size makes a slice, a view
or a constant position impossible, the call is compiled anew, or raises as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from tests.reference import torch

# the first two make the size symbolic; then sizes at which the cases below turn
SIZES = (10, 20, 15, 12, 3, 5, 6, 7, 8, 2, 40)


def _assign(t: Any, x: Any) -> Any:
    x = x.clone()
    x[2:5] = 7
    x[6] = 1
    return x


def _window(t: Any, x: Any) -> Any:
    n = x.shape[0]
    return x[n // 3 - 1 : n - 4] * 2


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "as_strided": lambda t, x: t.as_strided(x, (4,), (2,)) * 1,
    "as_strided at an offset": lambda t, x: t.as_strided(x, (2, 2), (2, 1), 3) * 1,
    "as_strided of the size": lambda t, x: t.as_strided(x, (x.shape[0] - 3, 2), (1, 2)) * 1,
    "slice": lambda t, x: x[:5] * 2,
    "slice from the end": lambda t, x: x[-3:] + 1,
    "slice by the size": _window,
    "slice with steps": lambda t, x: x[1:-2:3] + 1,
    "an element": lambda t, x: x[6] + 1,
    "an element from the end": lambda t, x: x[-6] + 1,
    "an element by the size": lambda t, x: x[x.shape[0] - 4] + x.select(0, x.shape[0] // 2 - 3),
    "narrow": lambda t, x: x.narrow(0, 2, 3) * 1,
    "narrow by the size": lambda t, x: x.narrow(0, x.shape[0] - 4, 3) * 1,
    "select": lambda t, x: t.stack([x[i] for i in range(5)]),
    "roll": lambda t, x: x.roll(3) + x.roll(-7),
    "roll of rows": lambda t, x: t.outer(x, x).roll((4, -5), (0, 1)) + 0,
    "flip": lambda t, x: x.flip(0) - x,
    "unfold": lambda t, x: x.unfold(0, 4, 2) * 1,
    "split": lambda t, x: t.cat([p * 2 for p in x.split(3)]),
    "index": lambda t, x: x[t.tensor([0, 6])] + 1,
    "index by a range": lambda t, x: x[t.arange(x.shape[0]) * 2 - 1],
    "a range from the size": lambda t, x: t.arange(x.shape[0] - 4, 17) + x.sum(),
    "a range to the size": lambda t, x: t.arange(5, x.shape[0], 3) * x.sum(),
    "a range down": lambda t, x: t.arange(x.shape[0] - 3, 2, -2, dtype=x.dtype) * x.sum(),
    "a range of floats": lambda t, x: t.arange(x.shape[0] - 1, -1, -1.0) + x.sum(),
    "gather": lambda t, x: x.gather(0, t.tensor([0, 6])) + 1,
    "index_put": lambda t, x: x.index_put(
        (t.tensor([0, 6]),), t.ones(2, dtype=x.dtype), accumulate=True
    ),
    "scatter_add": lambda t, x: x.scatter_add(0, t.tensor([0, 6]), t.ones(2, dtype=x.dtype)),
    "assignment": _assign,
    "topk": lambda t, x: x.topk(4)[0],
    "diag": lambda t, x: t.diag(x, 1),
    "repeat": lambda t, x: x.repeat(2)[:9] + 0,
    "pad": lambda t, x: t.nn.functional.pad(x, (2, -3)) * 1,
    "pad by the size": lambda t, x: t.nn.functional.pad(x, (x.shape[0] - 4, 1)),
    "pool": lambda t, x: t.nn.functional.max_pool1d(x[None, None], 5, 2, 1),
    "convolution": lambda t, x: t.nn.functional.conv1d(
        x[None, None], t.ones(1, 1, 6, dtype=x.dtype), dilation=1
    ),
    "new sizes": lambda t, x: t.ones(x.shape[0] - 4, dtype=x.dtype) * x[0],
    "a view": lambda t, x: x[: x.shape[0] // 4 * 4].view(-1, 4).sum(0),
    "triangle": lambda t, x: t.outer(x, x).tril(-3)[4:] + 0,
}


def outcome(function: Callable[..., Any], t: Any, values: np.ndarray, grad: bool) -> Any:
    """The result and the gradient, or the error."""
    x = t.from_numpy(values.copy()).requires_grad_(grad)
    try:
        out = function(t, x)
        found = [out.detach().numpy()]
        if grad and out.requires_grad:
            (out * out).sum().backward()
            found.append(x.grad.numpy())
    except Exception as error:
        return error
    return found


@pytest.mark.parametrize("grad", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_size(name: str, grad: bool) -> None:
    function = FUNCTIONS[name]
    compiled = graphc.compile(function)
    rng = np.random.default_rng(2)
    for size in SIZES:
        values = rng.standard_normal(size)
        want = outcome(function, torch, values, grad)
        have = outcome(compiled, graphc, values, grad)
        where = f"{name} at {size}: {want!r:.200} and {have!r:.200}"
        if isinstance(want, Exception) or isinstance(have, Exception):
            assert isinstance(want, Exception) and isinstance(have, type(want)), where
            continue
        assert len(have) == len(want), where
        # sums of a default range's numbers are rounded as float32 in an order of each library's own
        narrow = have[0].dtype == np.float32
        for a, b in zip(have, want, strict=True):
            np.testing.assert_allclose(
                a, b, rtol=1e-6 if narrow else 1e-9, atol=1e-12, err_msg=where
            )
