"""What Python may ask of a tensor itself: which one it is, what it is a leaf of, its versions."""

from __future__ import annotations

import functools
from typing import Any

from tests.graphc.stale_scenario import attempt, stale


@stale
def tensors_among_the_arguments_as_keys(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Which entry an argument finds, each call says anew."""
    a, b, c = torch.ones(2), torch.ones(2) * 2, torch.ones(2) * 3
    known, table = {a}, {a: 2.0, b: 3.0}
    functions = [
        lambda x, k: (x, k in known), lambda x, k: (x, k in table), lambda x, k: x * table[k],
        lambda x, k: (x, len({k, a})), lambda x, k: (x, {k: 1}.get(a)),
        lambda x, k: (x, len(dict.fromkeys([k, b]))), lambda x, k: (x, {k} <= known),
        lambda x, k: (x, len({t for t in (k, b) if t is not c})),
        lambda x, k: (x, len({k: 1} | table), len({k} & known)),
    ]
    out: list[Any] = []
    for function in functions:
        f = compile(function)
        out += [attempt(f, torch.ones(2), k) for k in (a, b, a, c, b)]
    return out


@stale
def leaves_and_computed_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A gradient ends at a leaf, and goes on behind what was computed."""
    w = torch.ones(2) * 3

    def step(x):
        loss = (x * w).sum()
        loss.backward()
        return loss

    f = compile(step)
    out: list[Any] = []
    for computed in (False, True, False, True, True):
        x = torch.ones(2, requires_grad=True)
        f(x * 2 if computed else x)
        out.append(x.grad)
    asked = compile(lambda x: (x * 1, x.is_leaf, x.grad_fn is None))
    for x in (out[0], torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 2):
        out += asked(x)[1:]
    state = torch.ones(2, requires_grad=True) * 2
    captured = compile(lambda x: (x * state, state.is_leaf))
    out += captured(w)[1:]
    state.detach_().requires_grad_()
    out += captured(w)[1:]
    return out


@stale
def gradients_that_begin_in_the_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Linear(2, 2)
    nn.init.ones_(m.weight)
    m.requires_grad_(False)

    def argument(x):
        x.requires_grad_()
        return (x * 2).sum()

    def parameter(x):
        m.weight.requires_grad = True
        return m(x).sum() + float(x.sum()) * 0 if x.numel() > 2 else m(x).sum()

    out: list[Any] = []
    f, g = compile(argument), compile(parameter)
    for size in (2, 2, 4):
        x = torch.ones(size)
        f(x).backward()
        out += [x.requires_grad, x.grad]
        m.requires_grad_(False)
        g(torch.ones(size).view(-1, 2)).backward()
        out += [m.weight.grad, m.bias.grad]
    return out


@stale
def versions_of_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        before = x._version
        y = x * 2
        y.add_(1)
        x.add_(1)
        return before, x._version, y._version, y

    def made(x):
        y = x + 1
        y.mul_(2)
        y.add_(1)
        return y, y[0]

    c, d, x, out = compile(f), compile(made), torch.ones(2), []
    for _ in range(4):
        *versions, y = c(x)
        out += [*versions, y._version, *[t._version for t in d(x)]]
        x.mul_(2)
    return out


@stale
def names_of_what_made_a_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A printed tensor says what made it; so it does in, and after, a call that is compiled."""
    w = nn.Parameter(torch.ones(2))

    def printed(x):
        y = w * x
        text = str(y)
        total = y.sum()
        return text, repr(total), str(total.exp()), y.grad_fn.name()

    def given(x):
        return w * x, (w + x).relu(), (w / x).exp()

    def step(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    out: list[Any] = []
    for f in (compile(printed), compile(given), compile(step)):
        for i in range(4):
            found = f(torch.ones(2) * (i + 1))
            out += [str(t) for t in found] if isinstance(found, tuple) else [str(found)]
    return out


@stale
def partial_methods_as_special_methods(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """tqdm's __init__ is one."""

    class Scaled:
        def _start(self, name, k):
            self.name, self.k = name, k

        def _call(self, n, x):
            return x * n * self.k

        __init__ = functools.partialmethod(_start, "scaled")
        __call__ = functools.partialmethod(_call, 3)
        __getitem__ = functools.partialmethod(_call, 10)
        __len__ = functools.partialmethod(lambda self, n: n, 4)

    f = compile(lambda x, k: (Scaled(k)(x), Scaled(k)[2], len(Scaled(k)), Scaled(k).name))
    out: list[Any] = [f(torch.ones(2), k) for k in (1.0, 2.0, 2.0, 3.0)]
    Scaled.__call__ = functools.partialmethod(Scaled._call, 7)
    return [*out, f(torch.ones(2), 2.0)]


@stale
def identity_of_numbers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Small ints are one object each, run-time numbers and sizes too."""
    three = 3
    f = compile(lambda x, n: (x * n, n is n + 0, n is three, n is not three, n is x.shape[0]))
    g = compile(lambda x: (x, x.size(0) is x.shape[0], x.size(0) is three, x.size(1) is three))
    out: list[Any] = []
    for n in (2, 3, 4, 3, 5):
        out += [*f(torch.ones(3), n), *g(torch.ones(n, 3))[1:]]
    return out
