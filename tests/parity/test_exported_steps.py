"""Exported training steps against PyTorch: the same script, the same seed, the same losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.export import load

torch = pytest.importorskip("torch")


def net(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, 10),
    )


def made(lib: Any, optimizer: str) -> tuple[Any, Any, Any]:
    lib.manual_seed(0)
    model = net(lib)
    opt = {
        "adamw": lambda p: lib.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        "momentum": lambda p: lib.optim.SGD(p, lr=0.05, momentum=0.9),
    }[optimizer](model.parameters())

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss

    return model, opt, step


@pytest.mark.parametrize("optimizer", ["adamw", "momentum"])
def test_losses_and_state(optimizer: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((8, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 8))
            for _ in range(4)]

    def given(lib: Any, i: int) -> Any:
        return tuple(lib.from_numpy(part) for part in data[i % len(data)])

    model, opt, step = made(torch, optimizer)
    _, _, ours = made(graphc, optimizer)
    graphc.export.export_step(ours, given(graphc, 0)).save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    torch.manual_seed(5)
    loaded.manual_seed(5)
    for i in range(12):
        want = float(step(*given(torch, i)).detach())
        assert float(loaded(*given(graphc, i)).numpy()) == pytest.approx(want, abs=2e-5), i
    state = loaded.state_dict()
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(state[name].numpy(), value.numpy(), atol=2e-4)
    names = {id(p): name for name, p in model.named_parameters()}
    for parameter, kept in opt.state.items():
        for key, value in kept.items():
            found = state[f"optimizer.state.{names[id(parameter)]}.{key}"]
            np.testing.assert_allclose(found.numpy(), value.numpy(), atol=2e-4)
