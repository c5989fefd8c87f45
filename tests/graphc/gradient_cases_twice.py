"""Several results of one call, differentiated one after the other: what each pass uses up."""

from __future__ import annotations

from typing import Any

from tests.graphc.gradient_cases import case, failure, leaf


def passes(x: Any, *results: Any) -> list[Any]:
    """backward() of results in turn: what it said, and the gradient since."""
    found: list[Any] = []
    for result in results:
        found += [failure(result.backward, "second time"), None if x.grad is None else +x.grad]
    return found


@case
def results_with_nothing_in_common(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x.exp().sum(), x.sin().sum(), (x + 1).sum())), []
    for k in range(3):
        x = leaf(torch, 1.0, k + 2.0)
        a, b, c = run(x)
        a.backward(retain_graph=True)
        found += passes(x, b, a, c, a, b, c)
    return found


@case
def results_of_one_inner_value(torch: Any, compile: Any) -> Any:
    @compile
    def run(x: Any) -> Any:
        h = x.exp()
        return h.sin().sum(), h.cos().sum(), h.sum(), (x * x).sum()

    found = []
    for k in range(3):
        x = leaf(torch, 1.0, k + 2.0)
        a, b, c, d = run(x)
        b.backward(retain_graph=True)
        found += passes(x, a, b, c, d, d)
    return found


@case
def gradients_of_one_result_asked_for_in_turn(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x, w: x.exp().sum() + w.exp().sum() + (x * w).sum()), []
    for k in range(3):
        x, w = leaf(torch, 1.0, k + 2.0), leaf(torch, 3.0, -1.0)
        a = run(x, w)
        found += torch.autograd.grad(a, x)
        found.append(failure(lambda a=a, w=w: torch.autograd.grad(a, w), "second time"))
        run, other = compile(lambda x, w: x.exp().sum() + w.sin().sum()), leaf(torch, 0.5)
        a = run(x, other)
        found += [*torch.autograd.grad(a, x), *torch.autograd.grad(a, other)]
        found.append(failure(lambda a=a, x=x: torch.autograd.grad(a, x), "second time"))
    return found


@case
def the_rest_with_create_graph(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x.exp().sum(), (x.sin() * x).sum())), []
    for k in range(3):
        x = leaf(torch, 1.0, k + 2.0)
        a, b = run(x)
        a.backward()
        (first,) = torch.autograd.grad(b, x, create_graph=True)
        found += [first, *torch.autograd.grad(first.sum(), x)]
        found.append(failure(lambda a=a, x=x: torch.autograd.grad(a, x, create_graph=True)))
    return found


@case
def a_write_between_them(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x, w: (x.exp().sum(), (w * w).sum(), (x * w).sum())), []
    for k in range(4):
        x, w = leaf(torch, 1.0, k + 2.0), leaf(torch, 3.0, -1.0)
        a, b, c = run(x, w)
        a.backward()
        if k % 2:
            with torch.no_grad():
                x.add_(1)
        else:
            x.data.add_(1)
        found += [*passes(x, b, c), w.grad]
    return found


@case
def custom_functions_among_them(torch: Any, compile: Any) -> Any:
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.k = 3
            return -x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g * ctx.k

    run, found = compile(lambda x: (Saves.apply(x).sum(), Keeps.apply(x).sum())), []
    for k in range(3):
        x = leaf(torch, 1.0, k + 2.0)
        a, b = run(x)
        found += passes(x, a, b, b, a)
    return found


@case
def sizes_that_vary(torch: Any, compile: Any) -> Any:
    run, found = compile(lambda x: (x.exp().sum(), (x.sin() * x.shape[0]).sum())), []
    for n in (2, 3, 4, 5, 2):
        x = leaf(torch, *map(float, range(n)))
        a, b = run(x)
        found += passes(x, b, a, b)
    return found


@case
def results_of_a_function_in_segments(torch: Any, compile: Any) -> Any:
    @compile
    def run(x: Any) -> Any:
        if x.sum().item() > 1e6:
            return None
        h = x.exp()
        return h.sin().sum(), x.cos().sum(), h.sum(), (x + 1).sum()

    found = []
    for k in range(5):
        x = leaf(torch, *(0.001 * i for i in range(2000 + k)))
        a, b, c, d = run(x)
        b.backward(retain_graph=True)
        found += [*passes(x, a, c, b, d, d, b)]
        a, b, c, d = run(x)
        found += torch.autograd.grad(b, x, create_graph=True)
        a.backward()
        found += [failure(c.backward, "second time"), failure(d.backward), x.grad]
    return found


