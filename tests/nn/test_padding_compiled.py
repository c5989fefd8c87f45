"""Padding by what is inside: compiled, as torch does it, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 7), (2, 1)),
    ((3, 9), (0, 4)),
    ((2, 3, 8, 9), (1, 2, 3, 0)),
    ((2, 40, 40), (7, 6, 5, 1)),
    ((1, 2, 5, 6, 7), (1, 1, 2, 2, 0, 3)),
    ((0, 3, 8, 9), (1, 2, 3, 1)),
    ((1, 300, 70), (2, 2, 2, 2)),
]


def padded(t: Any, x: Any, around: tuple[int, ...], mode: str) -> Any:
    return t.nn.functional.pad(x, around, mode=mode)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "around"), CASES)
def test_as_torch(shape: tuple[int, ...], around: tuple[int, ...], mode: str) -> None:
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    slopes: Any = None
    got = {}
    step = graphc.compile(lambda x: padded(graphc, x * 2.0, around, mode))
    for name, t, function in (
        ("torch", torch, lambda x: padded(torch, x * 2.0, around, mode)),
        ("eager", graphc, lambda x: padded(graphc, x * 2.0, around, mode)),
        ("compiled", graphc, step),
    ):
        x = t.from_numpy(numbers.copy()).requires_grad_()
        y = function(x)
        if slopes is None:
            slopes = np.random.default_rng(1).standard_normal(tuple(y.shape)).astype(np.float32)
        y.backward(t.from_numpy(slopes))
        got[name] = y.detach().numpy(), x.grad.numpy()
    for name in ("eager", "compiled"):
        np.testing.assert_array_equal(got[name][0], got["torch"][0])
        np.testing.assert_allclose(got[name][1], got["torch"][1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int64", "uint8"])
def test_every_dtype(dtype: str, mode: str) -> None:
    if mode == "replicate" and dtype in ("int64", "uint8"):
        pytest.skip("torch pads no integers so")
    numbers = np.arange(2 * 3 * 12 * 11).reshape(2, 3, 12, 11) % 100
    results = []
    for t, compile in ((torch, lambda f: f), (graphc, graphc.compile)):
        x = t.from_numpy(numbers).to(getattr(t, dtype)).transpose(2, 3)  # no order of its rows
        y = compile(lambda x, t=t: padded(t, x, (5, 2, 1, 1), mode))(x)
        results.append(y.to(t.float64).numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_sizes_that_change(mode: str) -> None:
    compiled = graphc.compile(lambda x: padded(graphc, x, (1, 2, 2, 1), mode), dynamic=True)
    for rows, columns in ((9, 7), (30, 40), (3, 300)):
        numbers = np.random.default_rng(0).standard_normal((2, rows, columns)).astype(np.float32)
        want = padded(torch, torch.from_numpy(numbers), (1, 2, 2, 1), mode).numpy()
        np.testing.assert_array_equal(compiled(graphc.from_numpy(numbers)).numpy(), want)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_what_is_around_is_read_line_by_line(mode: str) -> None:
    """Each number's place was looked up before: four times as slow as torch."""
    x = graphc.zeros(2, 8, 32, 32)
    text = graphc.explain(lambda x: padded(graphc, x, (2, 2, 2, 2), mode), x).kernels_text
    assert "check" not in text and "where" not in text and " if " not in text
