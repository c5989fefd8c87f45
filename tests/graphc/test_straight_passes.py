"""A backward pass through compiled calls, one behind the other, gives what any pass gives: bits,
errors, hooks and what is left on the tape."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.frontend import autograd
from graphc.nn import functional as F

Scene = Callable[[Any, Any, Any, list[Any]], None]


def _made() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return torch.compile(net), torch.compile(F.mse_loss), net


def twice(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    for _ in range(2):
        loss(model(X), Y).backward()


def retained_graph(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    value = loss(model(X), Y)
    value.backward(retain_graph=True)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def given_gradient(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    gradient = torch.arange(8.0).reshape(2, 4).t()
    model(X).backward(gradient)
    told.append(gradient.tolist())
    model(X).backward(torch.ones(2).expand(4, 2))
    model(X).backward(gradient.double())
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        model(X).backward(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="scalar outputs"):
        model(X).backward()


def an_input_that_is_a_leaf(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    x = X.clone().requires_grad_()
    loss(model(x), Y).backward()
    told.append(x.grad.tolist())


def history_before(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    x = X.clone().requires_grad_()
    loss(model(x * 2), Y).backward()
    told.append(x.grad.tolist())


def operators_between(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    (loss(model(X) * 2, Y) + 1).backward()


def both_arguments(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    loss(model(X), model(X + 1)).backward()


def one_result_twice(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    out = model(X)
    loss(out, out.detach() + 1).backward(retain_graph=True)
    loss(out, out * 0).backward()


def a_leaf_on_both_sides(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    loss(model(X), net[2].bias.expand(4, 2)).backward()


def hooks(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    out = model(X)
    out.register_hook(lambda g: told.append(g.tolist()))
    loss(out, Y).backward()
    handle = net[0].weight.register_hook(lambda g: g * 2)
    loss(model(X), Y).backward()
    handle.remove()
    net[2].bias.register_post_accumulate_grad_hook(lambda p: told.append(p.grad.tolist()))
    loss(model(X), Y).backward()


def retained(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    out = model(X)
    out.retain_grad()
    loss(out, Y).backward()
    told.append(out.grad.tolist())


def frozen_later(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    for flag in (False, True):
        net[0].weight.requires_grad_(flag)
        loss(model(X), Y).backward()


def frozen_between(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    value = loss(model(X), Y)
    net[0].weight.requires_grad_(False)
    value.backward()
    net[0].weight.requires_grad_(True)


def gradients_by_hand(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    net[0].weight.grad = torch.ones(3, 4).t()  # not row-major
    net[0].bias.grad = torch.ones(4).expand(4)
    net[2].weight.grad = torch.zeros(2, 8)[:, ::2]
    kept = net[2].bias.grad = torch.full((2,), float("nan"))
    loss(model(X), Y).backward()
    told.append(kept.isnan().all().item())  # it is added in place
    net[2].bias.grad = None
    loss(model(X), Y).backward()


def gradients_that_are_held(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    loss(model(X), Y).backward()
    held = [p.grad for p in net.parameters()]
    net.zero_grad()
    loss(model(X), Y).backward()
    held[0].fill_(9.0)
    told.append([g.tolist() for g in held])


def written_in_place(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    value = loss(model(X), Y)
    with torch.no_grad():
        net[2].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        value.backward()


def chosen_inputs(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    loss(model(X), Y).backward(inputs=[net[2].weight])


def of_higher_order(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    loss(model(X), Y).backward(create_graph=True)
    told.append([p.grad.requires_grad for p in net.parameters()])


def nothing_to_do(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    with torch.no_grad():
        value = loss(model(X), Y)
    with pytest.raises(RuntimeError, match="does not require grad"):
        value.backward()


def threads(model: Any, loss: Any, net: Any, told: list[Any]) -> None:
    values = [loss(model(X + i), Y) for i in range(4)]
    for value in values:  # one at a time: sums are in one order
        thread = threading.Thread(target=value.backward)
        thread.start()
        thread.join()


X, Y = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(0, 1, 8).reshape(4, 2)
SCENES: tuple[Scene, ...] = (
    twice, retained_graph, given_gradient, an_input_that_is_a_leaf, history_before,
    operators_between, both_arguments, one_result_twice, a_leaf_on_both_sides, hooks, retained,
    frozen_later, frozen_between, gradients_by_hand, gradients_that_are_held, written_in_place,
    chosen_inputs, of_higher_order, nothing_to_do, threads,
)
PLAIN = {"twice", "an_input_that_is_a_leaf", "gradients_that_are_held", "threads", "retained_graph"}


@pytest.fixture(scope="module")
def compiled() -> tuple[Any, Any, Any]:
    made = _made()
    for _ in range(4):  # until native code asks, and runs
        made[1](made[0](X), Y).backward()
    return made


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@pytest.mark.usefixtures("only_the_cpu")
def test_scenes(
    scene: Scene, compiled: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, taken = autograd.straight_pass, list[bool]()
    before = {name: p.detach().clone() for name, p in compiled[2].named_parameters()}

    def counting(*args: Any) -> bool:
        taken.append(right(*args))
        return taken[-1]

    found = []
    for way in (lambda *args: False, counting):
        monkeypatch.setattr(autograd, "straight_pass", way)
        for name, p in compiled[2].named_parameters():
            p.data, p.grad = before[name].clone(), None
            p._graphc_post_hooks = None
        told: list[Any] = []
        scene(*compiled, told)
        grads = [None if p.grad is None else p.grad.detach() for p in compiled[2].parameters()]
        found.append((grads, told))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one.numpy(), other.numpy())
            assert one._graphc_storage.version == other._graphc_storage.version
    assert found[0][1] == found[1][1]
    assert any(taken) or scene.__name__ not in PLAIN
