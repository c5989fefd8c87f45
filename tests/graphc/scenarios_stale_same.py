"""Arguments that are one tensor, or have hooks, at some calls, and not at others."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import stale, whole


def _leaf(torch: Any, *values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


def _pairs(torch: Any, c: Any, graded: bool = True) -> list[Any]:
    """Calls with two leaves, or with one as both; what they give, and leave."""
    out = []
    for same in (False, False, True, True, False, True):
        a, b = _leaf(torch, 1.0, 2.0), _leaf(torch, 3.0, 4.0)
        if graded:
            a.grad, b.grad = torch.ones(2), torch.full((2,), 5.0)
        b = a if same else b
        out += [c(a, b), a.detach(), a.grad, b.grad]
    return out


@stale
def gradients_of_arguments_that_are_one(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def passes(x, y):
        (x * y * 3).sum().backward()
        return x.grad.clone(), y.grad.clone()

    def asked(x, y):
        return torch.autograd.grad((x * y * 3).sum(), x)[0]

    out = []
    for f, graded in ((passes, False), (passes, True), (asked, False)):
        c = compile(f)
        out += _pairs(torch, c, graded)
        whole(c, 2)
    return out


@stale
def gradients_of_an_argument_that_is_known(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The argument is also what the function finds in a variable."""
    w = _leaf(torch, 5.0, 6.0)

    @compile
    def f(x):
        (x * w * 3).sum().backward()
        return x.grad.clone(), w.grad.clone()

    out = []
    for i in range(8):
        w.grad = None
        out.append(f(w if i in (3, 4, 6) else _leaf(torch, 1.0, 2.0)))
    whole(f, 2)
    return out