@case
def what_ran_inside_the_call_and_saved_nothing(torch: Any, compile: Any) -> Any:
    @compile
    def run(x: Any, w: Any) -> Any:
        s = x + w
        t = s * w
        t.sum().backward()
        return s.sum(), t.sum(), (t + w).sum()

    found = []
    for k in range(3):
        x, w = leaf(torch, 1.0, k + 2.0), leaf(torch, 3.0, -1.0)
        found += [passes(x, *run(x, w)), x.grad, w.grad]
    return found


@case
def leaves_wait_for_what_is_used_up(torch: Any, compile: Any) -> Any:
    """A leaf behind what a pass inside the call used up gets nothing where the pass ends there."""
    w, v, kept = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0), []

    @compile
    def run(x: Any) -> Any:
        kept.append(x * w)
        (v * (kept[-1] + kept[0])).sum().backward()

    found = []
    for k in range(3):
        found += [failure(lambda k=k: run(leaf(torch, k + 1.0, 0.5)), "second time"), w.grad + 0]
    found += [v.grad, len(kept)]
    return found


@case
def leaves_wait_for_a_result_that_is_used_up(torch: Any, compile: Any) -> Any:
    @compile
    def run(x: Any, w: Any) -> Any:
        s = x * w
        s.sum().backward()
        return s

    found = []
    for k in range(3):
        x, w, v = leaf(torch, 1.0, k + 2.0), leaf(torch, 3.0, -1.0), leaf(torch, 2.0, 0.5)
        s = run(x, w)
        found.append(failure((s * v + w * 2 + v * 3).sum().backward, "second time"))
        found += [x.grad, w.grad, v.grad]
        found.append(torch.autograd.grad((s * v).sum(), v)[0])
    return found


@case
def leaves_do_not_wait_for_another_result(torch: Any, compile: Any) -> Any:
    """A leaf that what is used up does not lead to gets its gradient, though a result of the same
    call led to it."""
    w, v, kept = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0), [None]

    @compile
    def run(x: Any) -> Any:
        a = x * w
        kept[0] = a if kept[0] is None else a + kept[0]
        (v * (a + kept[0])).sum().backward()

    found = []
    for k in range(4):
        w.requires_grad_(k < 2)
        found.append(failure(lambda k=k: run(torch.tensor([k + 1.0, 0.5])), "second time"))
        found += [w.grad + 0, v.grad + 0]
    return found


@case
def what_lies_before_what_is_used_up_runs(torch: Any, compile: Any) -> Any:
    """A pass that ends at what an earlier one used up has given their gradients to the leaves that
    it came to before."""
    @compile
    def run(x: Any, w: Any, v: Any) -> Any:
        a = x * w
        b = a + v
        return a.sum(), b.sum(), (b.exp() * 2).sum()

    found = []
    for k in range(3):
        for orders in ("ab", "ba", "ac", "cb", "cc"):
            x, w, v = leaf(torch, 1.0, k + 2.0), leaf(torch, 3.0, -1.0), leaf(torch, 2.0, 0.5)
            results = dict(zip("abc", run(x, w, v), strict=True))
            for each in orders:
                found.append(failure(results[each].backward, "second time"))
                found += [t.grad if t.grad is None else t.grad + 0 for t in (x, w, v)]
    return found


@case
def a_hook_on_several_leaves_in_a_pass_inside_the_call(torch: Any, compile: Any) -> Any:
    v, w, seen = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, -1.0), []
    torch.autograd.graph.register_multi_grad_hook(
        (v, w), lambda grads: seen.append([None if g is None else g.clone() for g in grads])
    )

    @compile
    def run(x: Any, both: bool) -> Any:
        loss = (v * x).sum() + ((w * x).sum() if both else 0)
        loss.backward()
        return loss.detach()

    for k in range(4):
        run(leaf(torch, k + 1.0, 0.5), k != 1)
    return [v.grad, w.grad, *[t for grads in seen for t in grads], len(seen)]


@case
def what_reads_nothing_saved_is_left(torch: Any, compile: Any) -> Any:
    @compile
    def run(x: Any) -> Any:
        h = x.exp()
        return h.sin().sum(), h.cos().sum(), h.sum(), (x * 2).sum()

    found = []
    for k in range(3):
        x = leaf(torch, 1.0, k + 2.0)
        a, b, c, d = run(x)
        a.backward(retain_graph=True)
        found += passes(x, b, a, c, d, d)
    return found
