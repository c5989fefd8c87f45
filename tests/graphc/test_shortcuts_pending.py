"""Shortcuts while compiled backwards wait for their turn, and of views that have a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.engine import native_run
from graphc.engine.version import versions
from graphc.engine.version.saved import SavingNode

pytestmark = pytest.mark.skipif(
    native_run.native_code() is None, reason="objects of this Python are not laid out as expected"
)

Told = list[Any]


def dropout(told: Told) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh())
    model, x = torch.compile(net), torch.linspace(-1, 1, 6).reshape(2, 3)
    for _ in range(3):
        results = [model(x) for _ in range(4)]
        told += [r.tolist() for r in results]
        torch.cat([r * i for i, r in enumerate(results)]).sum().backward()
    told += [p.grad.tolist() for p in net.parameters()]
    told.append(torch.rand(2).tolist())


def statistics(told: Told) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model, x = torch.compile(net), torch.linspace(-1, 1, 6).reshape(2, 3)
    for i in range(6):
        net.eval()
        waits = model(x * i)  # its backward reads what the next call writes
        net.train()
        model(x + i)
        try:
            waits.square().sum().backward()
        except RuntimeError as error:
            told.append(str(error).split(" ")[0])
        told.append([p.grad.tolist() for p in net.parameters()])
    told.append([b.tolist() for b in net.buffers()])


def written_to(told: Told) -> None:
    w = torch.ones(3, requires_grad=True)
    kept = torch.full((3,), 2.0)

    def reads(x: Any) -> Any:
        return x * kept * w

    def writes(x: Any) -> Any:
        kept.add_(x)
        return kept.sum()

    first, second = torch.compile(reads), torch.compile(writes)
    for i in range(6):
        waits = first(torch.ones(3) * i)
        told.append(second(torch.ones(3)).item())
        try:
            waits.sum().backward()
        except RuntimeError as error:
            told.append("modified" in str(error))
        told.append(None if w.grad is None else w.grad.tolist())


def views(told: Told) -> None:
    net = nn.Sequential(nn.Tanh(), nn.Linear(3, 4))
    model, loss = torch.compile(net), torch.compile(nn.functional.mse_loss)
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    for i in range(6):
        out = model(x).view(8)
        if i == 4:
            out.mul_(2)  # the view's history is another one
        if i == 5:
            out = out.detach()
        value = loss(out, torch.zeros(8))
        told.append((value.item(), value.requires_grad))
        if value.requires_grad:
            value.backward()
        told.append([p.grad.tolist() for p in net.parameters()])


def views_of_what_is_written(told: Told) -> None:
    loss = torch.compile(nn.functional.mse_loss)
    w = torch.ones(4, requires_grad=True)
    for i in range(6):
        base = w * (i + 1)
        view = base[1:]
        if i > 3:
            base.add_(w)  # the view follows
        loss(view, torch.zeros(3)).backward()
        told.append(w.grad.tolist())


SCENES: tuple[Callable[[Told], None], ...] = (
    dropout, statistics, written_to, views, views_of_what_is_written
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@pytest.mark.usefixtures("only_the_cpu")
def test_as_the_long_way(
    scene: Callable[[Told], None], shortcut_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for none in (True, False):
        with monkeypatch.context() as patch:
            if none:
                patch.setattr(versions, "shortcut_of", lambda *given: None)
            torch.manual_seed(0)
            told: Told = []
            scene(told)
            found.append(told)
            assert not (none and shortcut_calls)
    np.testing.assert_equal(found[1], found[0])
    assert len(shortcut_calls) >= 3


def test_writes_do_not_ask_all_that_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    keep = SavingNode.keep

    def counted(self: SavingNode, storage: Any, tracked: bool) -> bool:
        nonlocal asked
        asked += 1
        return keep(self, storage, tracked)

    monkeypatch.setattr(SavingNode, "keep", counted)
    model = torch.compile(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)))
    x, count = torch.ones(2, 3), 60
    results = [model(x) for _ in range(count)]  # each writes to the generator's state
    assert asked <= 3 * count
    x.add_(1)  # read by all, the first one, too
    assert asked <= 5 * count
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        results[0].sum().backward()
