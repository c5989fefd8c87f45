"""torch's module_db and optim_db on the device: as graphc on the CPU, which those are compared with
elsewhere (tests/torch_db)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch as reference

import graphc
from tests.torch_db import modules, optimizers

HERE = "apart"

CASES = 1  # of each module, in training and in evaluation


def moved(value: Any, device: str) -> Any:
    """Nested containers with their tensors on a device, as leaves."""
    if isinstance(value, graphc.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(moved(item, device) for item in value)
    return value


def outcome(name: str, case: modules.Case, device: str) -> list[Any]:
    """Outputs, gradients, state."""
    made = case.sample.constructor_input
    kind: Any = graphc
    for part in modules.INFOS[name].module_cls.__module__.split(".")[1:]:
        kind = getattr(kind, part)
    graphc.manual_seed(0)
    args, kwargs = modules.translate(made.args), modules.translate(made.kwargs)
    module = getattr(kind, modules.INFOS[name].module_cls.__name__)(*args, **kwargs)
    module = module.float().to(device).train(case.training)
    call = case.sample.forward_input
    args, kwargs = (moved(modules.translate(v), device) for v in (call.args, call.kwargs))
    graphc.manual_seed(2)
    with graphc.device(device):
        out = module(*args, **kwargs)
        leaves = [x for x in modules.leaves((args, kwargs)) if x.requires_grad]
        total = sum(
            (x * (x.detach() + 1)).sum() for x in modules.leaves(out)
            if x.requires_grad and x.dtype.is_floating_point
        )
        if isinstance(total, graphc.Tensor):
            total.backward()
    state = [v for v in module.state_dict().values() if isinstance(v, graphc.Tensor)]
    return [*modules.leaves(out), *(x.grad for x in (*leaves, *module.parameters())), *state]


@pytest.mark.parametrize("name", modules.INFOS)
def test_module(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if reference.float32 not in modules.INFOS[name].dtypes:
            pytest.skip("not of float32")
        for case in modules.cases(name, reference.float32):
            if case.number >= CASES:
                continue
            try:
                want = outcome(name, case, "cpu")
            except (modules.Untranslatable, NotImplementedError):
                continue
            found = outcome(name, case, HERE)
            assert len(found) == len(want)
            for have, expected in zip(found, want, strict=True):
                assert (have is None) == (expected is None)
                if expected is None or graphc.nn.parameter.is_lazy(expected):
                    continue
                assert have.device.type == HERE
                np.testing.assert_allclose(
                    have.detach().cpu().numpy(), expected.detach().numpy(), rtol=2e-3, atol=2e-4
                )


def trained(name: str, kwargs: Any, device: str) -> list[float]:
    graphc.manual_seed(0)
    layers = graphc.nn
    net = layers.Sequential(layers.Linear(4, 5), layers.Tanh(), layers.Linear(5, 3)).to(device)
    chosen = [p for p in net.parameters() if p.dim() == 2 or name != "Muon"]
    optimizer = getattr(graphc.optim, name)(chosen, **kwargs)
    x = graphc.tensor(np.linspace(-1, 1, 32).reshape(8, 4), dtype=graphc.float32).to(device)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        return loss

    return [float(optimizer.step(closure).detach()) for _ in range(4)]


@pytest.mark.parametrize("name", optimizers.INFOS)
def test_optimizer(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in optimizers.INFOS[name].optim_inputs_func(device="cpu"):
            if sample.kwargs.get("differentiable"):
                continue
            kwargs = modules.translate(sample.kwargs)
            if name == "SparseAdam":  # as PyTorch's does
                with pytest.raises(RuntimeError, match="dense gradients"):
                    trained(name, kwargs, HERE)
                continue
            want = trained(name, kwargs, "cpu")
            np.testing.assert_allclose(trained(name, kwargs, HERE), want, rtol=2e-3, atol=1e-5)
