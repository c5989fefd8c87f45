"""Optimizers against PyTorch's over several steps, and their machinery."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import optim as our_optim
from graphc.frontend import state_version
from tests.nn.both import SPACES, array, close

RNG = np.random.default_rng(0)
SHAPES = ((4, 3), (5,), ())
START = [RNG.standard_normal(shape) for shape in SHAPES]
GRADS = [[RNG.standard_normal(shape) for shape in SHAPES] for _ in range(12)]

OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda o, p: o.SGD(p, lr=0.1),
    "SGD momentum": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.8, nesterov=True),
    "SGD dampening": lambda o, p: o.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, maximize=True),
    "Adam": lambda o, p: o.Adam(p, lr=0.01),
    "Adam all": lambda o, p: o.Adam(
        p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, amsgrad=True, maximize=True),
    "Adam decoupled": lambda o, p: o.Adam(
        p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    "AdamW": lambda o, p: o.AdamW(p, lr=0.01),
    "AdamW amsgrad": lambda o, p: o.AdamW(p, lr=0.01, weight_decay=0.2, amsgrad=True),
    "RMSprop": lambda o, p: o.RMSprop(p, lr=0.01),
    "RMSprop all": lambda o, p: o.RMSprop(
        p, lr=0.01, alpha=0.9, weight_decay=0.1, momentum=0.7, centered=True),
    "Adagrad": lambda o, p: o.Adagrad(
        p, lr=0.1, lr_decay=0.02, weight_decay=0.1, initial_accumulator_value=0.3),
    "Adagrad fused": lambda o, p: o.Adagrad(p, lr=0.1, fused=True),
    "Adadelta": lambda o, p: o.Adadelta(p, lr=0.5),
    "Adadelta all": lambda o, p: o.Adadelta(
        p, lr=0.5, rho=0.8, eps=1e-5, weight_decay=0.1, maximize=True),
    "Adamax": lambda o, p: o.Adamax(p, lr=0.01),
    "Adamax all": lambda o, p: o.Adamax(
        p, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1, maximize=True),
    "NAdam": lambda o, p: o.NAdam(p, lr=0.01),
    "NAdam all": lambda o, p: o.NAdam(
        p, lr=0.01, weight_decay=0.1, momentum_decay=6e-3, decoupled_weight_decay=True),
    "RAdam": lambda o, p: o.RAdam(p, lr=0.01),
    "RAdam all": lambda o, p: o.RAdam(p, lr=0.01, betas=(0.9, 0.8), weight_decay=0.1),
    "RAdam decoupled": lambda o, p: o.RAdam(
        p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, maximize=True),
    "ASGD": lambda o, p: o.ASGD(p, lr=0.1),
    "ASGD all": lambda o, p: o.ASGD(p, lr=0.1, lambd=0.01, alpha=0.6, t0=3, weight_decay=0.1),
    "Rprop": lambda o, p: o.Rprop(p, lr=0.01),
    "Rprop all": lambda o, p: o.Rprop(
        p, lr=0.1, etas=(0.3, 1.5), step_sizes=(1e-3, 0.2), maximize=True),
    "Adafactor": lambda o, p: o.Adafactor(p, lr=0.1),
    "Adafactor all": lambda o, p: o.Adafactor(
        p, lr=0.1, beta2_decay=-0.6, eps=(1e-8, 1e-2), d=1.5, weight_decay=0.1, maximize=True),
    "Muon": lambda o, p: o.Muon([p[0]], lr=0.1),
    "Muon all": lambda o, p: o.Muon(
        [p[0]], lr=0.1, weight_decay=0.0, momentum=0.5, nesterov=False,
        adjust_lr_fn="match_rms_adamw"),
    "groups": lambda o, p: o.SGD(
        [{"params": p[:1], "lr": 0.5}, {"params": p[1:], "momentum": 0.9}], lr=0.1),
}


def numbers(array: Any, dtype: str) -> Any:
    """A copy of an array in a dtype; a complex one has two halves that differ."""
    scale = 0.7 - 0.4j if dtype.startswith("complex") else 1.0
    return np.asarray(np.array(array) * scale, dtype)


def parameters(s: Any, dtype: str) -> list[Any]:
    """The same leaves on either package."""
    return [s.nn.Parameter(s.torch.from_numpy(numbers(a, dtype))) for a in START]


def step(s: Any, params: list[Any], optimizer: Any, number: int, dtype: str) -> None:
    """One step with given gradients; the second parameter has none in step 3."""
    for i, (p, g) in enumerate(zip(params, GRADS[number], strict=True)):
        p.grad = None if i == 1 and number == 3 else s.torch.from_numpy(numbers(g, dtype))
    optimizer.step()


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str, dtype: str) -> None:
    if dtype.startswith("complex") and name.startswith(("Adafactor", "Muon", "Adagrad fused")):
        pytest.skip("takes real parameters alone, as torch's")
    made = [parameters(s, dtype) for s in SPACES]
    optimizers = [
        OPTIMIZERS[name](s.torch.optim, p) for s, p in zip(SPACES, made, strict=True)
    ]
    for number in range(10):
        for s, params, optimizer in zip(SPACES, made, optimizers, strict=True):
            step(s, params, optimizer, number, dtype)
        tolerance = 1e-12 if dtype in ("float64", "complex128") else 1e-5
        close(made[1], made[0], tolerance, f"step {number}")
    theirs, ours = (o.state_dict() for o in optimizers)
    assert ours["param_groups"][0].keys() == theirs["param_groups"][0].keys()
    assert ours["state"].keys() == theirs["state"].keys()
    for key, want in theirs["state"].items():
        assert ours["state"][key].keys() == want.keys()
        for part, value in want.items():
            close(ours["state"][key][part], value, 1e-5, part)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_counts_in_float64_where_that_is_the_default(name: str) -> None:
    found = []
    for s in SPACES:
        before = s.torch.get_default_dtype()
        s.torch.set_default_dtype(s.torch.float64)
        try:
            params = parameters(s, "float64")
            optimizer = OPTIMIZERS[name](s.torch.optim, params)
            for number in range(6):
                step(s, params, optimizer, number, "float64")
        finally:
            s.torch.set_default_dtype(before)
        found.append((params, optimizer.state_dict()["state"]))
    (wanted, theirs), (params, ours) = found
    close(params, wanted, 1e-14)
    for key, want in theirs.items():
        for part, value in want.items():
            assert str(getattr(ours[key][part], "dtype", 0)) == str(getattr(value, "dtype", 0))
            close(ours[key][part], value, 1e-14, part)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_repr(name: str) -> None:
    theirs, ours = (OPTIMIZERS[name](s.torch.optim, parameters(s, "float32")) for s in SPACES)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resume(name: str) -> None:
    s = SPACES[1]
    params = parameters(s, "float32")
    optimizer = OPTIMIZERS[name](s.torch.optim, params)
    for number in range(4):
        step(s, params, optimizer, number, "float32")
    state = copy.deepcopy(optimizer.state_dict())
    twins = [s.nn.Parameter(p.detach().clone()) for p in params]
    other = OPTIMIZERS[name](s.torch.optim, twins)
    other.param_groups[0]["lr"] = 7.0
    other.load_state_dict(state)
    for number in range(4, 8):
        step(s, params, optimizer, number, "float32")
        step(s, twins, other, number, "float32")
    for a, b in zip(params, twins, strict=True):
        np.testing.assert_array_equal(array(a), array(b))


@pytest.mark.parametrize("name", ["Adam", "SGD momentum"])
def test_deepcopy_is_independent(name: str) -> None:
    s = SPACES[1]
    params = parameters(s, "float64")
    optimizer = OPTIMIZERS[name](s.torch.optim, params)
    step(s, params, optimizer, 0, "float64")
    twins, twin = copy.deepcopy((params, optimizer))
    assert twin.param_groups[0]["params"][0] is twins[0]
    step(s, twins, twin, 1, "float64")
    step(s, params, optimizer, 1, "float64")
    close_arrays(params, twins)


def close_arrays(a: list[Any], b: list[Any]) -> None:
    """Assert equal values."""
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(array(x), array(y))


def test_errors() -> None:
    def texts(s: Any) -> list[str]:
        o, p = s.torch.optim, parameters(s, "float32")
        adam = o.Adam(p)
        found = []
        for action in (
            lambda: o.SGD([], lr=0.1),
            lambda: o.SGD(p, lr=-1.0),
            lambda: o.SGD(p, lr=0.1, nesterov=True),
            lambda: o.Adam(p, betas=(1.0, 0.9)),
            lambda: o.Adam(p, eps=-1.0),
            lambda: o.SGD([3], lr=0.1),
            lambda: o.SGD([p[0] * 2], lr=0.1),
            lambda: adam.add_param_group({"params": p[:1]}),
            lambda: adam.load_state_dict({"state": {}, "param_groups": []}),
            lambda: adam.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]}),
        ):
            with pytest.raises((ValueError, TypeError)) as info:
                action()
            found.append(f"{type(info.value).__name__}: {info.value}")
        return found

    theirs, ours = (texts(s) for s in SPACES)
    assert [t.split(",")[0] for t in ours] == [t.split(",")[0] for t in theirs]


def test_closure_hooks_and_zero_grad() -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []
        p = s.nn.Parameter(s.torch.ones(2))
        optimizer = s.torch.optim.SGD([p], lr=0.5)
        before = optimizer.register_step_pre_hook(lambda o, a, k: told.append("pre"))
        optimizer.register_step_post_hook(lambda o, a, k: told.append("post"))

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        told.append(optimizer.step(closure).item())
        before.remove()
        optimizer.zero_grad(set_to_none=False)
        told.append(p.grad.tolist())
        optimizer.step()
        optimizer.zero_grad()
        told.append(p.grad)
        optimizer.add_param_group({"params": [s.nn.Parameter(s.torch.ones(1))], "lr": 2.0})
        return [*told, p.tolist(), [g["lr"] for g in optimizer.param_groups]]

    theirs, ours = (script(s) for s in SPACES)
    assert ours == theirs


def test_lr_as_tensor() -> None:
    found = []
    for s in SPACES:
        p = s.nn.Parameter(s.torch.ones(2, dtype=s.torch.float64))
        optimizer = s.torch.optim.SGD([p], lr=s.torch.tensor(0.5, dtype=s.torch.float64))
        p.grad = s.torch.ones(2, dtype=s.torch.float64)
        optimizer.step()
        optimizer.param_groups[0]["lr"].fill_(0.25)
        optimizer.step()
        found.append(array(p))
    np.testing.assert_allclose(found[1], found[0])


def test_own_optimizer() -> None:
    class Sign(our_optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @SPACES[1].torch.no_grad()  # torch, too, leaves that to who writes the step
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["count"] = state.get("count", 0) + 1
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    s = SPACES[1]
    p = s.nn.Parameter(s.torch.zeros(2))
    optimizer = Sign([p], 0.5)
    p.grad = s.torch.tensor([2.0, -3.0])
    optimizer.step()
    assert p.tolist() == [-0.5, 0.5]
    assert optimizer.state_dict()["state"] == {0: {"count": 1}}


@pytest.mark.parametrize(("write", "counted"), [
    (lambda o: o.param_groups[0].__setitem__("lr", 0.5), False),  # a run-time input
    (lambda o: o.param_groups[0].__setitem__("betas", (0.5, 0.5)), False),
    (lambda o: o.param_groups[0].__setitem__("lr", 1), True),
    (lambda o: o.param_groups[0].__setitem__("amsgrad", True), True),
    (lambda o: o.param_groups[0].update(maximize=True), True),
    (lambda o: o.state.clear(), True),
    (lambda o: next(iter(o.state.values())).pop("exp_avg"), True),
    (lambda o: o.load_state_dict(o.state_dict()), True),
    (lambda o: o.add_param_group({"params": [SPACES[1].nn.Parameter(
        SPACES[1].torch.ones(1))]}), True),
])
def test_writes_are_counted(write: Callable[[Any], Any], counted: bool) -> None:
    s = SPACES[1]
    params = parameters(s, "float32")
    optimizer = s.torch.optim.Adam(params, lr=0.1)
    step(s, params, optimizer, 0, "float32")
    before = state_version.current()
    write(optimizer)
    assert (state_version.current() > before) == counted


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_added_later(name: str) -> None:
    made = [parameters(s, "float32") for s in SPACES]
    added = [parameters(s, "float32")[:1] for s in SPACES]
    for s, params, more in zip(SPACES, made, added, strict=True):
        optimizer = OPTIMIZERS[name](s.torch.optim, params)
        for number in range(6):
            if number == 3:
                optimizer.add_param_group({"params": more, "lr": 0.2})
            for p in more:
                p.grad = s.torch.from_numpy(numbers(GRADS[number][0], "float32"))
            step(s, params, optimizer, number, "float32")
    close(made[1], made[0], 1e-5, "those from the start")
    close(added[1], added[0], 1e-5, "those added")


@pytest.mark.parametrize(("name", "options", "steps"), [
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}, 2), ("Adam", {"lr": 0.1, "weight_decay": 0.1}, 2),
    ("Adam", {"lr": 0.1, "amsgrad": True}, 1), ("AdamW", {"lr": 0.1}, 2),
    ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.5}, 1), ("RMSprop", {"lr": 0.1}, 2),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}, 2), ("Adadelta", {"weight_decay": 0.1}, 2),
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1}, 2), ("Rprop", {"lr": 0.1}, 1),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}, 2),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1}, 2), ("Adamax", {"lr": 0.1}, 1),
])
def test_differentiable_steps(name: str, options: dict[str, Any], steps: int) -> None:
    """The update is on the tape: a loss of updated parameters reaches what they were made of."""
    found = []
    for m in (torch, graphc):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        w = x.clone()
        optimizer = getattr(m.optim, name)([w], differentiable=True, **options)
        for k in range(steps):
            w.grad = (x * (k + 1)).sin()
            optimizer.step()
        assert w.grad_fn is not None
        w.square().sum().backward()
        found.append((w, x.grad))
    for want, have in zip(*found, strict=True):
        close(have, want, 1e-4)


def test_hooks_of_steps_see_and_change_their_arguments() -> None:
    """The optimizer is the first of them."""
    told = []
    for m in (torch, graphc):
        w = m.nn.Parameter(m.ones(2))
        w.grad = m.ones(2)
        optimizer = m.optim.SGD([w], lr=0.1)
        seen: list[Any] = []

        def before(o: Any, args: Any, kwargs: Any, seen: list[Any] = seen) -> Any:
            seen.append([len(args), args[0] is o, sorted(kwargs)])
            return (o, lambda: 5), {}

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(
            lambda o, args, kwargs, seen=seen: seen.append([len(args), args[0] is o, kwargs]))
        told.append([seen, optimizer.step(closure=lambda: 3), w.tolist()])
    assert told[0] == told[1]
