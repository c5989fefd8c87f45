"""Gradients of gradients through compiled functions, and gradients that are there, or not yet."""

from __future__ import annotations

from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf


@case
def create_graph_past_a_detached_value(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x.detach() * x).sum()), []
    for k in range(2):
        x = leaf(torch, 1.0, 2.0 + k)
        (g,) = torch.autograd.grad(run(x), x, create_graph=True)
        found += [g.detach(), g.requires_grad]
    return found


@case
def create_graph_past_a_value_in_no_grad_mode(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.no_grad():
            norm = (x * x).sum().sqrt()
        return (x * x * x / norm).sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k)
        (g,) = torch.autograd.grad(run(x), x, create_graph=True)
        found += [g.detach(), *torch.autograd.grad(g.sum(), x)]
    return found


@case
def a_gradient_penalty(torch: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    run, found = compile(net), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k).detach().reshape(1, 2).requires_grad_()
        (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        net.zero_grad()
        ((g.norm() - 1) ** 2 + run(x).sum()).backward()
        found += [p.grad.clone() for p in net.parameters()]
    return found


@case
def third_order(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x**4 + x.sin()).sum()), []
    for k in range(2):
        x = leaf(torch, 1.0, 2.0 + k)
        g = run(x)
        for _ in range(3):
            (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
            found.append(g.detach())
    return found


@case
def a_hessian(torch: Any, compile: Any) -> Any:
    run = compile(lambda x: (x.prod() + (x**3).sum()).exp().log())
    x = leaf(torch, 1.0, 2.0, 3.0)
    functional = torch.autograd.functional
    return functional.hessian(run, x), functional.jacobian(run, x), torch.autograd.functional.vhp(
        run, x.detach(), torch.ones(3, dtype=torch.float64)
    )


@case
def create_graph_after_a_write_to_a_parameter(torch: Any, compile: Any) -> Any:
    run = compile(lambda x, w: (x * w).sum())
    x, w = leaf(torch, 1.0), leaf(torch, 3.0)
    y = run(x, w)
    with torch.no_grad():
        w.add_(1)
    return failure(
        lambda: torch.autograd.grad(y, x, create_graph=True), "modified by an inplace operation"
    )


@case
def create_graph_after_a_write_that_no_rule_reads(torch: Any, compile: Any) -> Any:
    run = compile(lambda x, b: (x**3 + b).sum())
    x, b = leaf(torch, 2.0), leaf(torch, 3.0)
    y = run(x, b)
    with torch.no_grad():
        b.add_(1)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g.detach(), torch.autograd.grad(g, x)


@case
def create_graph_through_a_leaf_made_inside(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        leaf = (x * 2).detach().requires_grad_()
        (g,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
        penalty = (g**2).sum()
        penalty.item()
        return torch.autograd.grad(penalty, leaf)

    run = compile(f)
    return [run(leaf(torch, 1.0, float(k))) for k in range(3)]


@case
def in_segments(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        h = x.detach() * x * x
        if h.sum().item() > 1e9:
            return x
        return (h * x).sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k)
        (g,) = torch.autograd.grad(run(x), x, create_graph=True)
        found += [g.detach(), *torch.autograd.grad(g.sum(), x)]
    return found


def steps(torch: Any, compile: Any, order: str, set_to_none: bool) -> Any:
    """Three optimizers whose step() ("s"), zero_grad() ("z") and backward() ("b") come so."""
    found = []
    for kind, options in (
        ("SGD", {"weight_decay": 0.1}), ("SGD", {"momentum": 0.9, "weight_decay": 0.01}),
        ("AdamW", {"weight_decay": 0.1}),
    ):
        w, v = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, 1.0)
        optimizer = getattr(torch.optim, kind)([w, v], lr=0.1, **options)

        def step(x: Any, both: bool, w: Any = w, v: Any = v, o: Any = optimizer) -> None:
            for letter in order:
                if letter == "s":
                    o.step()
                elif letter == "z":
                    o.zero_grad(set_to_none=set_to_none)
                else:
                    loss = ((w * x) ** 2).sum()
                    (loss + (v * x).sum() if both else loss).backward()

        run = compile(step)
        for k in range(4):
            run(torch.ones(2, dtype=torch.float64) * (k + 1), k % 2 == 1)
            found += [w.detach().clone(), v.detach().clone(), v.grad is None, len(optimizer.state)]
    return found


@case
def a_step_before_the_first_backward(torch: Any, compile: Any) -> Any:
    return [steps(torch, compile, order, True) for order in ("szb", "sb", "zsb")]


@case
def a_step_before_the_first_backward_with_zeros(torch: Any, compile: Any) -> Any:
    return [steps(torch, compile, order, False) for order in ("szb", "sbz", "zsb")]


@case
def the_usual_orders_of_a_step(torch: Any, compile: Any) -> Any:
    zeros = (True, False)
    return [steps(torch, compile, order, zero) for order in ("zbs", "bsz") for zero in zeros]