@stale
def what_is_put_into_arguments_that_are_one(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def cleared(x, y):
        x.grad = None
        return y.grad is None

    def given(x, y):
        x.grad = x.detach() * 2
        return y.grad * 3

    def replaced(x, y):
        x.data = x.data * 5
        return (y * 3).detach()

    out = []
    for f in (cleared, given, replaced):
        out += _pairs(torch, compile(f))
    return out


@stale
def flags_of_arguments_that_are_one(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    @compile
    def f(x, y):
        x.requires_grad_(True)
        z = y * 2
        return z.requires_grad, z.detach()

    out = []
    for same in (False, False, True, False, True):
        a, b = torch.ones(2), torch.ones(2)
        out.append(f(a, a if same else b))
    return out


@stale
def hooks_of_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The call's own backward pass runs them; one outside runs those that it finds."""
    log: list[Any] = []

    def f(x):
        (x * 2).sum().backward()
        return x.grad.clone()

    def outside(x):
        return (x * 2).sum()

    def after(parameter):
        log.append(1)
        parameter.grad.mul_(3)

    out = []
    for hooked in ((0, 0, 0, 1, 0, 2, 1), (1, 1, 0, 0, 2, 0), (2, 0, 0, 2)):
        inner, outer = compile(f), compile(outside)
        for i, kind in enumerate(hooked):
            a, b = _leaf(torch, 1.0, 2.0), _leaf(torch, 1.0, 2.0)
            for x in (a, b):
                if kind == 1:
                    x.register_hook(lambda grad, i=i: grad * (10 + i))
                elif kind == 2:
                    x.register_post_accumulate_grad_hook(after)
            out.append(inner(a))
            outer(b).backward()
            out += [b.grad, len(log)]
    return out


@stale
def places_in_the_memory_of_an_argument(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """as_strided() counts from the start of the memory, of which an argument may be a part."""
    @compile
    def f(x):
        return x.as_strided((2,), (1,), 1) * 2

    @compile
    def g(x):
        return x.as_strided((2,), (1,)) * 2

    alone, base = torch.arange(12.0).reshape(2, 6), torch.arange(24.0).reshape(4, 6)
    given = (alone, alone, base[1:3], alone, base[2:], base[:2], alone * 3)
    return [c(x) for x in given for c in (f, g)]


@stale
def arguments_that_are_computed_from_each_other(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    """What is behind an argument, and hooks there, may differ from call to call."""
    @compile
    def of_one(x, y):
        return torch.autograd.grad((x * y * y).sum(), x)[0]

    @compile
    def of_both(x, y):
        return torch.autograd.grad((x * y * y).sum(), [x, y])

    def given(i):
        w = _leaf(torch, 1.0, 2.0)
        x, y = w * 2, _leaf(torch, 3.0, 4.0) * 2
        if i in (3, 4, 6):
            y = x * 3
        elif i == 7:
            x, y = torch.stack([w, w * 2]).unbind()
        elif i in (1, 5):
            x.register_hook(lambda grad: grad * 10)
        return w, x, y

    out = []
    for i in range(9):
        for f, first, second in ((of_both, 1, 2), (of_one, 1, 2), (of_one, 0, 1)):
            found = given(i)
            out.append(f(found[first], found[second]))
    return out


@stale
def hooks_that_a_call_leaves(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = _leaf(torch, 1.0, 2.0)

    def tripled(parameter):
        parameter.grad.mul_(3)

    @compile
    def of_argument(x):
        x.register_hook(lambda grad: grad * 10)
        return (x * 2).sum()

    @compile
    def of_weight(x, stays):
        handle = w.register_post_accumulate_grad_hook(tripled)
        (x * w).sum().backward()
        if not stays:
            handle.remove()

    out = []
    for i in range(5):
        x, w.grad = _leaf(torch, 1.0, 2.0), None
        of_argument(x).backward()
        out.append(x.grad.clone())
        (x * 3).sum().backward()
        of_weight(torch.ones(2), i == 3)
        out += [x.grad, w.grad.clone()]
    return out


def _attempt(function: Any) -> Any:
    """Detached, or that it raises."""
    try:
        found = function()
        return None if found is None else found.detach()
    except RuntimeError:
        return "raises"


@stale
def views_that_are_written_to_with_a_history(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What they are views of gets the history, too; of leaves' views it is an error."""
    out = []
    for viewed in ((3, 4, 7), (0, 2, 3), ()):
        @compile
        def f(x):
            x.mul_(2)
            return x.sum()

        for i in range(9):
            w = _leaf(torch, 1.0, 2.0, 3.0)
            b = w * 3
            x = b[:2] if i in viewed else w[:] if i == 5 else b if i == 6 else w * 1
            out += [_attempt(lambda: f(x)), x.detach(), b.detach()]  # noqa: B023
            (b.sum() + x.sum()).backward()
            out.append(w.grad)
    return out


@stale
def views_of_what_is_written_to(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    out = []
    for writes_base in (True, False):
        for viewed in ((0, 3, 4, 6), (2, 3)):
            @compile
            def f(b, v, writes_base=writes_base):
                (b if writes_base else v).mul_(3)
                return (v * v).sum() + (b * b).sum()

            for i in range(7):
                w = _leaf(torch, 1.0, 2.0)
                b = w * 2
                v = b[:1] if i in viewed else _leaf(torch, 5.0) * 1
                f(b, v).backward()
                out += [w.grad, b.detach(), v.detach()]
    return out


@stale
def values_with_a_history_in_a_buffer(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """It may be a part of a larger one."""
    w = _leaf(torch, 1.0, 2.0)

    @compile
    def f(buffer, x):
        buffer.copy_(w * x)
        return buffer.sum()

    out = []
    for i in range(7):
        large = torch.zeros(4)
        buffer = large[:2] if i in (2, 3, 5) else torch.zeros(2)
        w.grad = None
        f(buffer, torch.ones(2) * (i + 1))
        (large.sum() + buffer.sum()).backward()
        out += [large.requires_grad, buffer.requires_grad, w.grad, large.detach()]
    return out


@stale
def hooks_on_histories_from_before(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    @compile
    def retains(x):
        x.retain_grad()
        return (x * 2).sum()

    @compile
    def hooked(x, k):
        x.register_hook(lambda grad: grad * k)
        return (x * 2).sum()

    out = []
    for i in range(5):
        w = _leaf(torch, 1.0, 2.0)
        x, y = w * 2, w * 3
        (retains(x) + hooked(y, 10.0 + i)).backward()
        out += [x.grad, w.grad, x.retains_grad]
    return out


@stale
def gradients_that_are_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A `.grad` may be an argument, what the function knows, or another one's."""
    known = torch.ones(2) * 7

    @compile
    def accumulates(x, g):
        (x * 2).sum().backward()
        return g * 3

    @compile
    def writes(x, g):
        g.mul_(2)
        return x.grad + g

    @compile
    def reads(x, g):
        known.add_(1)
        return x.grad * g

    out = []
    for f in (accumulates, writes, reads):
        for kind in (0, 1, 1, 0, 2, 0, 1, 2, 0):
            x, g = _leaf(torch, 1.0, 2.0), torch.ones(2) * 5
            x.grad = (torch.ones(2), g, known)[kind]
            out += [f(x, g), x.grad.clone(), g, known.clone(), x.grad is g]

    @compile
    def both(x, y):
        (x * y).sum().backward()

    for same in (True, True, False, True, False):
        x, y = _leaf(torch, 1.0, 2.0), _leaf(torch, 3.0, 4.0)
        x.grad = torch.ones(2)
        y.grad = x.grad if same else torch.ones(2)
        both(x, y)
        out += [x.grad, y.grad]
    return out


@stale
def tensors_that_are_asked_to_be_one(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """`is` between gradients, arguments, and tensors that each call puts in their places anew."""
    w, p, q = torch.ones(2), _leaf(torch, 1.0, 2.0), _leaf(torch, 3.0, 4.0)
    state = {"a": torch.ones(2), "b": torch.ones(2)}

    @compile
    def of_argument(x, g):
        return x.grad is g, x.grad is not None

    @compile
    def of_known(x):
        return x * (2 if p.grad is w else 3) * (5 if p.grad is q.grad else 7)

    @compile
    def of_renewed(x):
        factor = 2 if state["a"] is state["b"] else 3
        state["a"] = state["a"] + x
        state["b"] = state["b"] + x
        return x * factor

    out = []
    for kind in (0, 0, 1, 1, 0, 2, 0, 1, 2):
        x = _leaf(torch, 1.0, 2.0)
        x.grad = torch.ones(2)
        p.grad, q.grad = (torch.ones(2), w, torch.ones(2))[kind], torch.ones(2)
        if kind == 2:
            q.grad = p.grad
            state["a"] = state["b"]
        out += [of_argument(x, x.grad if kind == 1 else torch.ones(2)), of_known(torch.ones(2))]
        out += [of_renewed(torch.ones(2)), state["a"], state["b"]]
    return out


@stale
def gradients_of_arguments_of_one_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Leaves by themselves, read through one input."""
    def product(x, y):
        return (x * y + x).sum()

    def passes(x, y):
        product(x, y).backward()
        return x * 1, y * 1

    out = []
    for f in (product, passes):
        c = compile(f)
        for i in range(8):
            x = torch.arange(6.0).view(2, 3) + i
            x = x.t() if i > 5 else x
            y = x.detach() if i % 2 else x.view(x.shape)
            x.requires_grad_()
            y.requires_grad_(i not in (2, 5))
            found = c(x, y)
            if f is product:
                found.backward()
            out += [found, x.grad, y.grad]
    return out


@stale
def gradients_of_variables_of_one_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = _leaf(torch, 5.0, 6.0)
    v = w.detach()
    c, out = compile(lambda x: (w * v * x).sum()), []
    for i in range(6):
        if i in (2, 4):
            v.requires_grad_(i == 2)
        w.grad = v.grad = None
        c(torch.ones(2) + i).backward()
        out += [w.grad, v.grad]
    return out
