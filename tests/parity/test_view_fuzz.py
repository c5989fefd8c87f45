"""Random programs of views and in-place writes: values, gradients and errors as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")
COUNT = 200

Step = Callable[[Any, list[Any]], Any]


def _view(rng: np.random.Generator) -> Callable[[Any], Any]:
    """A view of a tensor of any shape; the choice does not depend on the library.

    Not of several results (chunk, unbind): PyTorch refuses in-place writes to those.
    """
    kind, a, b = int(rng.integers(0, 14)), int(rng.integers(0, 9)), int(rng.integers(0, 9))

    def view(x: Any) -> Any:
        rank = x.dim()
        i, j = (a % rank, b % rank) if rank else (0, 0)
        if kind == 0 or rank == 0:
            return x.unsqueeze(a % (rank + 1))
        if kind == 1:
            return x.transpose(i, j)
        if kind == 2:
            return x.reshape(-1)
        if kind == 3:
            return x.view(-1, x.shape[-1])
        if kind == 4:
            return x.select(i, b % x.shape[i])
        if kind == 5:
            return x.narrow(i, 0, 1 + b % x.shape[i])
        if kind == 6:
            return x.squeeze()
        if kind == 7:
            return x[..., ::2]
        if kind == 8:
            return x.flatten()
        if kind == 9:
            return x.diagonal(dim1=i, dim2=j)
        if kind == 10:
            return x[(slice(None),) * i + (slice(x.shape[i] // 2, None),)]
        if kind == 11:
            return x.expand(2, *x.shape)
        if kind == 12:
            return x.detach()
        return x.permute(*reversed(range(rank)))

    return view


def _write(rng: np.random.Generator) -> Callable[[Any, Any, Any], Any]:
    """Change x in place, perhaps with the values of y."""
    kind, a = int(rng.integers(0, 9)), int(rng.integers(0, 9))

    def write(t: Any, x: Any, y: Any) -> Any:
        if kind == 0:
            return x.mul_(1.5)
        if kind == 1:
            return x.add_(y.sum())
        if kind == 2 and x.dim():
            x[a % x.shape[0]] = y.mean()
            return x
        if kind == 3:
            return x.copy_(y.reshape(-1)[:1].expand(x.shape) if x.dim() else y.sum())
        if kind == 4:
            return x.zero_() if 0 not in x.stride() else x
        if kind == 5:
            return x.sin_()
        if kind == 6:
            return x.neg_()
        if kind == 7:
            return x.clamp_(-1.0, 1.0)
        return x.add_(x.detach().clone())

    return write


def _program(rng: np.random.Generator) -> list[Step]:
    steps: list[Step] = []
    for _ in range(int(rng.integers(3, 9))):
        which, other = int(rng.integers(0, 99)), int(rng.integers(0, 99))
        if rng.random() < 0.6:
            view = _view(rng)
            steps.append(lambda t, xs, f=view, i=which: xs.append(f(xs[i % len(xs)])))
        else:
            write = _write(rng)
            steps.append(
                lambda t, xs, f=write, i=which, j=other: f(t, xs[i % len(xs)], xs[j % len(xs)])
            )
    return steps


def _run(t: Any, array: np.ndarray, program: list[Step]) -> tuple[str, list[Any]]:
    leaf = t.tensor(array, requires_grad=True)
    xs = [leaf * 2]
    try:
        for step in program:
            step(t, xs)
        weights = [float(i + 1) for i in range(len(xs))]
        total = sum((x * w).sum() for x, w in zip(xs, weights, strict=True))
        total.backward()
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error).__name__, [str(error)]
    values = [x.detach().numpy() for x in xs]
    return "", [*values, leaf.grad.numpy()]


@pytest.mark.parametrize("seed", range(COUNT))
def test_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((3, 4), (2, 3, 4), (6,), (4, 1, 3))[rng.integers(0, 4)]
    array = rng.standard_normal(shape)
    program = _program(rng)
    want, have = _run(torch, array, program), _run(graphc, array, program)
    assert have[0] == want[0], f"{have[1][0]}\n{want[1][0]}"
    if want[0]:
        return
    for i, (w, h) in enumerate(zip(want[1], have[1], strict=True)):
        assert h.shape == w.shape
        np.testing.assert_allclose(h, w, rtol=1e-9, atol=1e-9, err_msg=f"tensor {i}")
