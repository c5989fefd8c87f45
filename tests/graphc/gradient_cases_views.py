"""Views across a compiled function's border: made in no_grad mode, written to, of one another."""

from __future__ import annotations

from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf

NO_GRAD = "A view was created in no_grad mode and"


@case
def a_view_of_a_leaf_in_no_grad_mode(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.no_grad():
            return x[:2]

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        v = run(x)
        found += [v.requires_grad, v.is_leaf, v.grad_fn is None]
        (v * 3).sum().backward()
        found += [v.grad, x.grad]
    return found, failure(lambda: v.mul_(2), f"{NO_GRAD} is being modified")


@case
def computed_from_a_view_in_no_grad_mode(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.no_grad():
            v = x.view(3, 1)
        return v * 3, x * 2

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        y, z = run(x)
        found.append(y.requires_grad)
        (y.sum() * z.sum()).backward()
        found.append(x.grad)
    return found


@case
def a_captured_view_in_no_grad_mode(torch: Any, compile: Any) -> Any:
    x = leaf(torch, 1.0, 2.0, 3.0)
    with torch.no_grad():
        v = x[:2]
    run, found = compile(lambda: (v * 3).sum() + (x**2).sum()), []
    for _ in range(2):
        run().backward()
        found += [v.grad, x.grad.clone()]
    v.requires_grad_()
    for _ in range(2):
        run().backward()
        found += [v.grad.clone(), x.grad.clone()]
    return found


@case
def a_view_in_no_grad_mode_after_a_write(torch: Any, compile: Any) -> Any:
    found = []
    for outside in (True, False):
        x = leaf(torch, 1.0, 2.0, 3.0)
        base = x * 1 if outside else x
        with torch.no_grad():
            v = base[:2]
            base.add_(1)
        found.append(v.requires_grad)
        found.append(failure(lambda v=v: v.is_leaf, NO_GRAD))
        found.append(failure(lambda v=v: v * 2, NO_GRAD))
        with torch.no_grad():
            found.append((v * 2).requires_grad)
    return found


@case
def a_view_whose_base_begins_to_require_a_gradient(torch: Any, compile: Any) -> Any:
    x = torch.zeros(3, dtype=torch.float64)
    v = x[:2]
    x.requires_grad_()
    return v.requires_grad, v.is_leaf, failure(lambda: v.add_(1), "a view of a leaf Variable")


@case
def a_write_to_a_view_of_another_result(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, a[:1], a.view(3, 1)

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        a, v, w = run(x)
        v.mul_(3)
        found += [a.detach().clone(), v.is_leaf, a._is_view(), v._is_view()]
        (a.sum() + v.sum() + (w**2).sum()).backward()
        found.append(x.grad)
    return found


@case
def a_write_to_what_another_result_is_a_view_of(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, a[:1]

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        a, v = run(x)
        a.mul_(3)
        (a.sum() + v.sum()).backward()
        found += [v.detach().clone(), x.grad]
    return found


@case
def a_write_to_one_of_two_views(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a[:1], a[1:]

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        v, w = run(x)
        v.mul_(3)
        (w.sum() + v.sum()).backward()
        found += [v.detach().clone(), x.grad]
    return found


@case
def a_write_with_a_gradient_to_a_view_without(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x.detach() * 2
        return a, a[:1]

    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        a, v = run(x)
        v.copy_(x[1:2] * 5)
        found += [a.requires_grad, v.requires_grad]
        (a**2).sum().backward()
        found.append(x.grad)
    return found


@case
def a_write_to_a_view_of_an_argument(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: x[:2]), []
    for _ in range(3):
        x = leaf(torch, 1.0, 2.0, 3.0)
        y = x * 1
        v = run(y)
        v.mul_(3)
        y.retain_grad()
        (y.sum() + v.sum()).backward()
        found += [y.detach().clone(), y.grad, x.grad]
    return found


@case
def a_write_in_no_grad_mode_inside(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.no_grad():
            x[:2].mul_(2)
        return (x * x).sum()

    run, found = compile(f), []
    x = leaf(torch, 1.0, 2.0, 3.0)
    for _ in range(3):
        run(x).backward()
        found += [x.detach().clone(), x.grad.clone()]
    return found


@case
def a_view_of_a_leaf_that_is_a_view(torch: Any, compile: Any) -> Any:
    """It follows the leaf, not what the leaf is a view of."""
    def f(x: Any) -> Any:
        v = x[0]
        if x.sum() > 0:
            return v, x[..., :1]
        return v * 2, x

    run, found = compile(f), []
    for size in (6, 6, 60_000):
        for _ in range(3):
            x = torch.ones(size + 4, dtype=torch.float64)[2:-2].reshape(2, -1).requires_grad_()
            v, w = run(x)
            v.sum().backward(retain_graph=True)
            found.append(x.grad.sum())
            w.sum().backward()
            found.append(x.grad[:, :2].clone())
    return found
