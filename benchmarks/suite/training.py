"""Whole training steps: zero_grad, forward, backward, the optimizer's update."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax_twins
import models
import numpy as np
import zoo
from workloads import BATCHES, Arrays, Work, Workload


def step(
    name: str,
    model: Callable[[SimpleNamespace], Any],
    optimizer: Callable[[Any, Any], Any],
    inputs: Callable[[int], Arrays],
    jax: Callable[..., Any] | None = None,
    **facts: Any,
) -> Workload:
    """`optimizer(optim, parameters)`; the loss is cross-entropy of the model's result."""

    def make(space: SimpleNamespace) -> Work:
        space.torch.manual_seed(0)
        net = model(space)
        updates = optimizer(space.optim, net.parameters())

        def run(x: Any, target: Any) -> Any:
            updates.zero_grad()
            loss = space.F.cross_entropy(net(x), target)
            loss.backward()
            updates.step()
            return loss

        return Work(run, net)

    return Workload(f"{name} training", "training", make, inputs, jax=jax, **facts)


def _known(
    name: str, kind: str, optimizer: Callable[[Any, Any], Any], jax: Any = None, **facts: Any
) -> Workload:
    """A model of ../models.py with its batches."""
    batches = name.split()[0]
    return step(
        name, lambda space: getattr(models.load(space.torch.__name__), kind)(), optimizer,
        lambda call: models.batch(batches, call % BATCHES), jax, **facts,
    )


def mlp(batch: int, widths: list[int], **facts: Any) -> Workload:
    """Layers of these widths and ReLU, by SGD."""
    name = f"mlp {batch}: {'-'.join(map(str, widths))}"

    def inputs(call: int) -> Arrays:
        rng = np.random.default_rng(call % BATCHES)
        return rng.standard_normal((batch, widths[0]), np.float32), rng.integers(
            0, widths[-1], batch)

    return step(
        name, lambda space: zoo.mlp(space, widths), lambda o, p: o.SGD(p, lr=0.01), inputs,
        jax_twins.training(jax_twins.mlp, jax_twins.sgd(0.01)), **facts,
    )


def _lstm_inputs(call: int) -> Arrays:
    rng = np.random.default_rng(call % BATCHES)
    return rng.standard_normal((32, 50, 64), np.float32), rng.integers(0, 10, 32)


ROWS = [
    _known("mlp", "MLP", lambda o, p: o.SGD(p, lr=0.1),
           jax_twins.training(jax_twins.mlp, jax_twins.sgd(0.1))),
    _known("lenet", "LeNet", lambda o, p: o.Adam(p, lr=1e-3),
           jax_twins.training(jax_twins.lenet, jax_twins.adam(1e-3)), convolves=True),
    _known("gpt", "GPT", lambda o, p: o.AdamW(p, lr=1e-3),
           jax_twins.training(jax_twins.gpt, jax_twins.adam(1e-3, decay=1e-2))),
    _known("resnet18 32x32", "ResNet18", lambda o, p: o.SGD(p, lr=0.01, momentum=0.9),
           convolves=True),
    step("lstm", lambda s: zoo.lstm(s, 64, 128, 10), lambda o, p: o.Adam(p, lr=1e-3),
         _lstm_inputs, jax_twins.training(jax_twins.lstm, jax_twins.adam(1e-3))),
]
