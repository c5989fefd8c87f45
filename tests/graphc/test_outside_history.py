"""A backward pass inside a compiled function on a loss whose history began before the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.errors import TraceError
from tests.graphc.scenario import compare, identity, run
from tests.reference import torch

CASES: dict[str, Callable[[Any, Any], Any]] = {}


def case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A script of (torch, compile) that gives what a user would look at after three calls."""
    CASES[function.__name__] = function
    return function


def leaves(torch: Any, k: int) -> tuple[Any, Any]:
    """Two leaves whose values differ from call to call."""
    base = torch.arange(6.0).reshape(2, 3) / 5 + k
    return base.clone().requires_grad_(), (base - 2).sin().detach().requires_grad_()


@case
def a_loss_as_argument(torch: Any, compile: Any) -> Any:
    step = compile(lambda loss: loss.backward())
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        step((w * v).square().sum())
        found += [w.grad, v.grad]
    return found


@case
def an_argument_and_something_computed_from_it(torch: Any, compile: Any) -> Any:
    def step(h, w):
        loss = (h * w).sum() + h.exp().mean()
        loss.backward()
        return loss

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        found += [step(w * v, w).detach(), w.grad, v.grad]
    return found


@case
def captured_history(torch: Any, compile: Any) -> Any:
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        h = w.sin() * v

        @compile
        def step(x, h=h):
            (x * h).sum().backward()

        step(torch.full((3,), 2.0 + k))
        found += [w.grad, v.grad]
    return found


@case
def captured_in_an_attribute(torch: Any, compile: Any) -> Any:
    class Holder:
        pass

    holder = Holder()

    @compile
    def step(x):
        (holder.h * x).sum().backward()

    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        holder.h = w * v
        step(torch.full((3,), 2.0 + k))
        found += [w.grad, v.grad]
    return found


@case
def two_losses_that_share_history(torch: Any, compile: Any) -> Any:
    def step(a, b):
        torch.autograd.backward([a.sum(), (a * b).mean()])

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        h = w * v
        step(h.cos(), h.exp())
        found += [w.grad, v.grad]
    return found


@case
def retain_graph(torch: Any, compile: Any) -> Any:
    def step(h):
        loss = h.square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        found += [step(w * v).detach(), w.grad, v.grad]
    return found


@case
def a_second_backward_through_freed_history(torch: Any, compile: Any) -> Any:
    step = compile(lambda h: h.square().sum().backward())
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        h = w * v
        step(h)
        try:
            step(h)
            found.append("no error")
        except RuntimeError as error:
            found.append("a second time" in str(error))
        found += [w.grad, v.grad]
    return found


@case
def inputs_of_backward(torch: Any, compile: Any) -> Any:
    def step(h, w):
        (h * w).sum().backward(inputs=[w])

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        step(w.exp() * v, w)
        found += [w.grad, v.grad]
    return found


@case
def grad_of_an_outside_leaf(torch: Any, compile: Any) -> Any:
    step = compile(lambda h, w: torch.autograd.grad((h * w).sum(), [w])[0])
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        found += [step(w.exp() * v, w), w.grad]
    return found


@case
def grad_of_an_outside_leaf_that_only_history_reaches(torch: Any, compile: Any) -> Any:
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        step = compile(lambda h, w=w: torch.autograd.grad(h.square().sum(), [w])[0])
        found += [step(w.exp() * v)]
    return found


@case
def grad_of_two_arguments_one_made_from_the_other(torch: Any, compile: Any) -> Any:
    step = compile(lambda a, b: torch.autograd.grad((a * b).sum(), [a, b]))
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        a = w * v
        found += list(step(a, a.sin()))
    return found


@case
def create_graph(torch: Any, compile: Any) -> Any:
    def step(h, w):
        (first,) = torch.autograd.grad((h * w).square().sum(), [w], create_graph=True)
        first.square().sum().backward()
        return first.detach()

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        found += [step(w * v, w), w.grad, v.grad]
    return found


@case
def hooks_on_outside_tensors(torch: Any, compile: Any) -> Any:
    def step(h):
        (h * 3).sum().backward()

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        h = w * v
        h.register_hook(lambda g: g * 10)
        h.retain_grad()
        w.register_hook(lambda g: g + 1)
        step(h)
        found += [h.grad, w.grad, v.grad]
    return found


@case
def grad_of_a_hooked_argument(torch: Any, compile: Any) -> Any:
    step = compile(lambda h: torch.autograd.grad((h * h).sum(), [h])[0])
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        h = w * v
        h.register_hook(lambda g: g * 10)
        found += [step(h), w.grad]
    return found


@case
def hooks_registered_inside(torch: Any, compile: Any) -> Any:
    def step(h):
        h.register_hook(lambda g: g * 5)
        (h * h).sum().backward()

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        step(w * v)
        found += [w.grad, v.grad]
    return found


@case
def written_in_place_first(torch: Any, compile: Any) -> Any:
    def step(h):
        h.mul_(2)
        h.sum().backward()
        return h.detach()

    step = compile(step)
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        found += [step(w * v), w.grad, v.grad]
    return found


@case
def a_view_of_history(torch: Any, compile: Any) -> Any:
    step = compile(lambda h: h[0].square().sum().backward())
    found = []
    for k in range(3):
        w, v = leaves(torch, k)
        step((w * v).t())
        found += [w.grad, v.grad]
    return found


@case
def a_step_with_an_optimizer(torch: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    head = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)

    @compile
    def step(features):
        optimizer.zero_grad()
        loss = head(features).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    found = []
    for k in range(3):
        found.append(step(net(torch.full((4, 3), 1.0 + k))).detach())
        found += [p.detach().clone() for p in net.parameters()]
    return found


@case
def a_module_with_a_loss_from_a_compiled_model(torch: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    model = compile(net)
    finish = compile(lambda y: (y * y).sum().backward())
    found = []
    for k in range(3):
        net.zero_grad()
        finish(model(torch.full((4, 3), 0.1 + k)))
        found += [p.grad.clone() for p in net.parameters()]
    return found


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str) -> None:
    function = CASES[name]
    expected = run(lambda torch, nn, F, compile: function(torch, compile), torch, identity)
    for compile in (identity, graphc.compile):
        found = run(lambda torch, nn, F, compile: function(torch, compile), graphc, compile)
        compare(expected, found, 1e-5)


def test_one_graph_where_the_pass_ends_at_the_arguments() -> None:
    """Gradients of outside tensors alone need nothing of their history."""
    step = graphc.compile(lambda h: graphc.autograd.grad((h * h).sum(), [h])[0], fullgraph=True)
    for k in range(3):
        w = graphc.full((2,), 1.0 + k, requires_grad=True)
        h = w * 3
        np.testing.assert_allclose(step(h).numpy(), (2 * h).detach().numpy())
        assert w.grad is None


def test_fullgraph_names_the_line_and_the_cure() -> None:
    def step(h: Any) -> None:
        (h * 2).sum().backward()

    w = graphc.ones(2, requires_grad=True)
    with pytest.raises(TraceError, match="history from before the call") as caught:
        graphc.compile(step, fullgraph=True)(w * 3)
    assert __file__ in str(caught.value) and "Cure:" in str(caught.value)
    assert w.grad is None
