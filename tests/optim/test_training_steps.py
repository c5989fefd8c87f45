"""Optimizers inside compiled steps, torch's own state, LBFGS, hooks, averaged models."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
import graphc.nn.functional as F
from graphc import nn
from graphc.optim import optimizer as optimizer_module
from tests.nn.both import SPACES, array, close
from tests.optim.test_optimizers import OPTIMIZERS, parameters, step

ONE_OF_EACH = ("SGD dampening", "Adadelta", "Adamax", "NAdam all", "RAdam", "ASGD all", "Rprop",
               "Adafactor", "Muon", "Adagrad")


def train(name: str, compiled: bool) -> tuple[list[float], Any]:
    """Losses of six steps on random batches, with a schedule."""
    graphc.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    given = [p for p in net.parameters() if p.dim() == 2 or "Muon" not in name]
    optimizer = OPTIMIZERS[name](graphc.optim, given)
    schedule = graphc.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def one(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    call: Any = graphc.compile(one) if compiled else one
    losses = []
    for i in range(6):
        graphc.manual_seed(i + 5)
        losses.append(call(graphc.randn(8, 4).double(), graphc.randint(0, 3, (8,))).item())
        schedule.step()
    return losses, call


def check_compiled(name: str) -> None:
    """One compilation, and eager's numbers."""
    want, _ = train(name, False)
    have, call = train(name, True)
    np.testing.assert_allclose(have, want, rtol=1e-5 if "Muon" in name else 1e-9)
    assert call.compile_count == 1


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_step_compiles_once(name: str) -> None:
    check_compiled(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - set(ONE_OF_EACH)))
def test_every_option_compiles_once(name: str) -> None:
    check_compiled(name)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "Muon" not in name])
def test_continues_from_torch_state(name: str) -> None:
    theirs, ours = SPACES
    made = [parameters(s, "float32") for s in SPACES]
    optimizers = [OPTIMIZERS[name](s.torch.optim, p) for s, p in zip(SPACES, made, strict=True)]
    for number in range(4):
        step(theirs, made[0], optimizers[0], number, "float32")
    state = optimizers[0].state_dict()
    moved = {
        "param_groups": state["param_groups"],
        "state": {
            number: {
                key: graphc.from_numpy(value.numpy().copy())
                if isinstance(value, torch.Tensor) else value
                for key, value in entries.items()
            }
            for number, entries in state["state"].items()
        },
    }
    optimizers[1].load_state_dict(moved)
    with graphc.no_grad():
        for mine, other in zip(made[1], made[0], strict=True):
            mine.copy_(graphc.from_numpy(other.detach().numpy()))
    for number in range(4, 8):
        step(theirs, made[0], optimizers[0], number, "float32")
        step(ours, made[1], optimizers[1], number, "float32")
    close(made[1], made[0], 1e-5, name)


@pytest.mark.parametrize("options", [
    {}, {"lr": 0.5, "history_size": 3}, {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 4, "lr": 0.1},
], ids=str)
def test_lbfgs(options: dict[str, Any]) -> None:
    found = []
    for s in SPACES:
        x = s.nn.Parameter(s.torch.from_numpy(np.array([-1.2, 1.0, 0.5])))
        optimizer = s.torch.optim.LBFGS([x], **options)

        def closure(s: Any = s, x: Any = x, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            steep = (x[1:] - x[:-1] ** 2) ** 2
            loss = (10 * steep + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure).detach()) for _ in range(4)]
        found.append((losses, array(x), optimizer.state[x]["func_evals"]))
    (want_losses, want_x, want_evals), (losses, x, evals) = found
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(x, want_x, rtol=1e-6, atol=1e-9)
    assert evals == want_evals


def test_lbfgs_is_no_part_of_one_graph() -> None:
    x = nn.Parameter(graphc.ones(2))
    optimizer = graphc.optim.LBFGS([x])

    def one() -> Any:
        return optimizer.step(lambda: (x * x).sum())

    with pytest.raises(RuntimeError, match="as often as the losses say"):
        graphc.compile(one, fullgraph=True)()


