"""Exported training steps that decide upon tensors: scalers, averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import export_step, load
from tests.graphc.exported_steps import batches, bits, made, refused, small


@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "rmsprop"])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_scaler_skips_steps(optimizer: str, unscaled: bool, tmp_path: Path) -> None:
    """What it found decides inside the graph: a skipped step leaves all as it was, to the bit."""
    net, opt = made(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss

    exported = export_step(step, batches(1)[0])
    assert scaler._scale is None and scaler._per_optimizer_states == {}
    exported.save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    torch.manual_seed(1)
    loaded.manual_seed(1)
    for i, (x, y) in enumerate(batches(12)):
        x = x * float("inf") if i in (0, 5, 6) else x
        before = {k: bits(v) for k, v in loaded.state_dict().items()}
        found, want = loaded(x, y), step(x, y).detach()
        np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-3)
        state = loaded.state_dict()
        assert state["scaler.scale"].item() == scaler.get_scale()
        assert state["scaler._growth_tracker"].item() == scaler._get_growth_tracker()
        kept = [n for n in before if n.startswith(("head", "conv", "optimizer.state"))]
        same = [n for n in kept if bits(state[n]) == before[n]]
        assert (same == kept) if i in (0, 5, 6) else len(same) < len(kept) / 2
    assert scaler.get_scale() == 512.0


def test_a_scaler_of_somebody_elses_optimizer_is_refused() -> None:
    """What its step does besides writing to tensors could not be taken back."""
    net, _ = small()

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            self.count = getattr(self, "count", 0) + 1
            return super().step(closure)

    opt = Counting(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        scaler.step(opt)
        scaler.update()

    assert "item()" in refused(step, *batches(1)[0])
    assert scaler._scale is None and not opt.state


@pytest.mark.parametrize("kind", ["equal", "ema", "multi ema", "own"])
def test_averaged_models(kind: str, tmp_path: Path) -> None:
    """The first call copies, those after it average, in one graph."""
    utils = torch.optim.swa_utils
    net, opt = made("momentum")
    options: dict[str, Any] = {
        "equal": {}, "ema": {"avg_fn": utils.get_ema_avg_fn(0.9)},
        "multi ema": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
        "own": {"avg_fn": lambda mean, now, n: mean + (now - mean) / n},
    }[kind]
    averages = utils.AveragedModel(net, **options)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        averages.update_parameters(net)
        return loss

    data = batches(6)
    exported = export_step(step, data[0])
    assert averages.n_averaged == 0
    exported.save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    torch.manual_seed(1)
    loaded.manual_seed(1)
    for pair in data:
        np.testing.assert_allclose(loaded(*pair).numpy(), step(*pair).detach().numpy(), atol=1e-4)
    state = loaded.state_dict()
    assert state["averages.n_averaged"].item() == 6
    for name, value in averages.module.state_dict().items():
        found = state[f"averages.module.{name}"].numpy()
        np.testing.assert_allclose(found, value.numpy(), atol=1e-3)
