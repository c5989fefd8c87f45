"""Learning-rate schedulers against PyTorch's over 30 epochs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import graphc
from tests.nn.both import SPACES

SCHEDULERS: dict[str, Callable[[Any, Any], Any]] = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda e: 0.9**e),
    "LambdaLR list": lambda L, o: L.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)]),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, lambda e: 0.95),
    "StepLR": lambda L, o: L.StepLR(o, 4, gamma=0.5),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [3, 8, 8, 20], gamma=0.3),
    "ConstantLR": lambda L, o: L.ConstantLR(o, factor=0.4, total_iters=7),
    "LinearLR": lambda L, o: L.LinearLR(o, 0.2, 0.9, total_iters=9),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o, total_iters=12, power=2.0),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 10, eta_min=0.001),
    "CosineAnnealingWarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(
        o, 4, T_mult=2, eta_min=0.01),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, 0.5, total_steps=32),
    "OneCycleLR linear": lambda L, o: L.OneCycleLR(
        o, [0.5, 0.2], epochs=8, steps_per_epoch=4, anneal_strategy="linear", three_phase=True,
        cycle_momentum=False),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.ConstantLR(o, 0.1, total_iters=4), L.ExponentialLR(o, 0.8),
            L.CosineAnnealingLR(o, 9)], milestones=[5, 12]),
}


def optimizer(s: Any, kind: str = "SGD") -> Any:
    """An optimizer with two groups."""
    params = [s.nn.Parameter(s.torch.zeros(1)) for _ in range(2)]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.3}]
    if kind == "Adam":
        return s.torch.optim.Adam(groups, lr=0.1)
    return s.torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def run(s: Any, make: Callable[[Any, Any], Any], kind: str = "SGD", epochs: int = 30) -> Any:
    """Rates, momenta and last_lr over the epochs."""
    o = optimizer(s, kind)
    told = []
    scheduler = make(s.torch.optim.lr_scheduler, o)
    for _ in range(epochs):
        told.append([
            [g["lr"], g.get("momentum", 0), list(g.get("betas", ()))] for g in o.param_groups
        ] + [scheduler.get_last_lr(), scheduler.last_epoch])
        for group in o.param_groups:
            group["params"][0].grad = s.torch.ones(1)
        o.step()
        scheduler.step()
    return told


def same(ours: Any, theirs: Any) -> None:
    """Assert nested numbers equal to 1e-12."""
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.filterwarnings("ignore")  # torch's, about epochs given by number
@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates(name: str) -> None:
    theirs, ours = (run(s, SCHEDULERS[name]) for s in SPACES)
    same(ours, theirs)


def test_one_cycle_of_adam() -> None:
    make = SCHEDULERS["OneCycleLR"]
    theirs, ours = (run(s, make, "Adam") for s in SPACES)
    same(ours, theirs)


def test_one_cycle_ends() -> None:
    s = SPACES[1]
    o = optimizer(s)
    scheduler = s.torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=2)
    o.step()
    scheduler.step()
    scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        scheduler.step()


@pytest.mark.parametrize("options", [
    {"patience": 2}, {"mode": "max", "factor": 0.5, "patience": 0, "cooldown": 2},
    {"threshold_mode": "abs", "threshold": 0.3, "patience": 1, "min_lr": [0.01, 0.1]},
])
def test_plateau(options: dict[str, Any]) -> None:
    metrics = [1.0, 0.9, 0.95, 0.93, 0.94, 0.5, 0.6, 0.61, 0.62, 0.63, 0.64, float("nan"), 0.7,
               0.1, 0.2, 0.2, 0.2, 0.2]

    def rates(s: Any) -> Any:
        o = optimizer(s)
        scheduler = s.torch.optim.lr_scheduler.ReduceLROnPlateau(o, **options)
        told = []
        for value in metrics:
            scheduler.step(s.torch.tensor(value))
            told.append([g["lr"] for g in o.param_groups] + [scheduler.num_bad_epochs])
        return told

    theirs, ours = (rates(s) for s in SPACES)
    same(ours, theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [
    "StepLR", "CosineAnnealingLR", "OneCycleLR", "LinearLR", "SequentialLR",
    "CosineAnnealingWarmRestarts", "MultiStepLR", "LambdaLR",
])
def test_resume(name: str) -> None:
    s = SPACES[1]
    make = SCHEDULERS[name]
    whole = run(s, make, epochs=20)
    o = optimizer(s)
    scheduler = make(s.torch.optim.lr_scheduler, o)
    for _ in range(8):
        o.step()
        scheduler.step()
    state, groups = scheduler.state_dict(), o.state_dict()
    assert "optimizer" not in state
    other = optimizer(s)
    resumed = make(s.torch.optim.lr_scheduler, other)
    resumed.load_state_dict(state)
    other.load_state_dict(groups)
    for number in range(8, 20):
        same([g["lr"] for g in other.param_groups], [g[0] for g in whole[number][:2]])
        other.step()
        resumed.step()


def test_resuming_needs_initial_lr() -> None:
    s = SPACES[1]
    with pytest.raises(KeyError, match="initial_lr"):
        s.torch.optim.lr_scheduler.StepLR(optimizer(s), 3, last_epoch=4)


def test_warns_when_stepped_before_the_optimizer() -> None:
    s = SPACES[1]
    o = optimizer(s)
    scheduler = s.torch.optim.lr_scheduler.StepLR(o, 3)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o.step()
        scheduler.step()


def saved(value: Any) -> Any:
    """A state_dict with rounded floats, and without the order of its keys."""
    if isinstance(value, dict):
        return {key: saved(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [saved(inner) for inner in value]
    return round(value, 10) if isinstance(value, float) else value


@pytest.mark.parametrize("name", SCHEDULERS)
def test_what_a_schedule_saves(name: str) -> None:
    """A checkpoint of torch's is read here, and the other way round."""
    states = []
    for s in SPACES:
        o = optimizer(s)
        scheduler = SCHEDULERS[name](s.torch.optim.lr_scheduler, o)
        for _ in range(3):
            o.step()
            scheduler.step()
        states.append(scheduler.state_dict())
    theirs, ours = states
    assert saved(ours) == saved(theirs)
    if "lr_lambdas" in theirs:
        assert list(ours) == list(theirs)


