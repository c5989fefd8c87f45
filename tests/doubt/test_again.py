"""GRAPHC_CHECK=3 on what is right: nothing is found, nothing changes, and segments say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphc as torch
from graphc import config, nn
from graphc.doubt.again import StaleVersionError
from graphc.engine.version.guards import Asked
from graphc.nn import functional as F

LAST = None


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    torch.manual_seed(0)
    with config.override(check=3):
        yield


def training() -> Callable[[Any], Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
    steps = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(steps, lambda n: 1 / (n + 1))
    log: dict[str, Any] = {"steps": 0, "losses": []}

    def step(x: Any) -> Any:
        steps.zero_grad()
        loss = F.mse_loss(model(x), x[:, :2])
        loss.backward()
        steps.step()
        schedule.step()
        log["steps"] += 1
        log["last"] = loss.detach()
        return loss, log["steps"]

    return step


def growing() -> Callable[[Any], Any]:
    cache: list[Any] = [None]

    def step(x: Any) -> Any:
        cache[0] = x if cache[0] is None else torch.cat([cache[0], x])
        return cache[0].sum(0)

    return step


def rotating() -> Callable[[Any], Any]:
    a, b = torch.zeros(4), torch.ones(4)

    def step(x: Any) -> Any:
        nonlocal a, b
        a, b = b, a + x.sum(0)
        return a

    return step


def writing() -> Callable[[Any], Any]:
    state: dict[str, Any] = {"mode": "first", "seen": []}

    def step(x: Any) -> Any:
        state["mode"] = "second"  # there already, from the second call on
        state["input"] = x
        return x * 2, {"mode": state["mode"], "same": x}

    return step


def drawing() -> Callable[[Any], Any]:
    weight = torch.ones(4, requires_grad=True)

    def step(x: Any) -> Any:
        global LAST
        LAST = x.detach()
        return F.dropout(x * weight, 0.5) + torch.rand(4)

    return step


def in_segments() -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        y = x.exp().sum()
        return (x + 1).cos() if y.item() > 0 else x

    return step


MAKERS = [training, growing, rotating, writing, drawing]


@pytest.mark.parametrize("make", MAKERS)
def test_right_versions_pass_and_give_what_they_give_without(make: Callable[[], Any]) -> None:
    results = []
    for level in (0, 3):
        torch.manual_seed(1)
        with config.override(check=level):
            step = torch.compile(make())
            results.append([step(torch.randn(3 + i // 3, 4)) for i in range(6)])
        assert step.segments is None and step.compile_count < 5
    flat = [torch.utils._pytree.tree_leaves(side) for side in results]
    for a, b in zip(*flat, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_numbers_and_sizes_that_vary() -> None:
    step = torch.compile(lambda x, rate, power: x.exp() * rate + x.shape[0] ** power)
    for i in range(6):
        step(torch.randn(2 + i, 3), 0.5 * i, i)
    assert step.segments is None


def test_a_model_alone_with_its_backward_outside() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()


def test_it_says_what_it_does_not_see_of_segments() -> None:
    step = torch.compile(in_segments())
    with pytest.warns(UserWarning, match="GRAPHC_CHECK=3: compiled step") as said:
        for _ in range(3):
            step(torch.randn(2, 4))
    mine = [str(w.message) for w in said if "GRAPHC_CHECK" in str(w.message)]
    assert len(mine) == 1 and "the values of each compiled segment" in mine[0]
    assert "test_again.py" in mine[0] and "item()" in mine[0]


def test_the_python_that_raises_now_is_named() -> None:
    table = {"a": 1.0}

    def step(x: Any) -> Any:
        return x * table["a"]

    compiled = torch.compile(step)
    compiled(torch.ones(2))
    guards = compiled.version(torch.ones(2)).guards
    guards.records = [guard for guard in guards.records if guard.asked is not Asked.STATE]
    guards.seal()
    del table["a"]
    with pytest.raises(StaleVersionError, match="no such graph any more: 'a'"):
        compiled(torch.ones(2))
    assert table == {}
