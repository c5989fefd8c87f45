"""GradScaler against PyTorch's, with device="cpu"."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def _run(t: Any, losses: list[float]) -> Any:
    w = t.ones(2, requires_grad=True)
    optimizer = t.optim.SGD([w], lr=0.5)
    scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    told = []
    for factor in losses:
        optimizer.zero_grad()
        loss = (w * factor).sum()
        scaler.scale(loss).backward()
        if factor == 2.0:
            scaler.unscale_(optimizer)
            told.append(w.grad.tolist())
        scaler.step(optimizer)
        scaler.update()
        told.append((w.tolist(), scaler.get_scale(), scaler.state_dict()))
    return told


def test_scales_grow_and_shrink_as_in_torch() -> None:
    losses = [1.0, 2.0, float("inf"), 0.5, 0.25, 0.5, float("nan"), 1.0, 2.0]
    assert _run(torch, losses) == _run(graphc, losses)


def test_misuse() -> None:
    for t in (torch, graphc):
        w = t.ones(1, requires_grad=True)
        optimizer = t.optim.SGD([w], lr=1.0)
        scaler = t.amp.GradScaler("cpu")
        with pytest.raises(AssertionError, match="_scale is None"):
            scaler.step(optimizer)
        with pytest.raises(AssertionError, match="_scale is None"):
            scaler.update()
        with pytest.raises(ValueError, match="outputs must be a Tensor"):
            scaler.scale(3)
        scaler.scale(w.sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizer)


def test_states_go_both_ways() -> None:
    theirs, ours = (t.amp.GradScaler("cpu", init_scale=32.0) for t in (torch, graphc))
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict() == theirs.state_dict()
    theirs.load_state_dict(ours.state_dict())
    assert pickle.loads(pickle.dumps(ours)).get_scale() == 32.0


def test_disabled_passes_through() -> None:
    scaler = graphc.amp.GradScaler("cpu", enabled=False)
    x = graphc.ones(2)
    assert scaler.scale(x) is x and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    scaler.update()