RESUMED = {
    "MultiplicativeLR": (lambda epoch: 0.9,), "StepLR": (2, 0.5), "MultiStepLR": ([3, 5], 0.5),
    "ConstantLR": (0.5, 4), "LinearLR": (0.5, 1.0, 6), "ExponentialLR": (0.9,),
    "PolynomialLR": (8, 2.0), "CosineAnnealingLR": (5,), "LambdaLR": (lambda epoch: 0.9**epoch,),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("last_epoch", [-1, 0, 3])
@pytest.mark.filterwarnings("ignore")
def test_resumed_and_asked_by_others(name: str, last_epoch: int) -> None:
    """ignite asks get_lr() itself, after each of which it counts last_epoch on."""
    def told(t: Any) -> Any:
        found = []
        for own in (True, False):
            weight = t.nn.Parameter(t.zeros(1))
            optimizer = t.optim.SGD([{"params": [weight], "lr": 0.2, "initial_lr": 0.4}], 0.2)
            kind = getattr(t.optim.lr_scheduler, name)
            schedule = kind(optimizer, *RESUMED[name], last_epoch=last_epoch)
            found.append(optimizer.param_groups[0]["lr"])
            for _ in range(7):
                optimizer.step()
                if own:
                    schedule.step()
                else:
                    (optimizer.param_groups[0]["lr"],) = schedule.get_lr()
                    schedule.last_epoch += 1
                found.append(optimizer.param_groups[0]["lr"])
        return found

    have, want = told(graphc), told(pytest.importorskip("torch"))
    assert have == pytest.approx(want, rel=1e-12)


def test_plateau_asks_for_one_least_rate_per_group() -> None:
    for s in SPACES:
        one = s.torch.optim.SGD([s.nn.Parameter(s.torch.ones(2))], lr=0.1)
        with pytest.raises(ValueError, match="expected 1 min_lrs, got 2"):
            s.torch.optim.lr_scheduler.ReduceLROnPlateau(one, min_lr=[1, 2])
