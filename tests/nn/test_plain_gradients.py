"""Clipping and clearing of gradients on their arrays: the bits of eager mode's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend import plain
from graphc.nn.utils import clip_grad_norm_

SHAPES = ((300, 70), (), (0, 3), (5,), (2, 3, 4))


def made(dtype: Any, special: float | None) -> list[Any]:
    draw = np.random.default_rng(0)
    params = []
    for shape in SHAPES:
        param = graphc.zeros(shape, dtype=dtype, requires_grad=True)
        param.grad = graphc.tensor(draw.standard_normal(shape), dtype=dtype)
        params.append(param)
    if special is not None:
        params[-1].grad[1, 2, 3] = special
    return params


def clipped(dtype: Any, special: float | None, most: float) -> list[Any]:
    params = made(dtype, special)
    total = clip_grad_norm_(params, most)
    found = [(total.dtype, total.shape, total.numpy().tobytes(), total._version)]
    return found + [(p.grad.numpy().tobytes(), p.grad._version) for p in params]


@pytest.mark.parametrize("dtype", [graphc.float32, graphc.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("special", [None, 1e30, float("inf"), float("nan"), 0.0])
@pytest.mark.parametrize("most", [0.1, 1e6])
def test_clipping(
    dtype: Any, special: float | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    begin = plain.begin
    monkeypatch.setattr(plain, "begin", lambda tensor: used.append(1) or begin(tensor))
    found = clipped(dtype, special, most)
    assert len(used) == len(SHAPES)
    monkeypatch.setattr(plain, "arrays_of", lambda tensors: None)
    assert clipped(dtype, special, most) == found


def test_what_is_not_plain_is_clipped_all_the_same() -> None:
    turned = graphc.zeros(300, 70, requires_grad=True)
    turned.grad = graphc.full((70, 300), 2.0).t()
    total = clip_grad_norm_([turned], 1.0)
    assert total.item() == pytest.approx(2 * 21000**0.5)
    assert turned.grad.norm().item() == pytest.approx(1.0, rel=1e-4)
    mixed = [graphc.zeros(3, requires_grad=True), graphc.zeros(3, requires_grad=True).double()]
    mixed[1] = mixed[1].detach().requires_grad_()
    mixed[0].grad, mixed[1].grad = graphc.full((3,), 3.0), graphc.full((3,), 4.0).double()
    assert clip_grad_norm_(mixed, 1.0).dtype is graphc.float64
    assert mixed[0].grad.norm().item() == pytest.approx(0.6, rel=1e-4)


def test_gradients_are_cleared_where_they_lie() -> None:
    params = made(graphc.float32, None)
    grads = [param.grad for param in params]
    versions = [grad._version for grad in grads]
    graphc.optim.SGD(params, 0.1).zero_grad(set_to_none=False)
    for param, grad, version in zip(params, grads, versions, strict=True):
        assert param.grad is grad
        assert not grad.any()
        assert grad._version == version + 1


def test_who_counts_sees_clipping() -> None:
    from graphc.profiler import profile

    params = made(graphc.float32, None)
    with profile() as seen:
        clip_grad_norm_(params, 0.1)
    assert any("mul" in event.key for event in seen.key_averages())
