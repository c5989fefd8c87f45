"""Gradients of what a compiled function returns: hooks, retain_grad, grad(), writes."""

from __future__ import annotations

from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf


def chain(x: Any, w: Any) -> Any:
    """Three results, each computed from the one before."""
    a = x * w
    b = (a * a).sin()
    return a, b, (b * 3 + a).sum()


@case
def retain_grad_on_what_another_result_was_computed_from(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        a.retain_grad()
        c.backward()
        found += [a.grad, b.grad if b.retains_grad else 0, x.grad, w.grad, a.retains_grad]
    return found


@case
def retain_grad_on_several(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        results = run(x, w)
        for t in results:
            t.retain_grad()
        results[2].backward()
        found += [t.grad for t in (*results, x, w)]
    return found


@case
def a_hook_that_looks(torch: Any, compile: Any) -> Any:
    run, seen = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        a.register_hook(lambda g: seen.append(("a", g.clone())))
        b.register_hook(lambda g: seen.append(("b", g.clone())))
        c.register_hook(lambda g: seen.append(("c", g.clone())))
        (c * 2).backward()
        seen.extend((x.grad, w.grad))
    return seen


@case
def a_hook_that_changes_the_gradient(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        a.register_hook(lambda g: g * 10)
        b.register_hook(lambda g: -g)
        a.retain_grad()
        c.backward()
        found += [a.grad, x.grad, w.grad]
    return found


@case
def a_hook_in_some_calls_only(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(5):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        _a, b, c = run(x, w)
        if k % 2:
            b.register_hook(lambda g: g * 2)
        c.backward()
        found += [x.grad, w.grad]
    return found


@case
def a_hook_that_is_removed(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, b, c = run(x, w)
    first = a.register_hook(lambda g: g * 2)
    second = b.register_hook(lambda g: g * 5)
    for handle in (None, first, second):
        if handle is not None:
            handle.remove()
        x.grad = None
        c.backward(retain_graph=True)
        found.append(x.grad)
    return found


@case
def a_hook_registered_between_backward_calls(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, b, c = run(x, w)
    c.backward(retain_graph=True)
    first = x.grad.clone()
    b.register_hook(lambda g: g * 2)
    c.backward(retain_graph=True)
    second = x.grad.clone()
    a.register_hook(lambda g: g + 1)
    a.retain_grad()
    c.backward()
    return first, second, x.grad, w.grad, a.grad, failure(c.backward, "second time")


@case
def two_hooks_in_order(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, _b, c = run(x, w)
    a.register_hook(lambda g: g + 1)
    a.retain_grad()
    a.register_hook(lambda g: g * 3)
    c.backward()
    return a.grad, x.grad


@case
def grad_of_one_result_with_regard_to_another(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        found += torch.autograd.grad(c, a, retain_graph=True)
        found += torch.autograd.grad(c, (b, a, x), retain_graph=True)
        found += torch.autograd.grad(b.sum(), a, retain_graph=True)
    found.append(failure(lambda: torch.autograd.grad(a.sum(), b), "appears to not have been"))
    return found


@case
def grad_of_a_result_with_regard_to_itself(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, _b, c = run(x, w)
    return torch.autograd.grad((a * a).sum() + c, a)


@case
def grad_of_grad_with_regard_to_a_result(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, _b, c = run(x, w)
        (ga,) = torch.autograd.grad(c, a, create_graph=True)
        found += torch.autograd.grad(ga.sum(), a, retain_graph=True)
        (ga**2).sum().backward()
        found += [ga.detach(), x.grad, w.grad]
    return found


@case
def a_hook_in_a_second_backward(torch: Any, compile: Any) -> Any:
    run, seen = compile(chain), []
    for k in range(2):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, _b, c = run(x, w)
        a.register_hook(lambda g: seen.append(g.detach().clone()) or g * 2)
        (gx,) = torch.autograd.grad(c, x, create_graph=True)
        gx.sum().backward()
        seen.extend((x.grad, w.grad))
    return seen


@case
def backward_with_inputs_that_are_results(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, _b, c = run(x, w)
    a.retain_grad()
    c.backward(inputs=[a, w])
    return a.grad, x.grad is None, w.grad


@case
def backward_with_inputs_twice(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, b, c = run(x, w)
    c.backward(inputs=[a], retain_graph=True)
    first = a.grad.clone()
    c.backward(inputs=[x, a], retain_graph=True)
    c.backward()
    return first, a.grad, x.grad, w.grad, a.retains_grad, b.retains_grad


@case
def retain_grad_moves_with_a_write(torch: Any, compile: Any) -> Any:
    found = []
    for inside in (True, False):

        def f(x: Any, inside: bool = inside) -> Any:
            a = x * 2
            a.retain_grad()
            if inside:
                a.mul_(3)
            return a

        run = compile(f)
        x = leaf(torch, 1.0, 2.0)
        a = run(x)
        if not inside:
            a.retain_grad()
            a[:1].mul_(3)
        a.sum().backward()
        found += [a.grad, x.grad, a.retains_grad]
    return found


@case
def a_gradient_from_outside_and_one_from_inside(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        a.retain_grad()
        ((a**2).sum() * b.sum() + c).backward()
        found += [a.grad, x.grad, w.grad]
    return found


@case
def a_missing_gradient_is_no_zero(torch: Any, compile: Any) -> Any:
    run = compile(lambda x: (x.log(), x * 2, x.sqrt()))
    found = []
    for which in (1, 0, 2):
        x = leaf(torch, 0.0, 2.0)
        run(x)[which].sum().backward()
        found.append(x.grad)
    return found


@case
def a_result_without_a_path_leaves_no_gradient(torch: Any, compile: Any) -> Any:
    run = compile(lambda x, w: (x * 2, w * 0, w * 3))
    x, w = leaf(torch, 1.0), leaf(torch, 2.0)
    a, b, _c = run(x, w)
    a.sum().backward(retain_graph=True)
    first = w.grad is None
    b.sum().backward()
    return x.grad, first, w.grad


@case
def retain_graph_twice(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, b, c = run(x, w)
    a.retain_grad()
    c.backward(retain_graph=True)
    b.sum().backward(retain_graph=True)
    c.backward()
    return a.grad, x.grad, w.grad, failure(c.backward, "second time")


@case
def a_write_to_a_result(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, (a + 1).sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k)
        a, b = run(x)
        a.mul_(3)
        a.retain_grad()
        (a.sum() + b).backward()
        found += [a.grad, x.grad]
    return found


@case
def a_write_to_a_result_after_a_hook(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, (a + 1).sum()

    run = compile(f)
    x = leaf(torch, 1.0, 2.0)
    a, b = run(x)
    seen = []
    a.register_hook(lambda g: seen.append(g.clone()))
    a.mul_(3)
    a.register_hook(lambda g: seen.append(g.clone()))
    (a.sum() + b).backward()
    return seen, x.grad


@case
def a_write_to_a_result_that_the_gradient_needs(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x.exp()
        return a, (a * 2).sum()

    run = compile(f)
    x = leaf(torch, 1.0, 2.0)
    a, b = run(x)
    a.add_(1)
    return failure(b.backward, "modified by an inplace operation")


@case
def a_write_to_a_result_that_no_gradient_needs(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, a.exp().sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k)
        a, b = run(x)
        with torch.no_grad():
            a.zero_()
        b.backward()
        found.append(x.grad)
    return found


@case
def detach_of_a_result_in_place(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, (a + 1).sum()

    run = compile(f)
    x = leaf(torch, 1.0, 2.0)
    a, b = run(x)
    a.detach_()
    (a.sum() + b).backward()
    return a.requires_grad, a.is_leaf, x.grad


@case
def a_detached_result_hooked(torch: Any, compile: Any) -> Any:
    run = compile(lambda x: (x * 2, (x * 2).detach()))
    x = leaf(torch, 1.0)
    a, d = run(x)
    d.requires_grad_()
    d.register_hook(lambda g: g * 5)
    (a * d).sum().backward()
    return x.grad, d.grad


@case
def views_of_a_result(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = x * 2
        return a, a[:1], (a**2).sum()

    run, found = compile(f), []
    for k in range(3):
        x = leaf(torch, 1.0, 2.0 + k)
        a, v, c = run(x)
        a.retain_grad()
        v.retain_grad()
        (c + v.sum()).backward()
        found += [a.grad, v.grad, x.grad]
    return found


@case
def walking_the_history(torch: Any, compile: Any) -> Any:
    run = compile(lambda x: x * 2)
    x = leaf(torch, 1.0)
    y = run(x)
    met, node = 0, y.grad_fn
    while node is not None and met < 9:
        met += 1
        last, node = node, node.next_functions[0][0] if node.next_functions else None
    return last.variable is x, y.is_leaf, y.requires_grad


@case
def a_gradient_edge(torch: Any, compile: Any) -> Any:
    run = compile(chain)
    x, w = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0)
    a, _b, c = run(x, w)
    place = torch.autograd.graph.get_gradient_edge(a)
    return torch.autograd.grad(c, [place, x])


@case
def hidden_states_and_a_loss_of_a_module(torch: Any, compile: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4).double(), torch.nn.Linear(4, 2).double()

        def forward(self, x: Any) -> Any:
            h = self.a(x).tanh()
            return h, self.b(h)

    torch.manual_seed(0)
    net = Net()
    run, found = compile(net), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for k in range(4):
        x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) / 5 + k
        h, y = run(x)
        if k % 2:
            h.retain_grad()
        (y**2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        found += [h.grad if k % 2 else 0, *(p.detach().clone() for p in net.parameters())]
    return found


@case
def gradient_reversal_by_a_hook(torch: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    body, head = torch.nn.Linear(3, 4).double(), torch.nn.Linear(4, 1).double()

    def f(x: Any) -> Any:
        h = body(x).relu()
        return h, head(h).sigmoid()

    run, found = compile(f), []
    for k in range(3):
        h, y = run(torch.ones(2, 3, dtype=torch.float64) * (k + 1))
        h.register_hook(lambda g: -0.5 * g)
        y.log().mean().backward()
        found += [body.weight.grad.clone(), head.weight.grad.clone()]
    return found


@case
def symbolic_sizes(torch: Any, compile: Any) -> Any:
    run, found = compile(chain), []
    for n in (2, 3, 5, 7):
        x = (torch.arange(n, dtype=torch.float64) + 1).requires_grad_()
        w = (torch.arange(n, dtype=torch.float64) / 3).requires_grad_()
        a, b, c = run(x, w)
        a.retain_grad()
        b.register_hook(lambda g: g * 2)
        c.backward()
        found += [a.grad, x.grad, w.grad]
    return found


@case
def a_random_mask_between_results(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        a = torch.nn.functional.dropout(x * 2, 0.5)
        return a, torch.nn.functional.dropout(a * a, 0.5).sum()

    torch.manual_seed(3)
    run, found = compile(f), []
    for _ in range(3):
        x = leaf(torch, *[float(i) for i in range(16)])
        a, b = run(x)
        a.retain_grad()
        b.backward()
        found += [a.detach(), a.grad, x.grad]
    return found


@case
def batch_norm_between_results(torch: Any, compile: Any) -> Any:
    norm = torch.nn.BatchNorm1d(2).double()

    def f(x: Any) -> Any:
        a = norm(x)
        return a, (a**3).sum()

    run, found = compile(f), []
    for k in range(3):
        x = (torch.arange(6.0, dtype=torch.float64).reshape(3, 2) ** 2 + k).requires_grad_()
        a, b = run(x)
        a.retain_grad()
        b.backward()
        found += [a.grad, x.grad, norm.weight.grad.clone(), norm.running_mean.clone()]
    return found


@case
def segments_between_results(torch: Any, compile: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        h = x * w
        y = (h**3).sum()
        if y.item() > 1e9:
            return h, y, y
        return h, y, (y * h).sum()

    run, found = compile(f), []
    for k in range(3):
        x, w = leaf(torch, 1.0, 2.0 + k), leaf(torch, 1.0, 3.0)
        h, y, z = run(x, w)
        h.retain_grad()
        y.retain_grad()
        h.register_hook(lambda g: g * 2)
        z.backward()
        found += [h.grad, y.grad, x.grad, w.grad]
    return found
