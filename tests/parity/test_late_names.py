"""Names of torch's that few ask for, and arguments that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")


def picture(t: Any, *sizes: int) -> Any:
    count = int(np.prod(sizes))
    return (t.arange(float(count)) % 7 - 3).reshape(*sizes)


def convolved(t: Any, *rest: Any, spatial: int = 2) -> Any:
    x, w = picture(t, 2, 4, *[6] * spatial), picture(t, 4, 2, *[3] * spatial)
    return t.convolution(x, w, t.ones(4), *rest)


CALLS: dict[str, Callable[[Any], Any]] = {
    "hardshrink": lambda t: (picture(t, 9).hardshrink(), picture(t, 9).hardshrink(lambd=2.0)),
    "prelu": lambda t: picture(t, 2, 3).prelu(t.tensor([0.1, 0.2, 0.3])),
    "convolution": lambda t: convolved(t, [2, 1], [1, 0], [1, 1], False, [0, 0], 2),
    "convolution of lines": lambda t: convolved(t, [1], [1], [2], False, [0], 2, spatial=1),
    "convolution transposed": lambda t: t.convolution(
        picture(t, 2, 4, 5, 5), picture(t, 4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True,
        [1, 1], 1),
    "norm_except_dim": lambda t: [
        t.norm_except_dim(picture(t, 2, 3, 4), power, dim) for power in (2, 3)
        for dim in (-1, 0, 1, 2)],
    "feature_dropout": lambda t: (
        t.manual_seed(3), t.feature_dropout(t.ones(4, 5, 2), 0.5, True),
        t.feature_dropout(t.ones(4, 5, 2), 0.5, False))[1:],
    "dim_order": lambda t: [
        t.tensor(x.dim_order()) for x in (
            t.ones(2, 3), t.ones(2, 3).t(), t.ones(2, 3, 4, 5).permute(2, 0, 3, 1),
            t.ones(2, 3, 4, 5).contiguous(memory_format=t.channels_last), t.ones(2, 3, 1, 1),
            t.ones(3).expand(2, 3), t.ones(2, 1, 3).transpose(0, 2))],
    "arange": lambda t: [
        t.arange(3), t.arange(1, 4), t.arange(1, 9, 3), t.arange(end=3), t.arange(1, end=4),
        t.arange(start=1, end=4), t.arange(1, 9, step=3), t.arange(start=1, end=9, step=2),
        t.arange(2.5), t.arange(5, 1, -2)],
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CALLS)
def test_values(name: str, compiled: bool) -> None:
    call = lambda: CALLS[name](graphc)  # noqa: E731
    found, wanted = (graphc.compile(call) if compiled else call)(), CALLS[name](torch)
    found, wanted = ([x] if hasattr(x, "numpy") else list(x) for x in (found, wanted))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert str(a.dtype) == str(b.dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "arange of a start": lambda t: t.arange(start=3),
    "arange of nothing": lambda t: t.arange(),
    "arange of None": lambda t: t.arange(None),
    "arange with a step alone": lambda t: t.arange(3, step=2),
    "arange of an end and a step": lambda t: t.arange(end=5, step=2),
    "arange of two starts": lambda t: t.arange(1, start=2, end=5),
    "gcd of floats": lambda t: t.gcd(t.ones(2), t.ones(2)),
    "lcm of floats": lambda t: t.lcm(t.ones(2), t.ones(2)),
    "clamp of complex": lambda t: t.clamp(t.ones(2) + 1j, 1),
    "clamp_min of complex": lambda t: t.clamp_min(t.ones(2) + 1j, 1),
    "dim_order that is not one": lambda t: t.ones(2, 1).dim_order(ambiguity_check=True),
    "dim_order of what is no format": lambda t: t.ones(2).dim_order(ambiguity_check="x"),
    "feature_dropout of a line": lambda t: t.feature_dropout(t.ones(3), 0.5, True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    errors = []
    for t in (torch, graphc):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            REFUSED[name](t)
        errors.append(caught.value)
    assert isinstance(errors[1], type(errors[0]))
    assert str(errors[0])[:30] in str(errors[1]) or "arange" in str(errors[1])


def test_named_when_compiled() -> None:
    assert graphc.compile(lambda x: x, name="twice", recompile_limit=3).name == "twice"
    assert graphc.compile(name="twice")(lambda x: x).name == "twice"
