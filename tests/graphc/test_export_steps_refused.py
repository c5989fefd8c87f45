"""Exported training steps: what goes wrong, and hostile files of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import ExportError, export_step, load
from tests.graphc.exported_steps import (
    Trainer,
    batches,
    bits,
    made,
    plain,
    refused,
    small,
    tampered,
    trained,
)


def test_wrong_calls_change_nothing() -> None:
    net, opt = made("adamw")
    x, y = batches(1)[0]
    exported = export_step(plain(net, opt), (x, y))
    before = {name: bits(value) for name, value in exported.state_dict().items()}
    for wrong, error, text in (
        ((x,), TypeError, "needs y"),
        ((x, y, x), TypeError, "takes 2 arguments"),
        ((x.double(), y), ValueError, "x must be f32"),
        ((x[:, :, :4], y), ValueError, "x must be f32"),
        ((x.clone().requires_grad_(), y), RuntimeError, "no autograd"),
        ((x, y + 100), IndexError, "102|10[0-9]"),
    ):
        with pytest.raises(error, match=text):
            exported(*wrong)
    assert {name: bits(value) for name, value in exported.state_dict().items()} == before
    torch.manual_seed(6)
    exported.manual_seed(6)
    assert trained(exported, [(x, y)]) == trained(torch.compile(plain(net, opt)), [(x, y)])


def test_states_that_do_not_fit() -> None:
    exported = export_step(plain(*made("adamw")), batches(1)[0])
    state = exported.state_dict()
    before = {name: bits(value) for name, value in state.items()}
    step = "optimizer.state.head.bias.step"
    for change, text in (
        ({"head.bias": torch.zeros(11)}, r"head.bias has the sizes \[11\], not \[10\]"),
        ({"generator": torch.zeros(626)}, "generator is f32, not i64"),
        ({"head.bias": torch.zeros(10, dtype=torch.int64)}, "head.bias is i64, not f32"),
        ({step: "x"}, f"{step} is a str"),
        ({"more": torch.zeros(1)}, "unknown: more"),
    ):
        with pytest.raises(RuntimeError, match=text):
            exported.load_state_dict({**state, "head.weight": state["head.weight"] + 1, **change})
    with pytest.raises(RuntimeError, match=r"missing: .*head\.bias"):
        exported.load_state_dict({"conv.bias": state["conv.bias"]})
    assert {name: bits(value) for name, value in exported.state_dict().items()} == before
    exported.load_state_dict({"conv.bias": np.full(4, 0.5)}, strict=False)
    assert bits(exported.state_dict()["conv.bias"]) == np.full(4, 0.5, np.float32).tobytes()


def test_what_a_file_cannot_hold() -> None:
    """Each by its name, its line, and what to do."""
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    losses: list[Any] = []
    trainer = Trainer()
    x = torch.ones(3, 4)

    def loss_of(x: Any) -> Any:
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        return loss

    def appends(x: Any) -> None:
        losses.append(loss_of(x))

    def prints(x: Any) -> Any:
        loss = loss_of(x)
        print("a step")
        return loss

    def asks(x: Any) -> Any:
        loss = loss_of(x)
        return 1 if loss > 3 else 2

    def draws(x: Any) -> Any:
        return loss_of(x * random.random())

    def names(x: Any) -> Any:
        trainer.kind = "trained"
        return loss_of(x)

    def keeps(x: Any) -> Any:
        trainer.last = loss_of(x).detach()

    def decides(x: Any) -> Any:
        trainer.steps += 1
        return loss_of(x) if trainer.steps > 3 else loss_of(2 * x)

    def writes(x: Any) -> Any:
        loss = loss_of(x)
        x.zero_()
        return loss

    here = Path(__file__).name
    for body, name in (
        (appends, "losses"), (prints, "print"), (draws, "random"), (names, "kind"),
        (keeps, "last"), (decides, "steps"), (writes, "'x'"),
    ):
        said = refused(body, x)
        assert name in said, said
        if body in (appends, prints, names, decides):
            assert here in said, said
    assert here in refused(asks, x)
    assert losses == [] and trainer.steps == 0 and not hasattr(trainer, "kind")
    assert (x == 1).all()


def test_another_optimizers_first_step() -> None:
    """Two models, two optimizers, one step: names begin with the variables'."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 3), nn.Linear(3, 1)
    first = torch.optim.Adam(maker.parameters(), lr=0.01)
    second = torch.optim.SGD(judge.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        first.zero_grad()
        second.zero_grad()
        loss = judge(maker(x)).square().mean()
        loss.backward()
        first.step()
        second.step()
        return loss

    x = torch.ones(4, 2)
    exported = export_step(step, (x,))
    names = list(exported.state_dict())
    assert {"maker.weight", "judge.bias", "first.state.maker.weight.exp_avg"} <= set(names)
    assert {"first.param_groups.0.lr", "second.param_groups.0.lr"} <= set(names)
    assert trained(exported, [(x,)] * 4) == trained(torch.compile(step), [(x,)] * 4)


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "no step": lambda m: m.update(step=None),
    "a list": lambda m: m.update(step=[]),
    "another entry": lambda m: m["step"].update(more=1),
    "calls": lambda m: m["step"].update(calls=-1),
    "a generator that is a weight": lambda m: m["kinds"].update({"0.bias": "generator"}),
    "a text as a number": lambda m: m["step"]["settings"].update(lr="0.1"),
    "an unknown source": lambda m: m["step"]["computed"].update(
        {"number.0": ["source", "nothing"]}
    ),
    "an unknown operation": lambda m: m["step"]["computed"].update({"number.0": ["eval", ["x"]]}),
    "an operation that grows": lambda m: m["step"]["computed"].update(
        {"number.0": ["lshift", ["constant", 1], ["constant", 10**9]]}
    ),
    "too deep": lambda m: m["step"]["computed"].update({"number.0": deep(300)}),
    "nothing computed": lambda m: m["step"].update(computed={}),
    "no table": lambda m: m["step"]["tables"].update(x="0.weight"),
    "a decision": lambda m: m["step"].update(decided=[{"expression": ["constant", []]}]),
    "an update of nothing": lambda m: m["step"]["updates"].update(x=["constant", 1]),
    "a result": lambda m: m["graphs"][0].update(results={"item": 1000}),
    "a computed result": lambda m: m["graphs"][0].update(results={"computed": ["source", "y"]}),
    "random": lambda m: m["step"].update(random="dice"),
    "kind": lambda m: m.update(kind="program"),
    "a write of nothing": lambda m: m["graphs"][0]["writes"].append(
        {"output": 0, "weight": "nothing"}
    ),
}


def deep(levels: int) -> Any:
    found: Any = ["constant", 1]
    for _ in range(levels):
        found = ["neg", found]
    return found


def test_hostile_manifests(tmp_path: Path) -> None:
    net, opt = small()
    export_step(plain(net, opt), batches(1)[0]).save(tmp_path / "good.gcx")
    load(tampered(tmp_path / "good.gcx", tmp_path / "same.gcx", lambda m: None))
    for name, change in HOSTILE.items():
        bad = tampered(tmp_path / "good.gcx", tmp_path / "bad.gcx", change)
        with pytest.raises(ExportError):
            load(bad)
            pytest.fail(name)


def test_a_power_that_is_too_large(tmp_path: Path) -> None:
    """What a file computes in Python is bounded as it is computed, too."""
    net, opt = small()
    x, y = batches(1)[0]
    export_step(plain(net, opt), (x, y)).save(tmp_path / "good.gcx")
    power = ["pow", ["constant", 10], ["constant", 10**9]]
    path = tampered(tmp_path / "good.gcx", tmp_path / "bad.gcx",
                    lambda m: m["step"]["computed"].update({"number.0": power}))
    with pytest.raises(ValueError, match="too large"):
        load(path)(x, y)
