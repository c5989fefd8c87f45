"""The four measured models trained eagerly in float64: the same losses as PyTorch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import models
from tests.nn.both import copy_state

SPACES = [models.load(package) for package in ("torch", "graphc")]


@pytest.mark.parametrize(("name", "steps"), [
    ("mlp", 10), ("lenet", 3), ("gpt", 2),
    pytest.param("lenet", 12, marks=pytest.mark.slow),
    pytest.param("gpt", 12, marks=pytest.mark.slow),
    pytest.param("resnet18", 3, marks=pytest.mark.slow),
])
def test_training(name: str, steps: int) -> None:
    made = [models.make(space, name)[0].double() for space in SPACES]
    copy_state(*made)
    runs = []
    for space, model in zip(SPACES, made, strict=True):
        optim = importlib.import_module(f"{space.torch.__name__}.optim")
        optimizer = {
            "mlp": lambda p, o=optim: o.SGD(p, lr=0.1),
            "lenet": lambda p, o=optim: o.Adam(p, lr=1e-3),
            "gpt": lambda p, o=optim: o.AdamW(p, lr=1e-3),
            "resnet18": lambda p, o=optim: o.SGD(p, lr=0.01, momentum=0.9),
        }[name](model.parameters())
        step = models.training_step(space, model, optimizer)
        losses = []
        for i in range(steps):
            x, y = models.batch(name, i)
            x = x.astype(np.float64) if x.dtype == np.float32 else x
            losses.append(step(space.torch.from_numpy(x), space.torch.from_numpy(y)).item())
        runs.append(losses)
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-9)
    for key, want in made[0].state_dict().items():
        np.testing.assert_allclose(
            made[1].state_dict()[key].numpy(), want.numpy(), rtol=1e-7, atol=1e-9, err_msg=key
        )
