"""What a backward pass after the call runs: hooks, custom Functions, checkpoint's second run."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import Box, attempt, stale, whole


def _passes(torch: Any, f: Any, box: Any) -> list[Any]:
    """Each pass finds another number than its call did, and leaves traces."""
    out: list[Any] = []
    for i in range(4):
        x = (torch.arange(3.0) + i).requires_grad_()
        loss = f(x)
        box.k += 1
        loss.backward()
        out += [loss, x.grad, list(box.seen)]
    return out


@stale
def functions_of_a_later_pass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(k=1.0, seen=[])

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            box.seen.append("ran")
            return g * box.k + ctx.saved_tensors[0]

    return _passes(torch, compile(lambda x: Scaled.apply(x).sum()), box)


@stale
def numbers_of_a_later_pass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Nothing is left behind; a number is read all the same."""
    box = Box(k=1.0, seen=[])

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * box.k

    return _passes(torch, compile(lambda x: Scaled.apply(x).sum()), box)


@stale
def hooks_of_a_later_pass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(k=1.0, seen=[])

    def f(x):
        y = x * 2

        def hook(g):
            box.seen.append(1)
            return g * box.k

        y.register_hook(hook)
        return (y**2).sum()

    return _passes(torch, compile(f), box)


@stale
def second_runs_of_a_later_pass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    box = Box(k=1.0, seen=[])

    def block(x):
        box.seen.append(1)
        return (x * 2).sin()

    return _passes(torch, compile(lambda x: checkpoint(block, x, use_reentrant=False).sum()), box)


@stale
def what_a_later_pass_runs_may_be_closed(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Straight-through estimators and reversed gradients read what their calls gave them."""

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return -ctx.k * g, None

    box = Box(k=1.0, seen=[])
    f = compile(lambda x: Rounded.apply(x * 3, 0.5).sum())
    out = _passes(torch, f, box)
    whole(f)
    return out


@stale
def later_passes_that_raise(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Whoever only calls the function never sees their errors."""
    w = nn.Parameter(torch.ones(3))

    class Refused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise NotImplementedError

    def overwritten(x):
        y = (w * x).exp()
        with torch.no_grad():
            y.mul_(2)
        return y.sum()

    out: list[Any] = []
    for f in (compile(overwritten), compile(lambda x: Refused.apply(w * x).sum())):
        for i in range(3):
            loss = f(torch.ones(3) * i)
            out += [loss, attempt(loss.backward)]
    return out
