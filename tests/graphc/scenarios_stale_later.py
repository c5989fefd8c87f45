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


@stale
def what_both_passes_read(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A guard that the call itself has asked says nothing of a pass that comes later."""
    box, entries, items = Box(k=2.0), {"s": 2.0}, [1.0]

    class Owner:
        scale = 2.0

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.alpha = 2.0

    layer = Layer()

    def bump() -> None:
        box.k += 1
        entries["s"] += 1
        items.append(3.0)
        Owner.scale += 1
        layer.alpha += 1
        names["g"] += 1

    names: dict[str, Any] = {"g": 2.0}
    exec("def of_a_global(): return g", names)
    reads = [
        lambda: box.k, lambda: entries["s"], lambda: items[-1], lambda: len(items),
        lambda: sum(items), lambda: Owner.scale, lambda: layer.alpha, lambda: len(items) > 3,
        lambda: 3.0 in items, names["of_a_global"],
    ]

    def hooked(read: Any) -> Any:
        def function(x):
            y = x * read()
            y.register_hook(lambda g: g * read())
            return (y * 2).sum()

        return function

    def written(x):
        box.k = 3.0
        y = x * box.k
        y.register_hook(lambda g: g * box.k)
        return y.sum()

    def scaled(read: Any) -> Any:
        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * read()

            @staticmethod
            def backward(ctx, g):
                return g * read()

        return lambda x: Scaled.apply(x).sum()

    out: list[Any] = []
    for function in [written, *map(hooked, reads), *map(scaled, reads)]:
        f = compile(function)
        for _ in range(3):
            x = torch.ones(2, requires_grad=True)
            loss = f(x)
            bump()
            loss.backward()
            out += [loss, x.grad]
    return out


@stale
def passes_that_run_something_each(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Second runs and hooks on saved tensors are due once in each pass, not once in the call."""
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    seen: list[str] = []

    def block(x):
        seen.append("run")
        return (x * x).sin()

    def pack(tensor):
        seen.append("pack")
        return tensor.clone()

    def unpack(tensor):
        seen.append("unpack")
        return tensor

    def twice(x):
        first = checkpoint(block, x, use_reentrant=False)
        return checkpoint(block, first, use_reentrant=False)

    def hooked(x):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return (x * x).sin()

    out: list[Any] = []
    for inner in (twice, hooked):
        for valued in (False, True):
            def function(x, inner=inner, valued=valued):
                y = inner(x * 2)
                return (y * (1.0 if not valued else y.sum().item())).sum()

            f = compile(function)
            for size in (3, 3, 64, 64):  # small ones run eagerly
                x = torch.linspace(-1, 1, size).requires_grad_()
                loss = f(x)
                called = len(seen)
                loss.backward(retain_graph=True)
                once = len(seen)
                loss.backward()
                out += [loss, x.grad, called, once, len(seen)]
    return out


@stale
def early_stops(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The second run ends once every saved value is there, in a whole step, too."""
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    layer, counts = nn.Linear(3, 3), [0]

    def block(x):
        y = layer(x).tanh()
        counts[0] += 1
        return y

    def step(x, reentrant):
        layer.zero_grad()
        loss = checkpoint(block, x, use_reentrant=reentrant).pow(2).mean()
        loss.backward()
        return loss

    f = compile(step)
    out: list[Any] = []
    for i in range(4):
        with torch.no_grad():
            layer.weight.fill_(0.1)
            layer.bias.zero_()
        x = (torch.ones(2, 3) * i).requires_grad_()
        out += [f(x, i > 1), counts[0], layer.weight.grad]
    return out


@stale
def tensors_of_a_later_pass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What only a hook reads is no input of the call; what it writes to, or draws, no effect."""
    seen = torch.zeros(2)

    def reads(x, s):
        y = x * 2
        y.register_hook(lambda g: g * s)
        return y.sum()

    def writes(x, s):
        y = x * s

        def hook(g):
            with torch.no_grad():
                seen.add_(g)

        y.register_hook(hook)
        return (y * 2).sum()

    def writes_what_it_read(x, s):
        y = x * s + seen

        def hook(g):
            with torch.no_grad():
                seen.add_(g)

        y.register_hook(hook)
        return (y * 2).sum()

    def draws(x, s):
        y = x * s
        y.register_hook(lambda g: g * torch.rand(2))
        return y.sum()

    def draws_in_both(x, s):
        y = x * torch.rand(2)
        y.register_hook(lambda g: g * torch.rand(2))
        return (y * s).sum()

    out: list[Any] = []
    for function in (reads, writes, writes_what_it_read, draws, draws_in_both):
        f = compile(function)
        torch.manual_seed(0)
        for i in range(3):
            x, s = torch.ones(2, requires_grad=True), torch.full((2,), float(i + 1))
            loss = f(x, s)
            s.data.mul_(2)
            before = torch.rand(1)
            loss.backward(retain_graph=True)
            loss.backward()
            out += [loss, before, x.grad, seen.clone(), torch.rand(1)]
    return out


@stale
def second_runs_that_draw_are_one_graph(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint

    def block(x):
        return F.dropout(x.sin(), 0.5) * x

    f = compile(lambda x: checkpoint(block, x, use_reentrant=False).sum())
    out: list[Any] = []
    torch.manual_seed(0)
    for i in range(4):
        x = (torch.arange(6.0) + i).requires_grad_()
        loss = f(x)
        loss.backward()
        out += [loss, x.grad, torch.rand(1)]
    whole(f)
    return out
