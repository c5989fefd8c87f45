"""torch's optim_db run on both packages: steps, state, compiled steps, errors."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import torch

import graphc
from graphc import nn, optim
from tests.torch_db.modules import Case, Outcome, _attempt, agree, translate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

INFOS = {info.optim_cls.__name__: info for info in optim_db}
ASPECTS = ("steps", "compiled steps", "errors")
STEPS = 6


def _train(package: Any, name: str, kwargs: Any, compiled: bool) -> list[Any]:
    """Parameters and losses of a small model after some steps."""
    package.manual_seed(0)
    net = package.nn.Sequential(
        package.nn.Linear(4, 5), package.nn.Tanh(), package.nn.Linear(5, 3)
    ).double()
    params = [p for p in net.parameters() if p.dim() == 2 or name != "Muon"]
    optimizer = getattr(package.optim, name)(params, **kwargs)
    x = package.from_numpy(np.linspace(-1, 1, 32).reshape(8, 4))
    y = package.from_numpy(np.cos(np.arange(24.0)).reshape(8, 3))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = package.nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    def step() -> Any:
        return optimizer.step(closure)

    call = graphc.compile(step) if compiled else step
    losses = [call().detach() for _ in range(STEPS)]
    if compiled:
        assert call.compile_count == 1, f"{call.compile_count} compilations"
    return [*losses, *net.parameters()]


def examine(name: str) -> list[Outcome]:
    """Every aspect of every case of an optimizer."""
    info, found = INFOS[name], []
    tolerance = 2e-2 if name == "Muon" else 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(info.optim_inputs_func(device="cpu")):
            if sample.kwargs.get("differentiable") or name == "SparseAdam":
                continue
            case = Case(number, True, sample)

            def check(compiled: bool, sample: Any = sample) -> None:
                want = _train(torch, name, dict(sample.kwargs), False)
                have = _train(graphc, name, translate(dict(sample.kwargs)), compiled)
                agree(have, want, tolerance, sample.desc or "default")

            found.append(_attempt("steps", case, lambda c=check: c(False)))
            if name != "LBFGS":  # refuses, as a test of its own says
                found.append(_attempt("compiled steps", case, lambda c=check: c(True)))
        samples = info.optim_error_inputs_func(device="cpu", dtype=torch.float64)
        for number, error in enumerate(samples):
            case = Case(number, False, error)
            found.append(_attempt("errors", case, lambda e=error: _refuses(name, e)))
    return found


def _parameters(value: Any, memo: dict[int, Any]) -> Any:
    """torch's parameters as graphc's, in the same containers, shared ones shared."""
    if isinstance(value, torch.Tensor):
        if value.is_sparse:
            return value  # nothing of graphc's corresponds to it
        if id(value) in memo:
            return memo[id(value)]
        made = graphc.from_numpy(value.detach().numpy().copy())
        result = nn.Parameter(made) if isinstance(value, torch.nn.Parameter) else made
        result.grad = None if value.grad is None or value.grad.is_sparse else translate(value.grad)
        memo[id(value)] = result
        return result
    if isinstance(value, dict):
        return {key: _parameters(item, memo) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_parameters(item, memo) for item in value)
    return translate(value)


def _refuses(name: str, error: Any) -> None:
    made = error.optimizer_error_input
    if error.error_type is UserWarning:
        warnings.simplefilter("error")  # examine() catches warnings
    try:
        optimizer = getattr(optim, name)(
            _parameters(made.params, {}), **translate(dict(made.kwargs))
        )
        if error.error_on == OptimizerErrorEnum.STEP_ERROR:
            optimizer.step()
    except (ValueError, RuntimeError, TypeError, KeyError, UserWarning) as raised:
        assert isinstance(raised, error.error_type), f"{type(raised).__name__}: {raised}"
        assert re.search(error.error_regex, str(raised)), (
            f"message {raised} does not match {error.error_regex}"
        )
        return
    raise AssertionError(f"{error.error_type.__name__} expected: {error.error_regex}")
