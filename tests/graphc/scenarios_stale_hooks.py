"""Functions that graphc's own code calls: hooks from before the call read and write state."""

from __future__ import annotations

import copy
import functools
from typing import Any

from tests.graphc.stale_scenario import Box, stale, whole


def _rows(torch: Any) -> Any:
    return torch.arange(6.0).view(2, 3) / 5 - 0.4


def _linear(torch: Any, nn: Any) -> Any:
    torch.manual_seed(3)
    return nn.Linear(3, 1)


class Hook:
    """Scales what it gets, and counts."""

    def __init__(self) -> None:
        self.k, self.n = 1.0, 0

    def __call__(self, grad: Any) -> Any:
        self.n += 1
        return grad * self.k

    def after(self, parameter: Any) -> None:
        """Of a parameter whose gradient has arrived."""
        self.n += 1
        parameter.grad.mul_(self.k)

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Of an optimizer."""
        self.n += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(self.k)


def _steps(step: Any, hook: Hook, change: Any, x: Any) -> list[Any]:
    out = []
    for i in range(6):
        if i == 2:
            hook.k = 3.0
        if i == 4:
            change()
        out += [step(x), hook.n]
    return out


@stale
def hooks_of_leaves(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A hook that was registered before the call is the user's code like any other."""
    out: list[Any] = []
    for kind in range(5):
        m, hook = _linear(torch, nn), Hook()
        register = m.weight.register_hook if kind < 3 else (
            m.weight.register_post_accumulate_grad_hook
        )
        handle = register((
            lambda grad, hook=hook: hook(grad), hook, functools.partial(Hook.__call__, hook),
            hook.after, lambda parameter, hook=hook: hook.after(parameter),
        )[kind])

        @compile
        def step(x, m=m):
            m.zero_grad()
            m(x).sum().backward()
            return m.weight.grad.clone()

        out += _steps(step, hook, handle.remove, _rows(torch))
        whole(step)
    return out


@stale
def hooks_of_saved_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The hooks were made, and put into their block, before the call."""
    w, hook = torch.ones(3, requires_grad=True), Hook()
    box = Box(block=torch.autograd.graph.saved_tensors_hooks(hook.__call__, lambda held: held))

    @compile
    def step(x):
        w.grad = None
        with box.block:
            y = (w * x).sin().sum()
        y.backward()
        return w.grad.clone()

    def change() -> None:
        box.block = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 5)

    out = _steps(step, hook, change, _rows(torch)[0])
    whole(step)
    return out


@stale
def hooks_of_optimizers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Registered, and removed, between the calls."""
    m, hook, log = _linear(torch, nn), Hook(), []
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    @compile
    def step(x):
        o.zero_grad()
        m(x).sum().backward()
        o.step()
        return m.weight.detach().clone()

    out = [step(_rows(torch)) for _ in range(2)]
    handle = o.register_step_pre_hook(hook.before_step)
    out += _steps(step, hook, handle.remove, _rows(torch))
    o.register_step_post_hook(lambda *_: log.append(hook.n))
    out += [step(_rows(torch)), list(log), step(_rows(torch)), list(log)]
    whole(step)
    return out


@stale
def settings_of_a_scaler(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """graphc's own classes have state, too."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    @compile
    def f(x):
        return scaler.scale(x), scaler.get_growth_factor(), scaler.is_enabled()

    x = torch.ones(2)
    out = [f(x), f(x)]
    scaler.set_growth_factor(5.0)
    out += [f(x)]
    scaler.update(16.0)
    out += [f(x)]
    scaler._enabled = False
    return [*out, f(x)]


@stale
def call_of_a_module_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Counting(nn.Linear):  # type: ignore[name-defined]
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return super().__call__(x) + self.calls

    torch.manual_seed(3)
    m, x = Counting(3, 2), _rows(torch)
    c = compile(m)
    out = [c(x), c(x), m.calls]
    Counting.__call__ = lambda self, x: x * 2  # type: ignore[method-assign]
    out += [c(x), m.calls]
    del Counting.__call__
    return [*out, c(x), m.calls]


@stale
def compiled_method_in_a_copy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The copy of an object with a compiled method of its own runs on the copy's state."""
    class Trainer:
        def __init__(self) -> None:
            self.k = torch.ones(2)
            self.step = compile(self._step)

        def _step(self, x):
            self.k = self.k + x
            return self.k * 2

    one = Trainer()
    out = [one.step(torch.ones(2))]
    other = copy.deepcopy(one)
    return [*out, other.step(torch.ones(2)), other.step(torch.ones(2)), one.k, other.k]