def test_hooks() -> None:
    x = nn.Parameter(graphc.ones(2))
    optimizer = graphc.optim.SGD([x], lr=0.1)
    seen: list[str] = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("pre")),
        optimizer.register_step_post_hook(lambda *_: seen.append("post")),
        optimizer.register_state_dict_pre_hook(lambda *_: seen.append("state pre")),
        optimizer.register_state_dict_post_hook(lambda *_: seen.append("state post")),
        optimizer.register_load_state_dict_pre_hook(lambda *_: seen.append("load pre")),
        optimizer.register_load_state_dict_post_hook(lambda *_: seen.append("load post")),
        optimizer_module.register_optimizer_step_pre_hook(lambda *_: seen.append("all")),
    ]
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["all", "pre", "post", "state pre", "state post", "load pre", "load post"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 7


def test_a_step_that_calls_its_parents_runs_hooks_as_in_torch() -> None:
    """Once, unless the parent class has had optimizers of its own."""
    found = []
    for s in SPACES:
        class Base(s.torch.optim.Optimizer):
            def __init__(self, params: Any) -> None:
                super().__init__(params, {"lr": 0.1})

            def step(self, closure: Any = None) -> Any:
                for group in self.param_groups:
                    for param in group["params"]:
                        param.data.sub_(group["lr"])

        class Between(Base):
            pass

        class Sub(Between):
            def step(self, closure: Any = None) -> Any:
                return super().step(closure)

        seen: list[str] = []

        def count(kind: Any, seen: list[str] = seen, s: Any = s) -> tuple[float, float]:
            x = s.nn.Parameter(s.torch.ones(2))
            optimizer = kind([x])
            optimizer.register_step_pre_hook(lambda *_: seen.append(f"pre {kind.__name__}"))
            optimizer.register_step_post_hook(lambda *_: seen.append(f"post {kind.__name__}"))
            optimizer.step()
            return tuple(round(value, 6) for value in x.tolist())

        values = [count(kind) for kind in (Sub, Between, Sub, Base, Sub, Between)]
        found.append((seen, values))
    assert found[0] == found[1], found
    assert found[0][0].count("pre Sub") == 1 + 2 + 2


def test_sparse_adam_refuses_dense_gradients() -> None:
    x = nn.Parameter(graphc.ones(2))
    x.grad = graphc.ones(2)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        graphc.optim.SparseAdam([x]).step()


def test_cyclic_and_chained_schedules() -> None:
    makers = {
        "cyclic": lambda o, m: m.CyclicLR(o, 0.01, 1.0, 3, 5, mode="triangular2"),
        "exp": lambda o, m: m.CyclicLR(o, 0.01, 1.0, 3, mode="exp_range", gamma=0.9),
        "chained": lambda o, m: m.ChainedScheduler([m.ConstantLR(o), m.ExponentialLR(o, 0.9)]),
        "one": lambda o, m: m.OneCycleLR(o, 1.0, 20, three_phase=True),
    }
    for name, make in makers.items():
        found, states = [], []
        for s in SPACES:
            x = s.nn.Parameter(s.torch.ones(2))
            optimizer = s.torch.optim.SGD([x], lr=0.5, momentum=0.9)
            schedule = make(optimizer, s.torch.optim.lr_scheduler)
            rates = []
            for _ in range(12):
                optimizer.step()
                schedule.step()
                rates.append((schedule.get_last_lr(), optimizer.param_groups[0]["momentum"]))
            found.append(rates)
            states.append(schedule.state_dict().keys())
        assert found[1] == found[0], name
        assert set(states[1]) == set(states[0]), name


@pytest.mark.parametrize("kind", ["swa", "ema", "buffers", "avg"])
def test_averaged_model(kind: str) -> None:
    found = []
    for s in SPACES:
        utils = s.torch.optim.swa_utils
        s.torch.manual_seed(0)
        net = s.nn.Sequential(s.nn.Linear(3, 4), s.nn.BatchNorm1d(4))
        options: dict[str, Any] = {
            "swa": {}, "ema": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
            "buffers": {"use_buffers": True}, "avg": {"avg_fn": utils.get_ema_avg_fn(0.8)},
        }[kind]
        averaged = utils.AveragedModel(net, **options)
        optimizer = s.torch.optim.SGD(net.parameters(), lr=0.1)
        batches = [s.torch.randn(5, 3) for _ in range(3)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule = utils.SWALR(optimizer, 0.05, anneal_epochs=2)
        for x in batches:
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
            averaged.update_parameters(net)
            schedule.step()
        utils.update_bn(batches, averaged)
        found.append((averaged.state_dict(), schedule.get_last_lr()))
    assert list(found[1][0]) == list(found[0][0])
    for key, value in found[0][0].items():
        close(found[1][0][key], value, 1e-5, key)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-12)


