"""Scripts of (torch, compile) that need values in the middle, for test_segments.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graphc.scenario import mlp

SCRIPTS: dict[str, Any] = {}


def script(function: Any) -> Any:
    """Register a script: a function of (torch, compile)."""
    SCRIPTS[function.__name__] = function
    return function


def numbers(torch: Any, *shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.standard_normal(shape).astype("f").tolist())


def fancy(torch: Any) -> Any:
    """The seeds' FancyMLP: a shared layer, a constant, a loop on values."""
    nn = torch.nn

    class FancyMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rand_weight = torch.rand((20, 20), requires_grad=False)
            self.linear = nn.Linear(20, 20)

        def forward(self, x: Any) -> Any:
            x = self.linear(x)
            x = nn.functional.relu(torch.mm(x, self.rand_weight.data) + 1)
            x = self.linear(x)
            while x.norm().item() > 1:
                x /= 2
            if x.norm().item() < 0.8:
                x *= 10
            return x.sum()

    torch.manual_seed(3)
    return FancyMLP()


@script
def fancy_backward_outside(torch: Any, compile: Any) -> Any:
    net = fancy(torch)
    run = compile(net)
    seen = []
    for i in range(4):
        net.zero_grad()
        loss = run(numbers(torch, 2, 20, seed=i % 2) * (1 + i % 2))
        loss.backward()
        seen.append((loss, [p.grad.clone() for p in net.parameters()]))
    return seen


@script
def fancy_step_inside(torch: Any, compile: Any) -> Any:
    net = fancy(torch)
    opt = torch.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = net(x)
        loss.backward()
        opt.step()
        return loss

    run = compile(step)
    x = numbers(torch, 2, 20)
    return [run(x).detach() for _ in range(4)], net.state_dict()


@script
def fancy_no_grad(torch: Any, compile: Any) -> Any:
    run = compile(fancy(torch))
    with torch.no_grad():
        found = [run(numbers(torch, 2, 20, seed=i)) for i in range(3)]
    return found, [f.requires_grad for f in found]


@script
def step_returns_item(torch: Any, compile: Any) -> Any:
    net = mlp(torch, torch.nn)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.item()

    run = compile(step)
    return [run(numbers(torch, 6, 4, seed=i % 2)) for i in range(5)], net.state_dict()


@script
def lists_and_counters(torch: Any, compile: Any) -> Any:
    net = mlp(torch, torch.nn)
    opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    losses: list[float] = []
    rates: list[float] = []
    state = {"steps": 0, "best": None}

    def step(x: Any) -> None:
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        if torch.isnan(loss):
            raise ValueError
        loss.backward()
        norm = sum(float((p.grad**2).sum()) for p in net.parameters()) ** 0.5
        if norm > 0.1:
            for p in net.parameters():
                p.grad.mul_(0.1 / norm)
        opt.step()
        state["steps"] += 1
        losses.append(loss.item())
        rates.append(opt.param_groups[0]["lr"])
        if state["best"] is None or loss < state["best"]:
            state["best"] = loss.detach()

    run = compile(step)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    for i in range(6):
        run(numbers(torch, 6, 4, seed=i % 2))
        schedule.step()
    assert all(type(v) is float for v in (*losses, *rates))
    return losses, rates, state, net.state_dict()


@script
def printing_every_second_step(torch: Any, compile: Any) -> Any:
    net = mlp(torch, torch.nn)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    lines: list[str] = []

    def step(i: int, x: Any) -> Any:
        opt.zero_grad()
        loss = net(x).abs().mean()
        loss.backward()
        opt.step()
        if i % 2 == 0:
            lines.append(f"step {i}: {loss.item():.3f}")
        return loss

    run = compile(step)
    found = [run(i, numbers(torch, 6, 4)).detach() for i in range(6)]
    return lines, found


@script
def early_stopping(torch: Any, compile: Any) -> Any:
    net = mlp(torch, torch.nn)
    opt = torch.optim.SGD(net.parameters(), lr=0.2)

    def train(x: Any, limit: float) -> Any:
        losses = []
        for _ in range(20):
            opt.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            if losses[-1] < limit:
                break
        return losses

    run = compile(train)
    return run(numbers(torch, 6, 4), 0.02), run(numbers(torch, 6, 4), 0.001), net.state_dict()


@script
def masks_and_positions(torch: Any, compile: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        y = x * w
        picked = y[y > 0]
        where = (y < 0).nonzero()
        rest = torch.masked_select(y, y < 0.5)
        kinds = torch.unique((y * 2).round())
        return picked * 2, where, rest.sum(), kinds, picked.sum() + rest.sum() * w[0, 0]

    run = compile(f)
    found = []
    for i in range(6):
        w = numbers(torch, 5, 7, seed=50 + i).requires_grad_()
        out = run(numbers(torch, 5, 7, seed=i), w)
        out[-1].backward()
        found.append((out, w.grad))
    return found


@script
def history_across_segments(torch: Any, compile: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        a = (x @ w).tanh()
        first, rest = a[0], a[1:]
        if a.sum() > 0:
            a = a * 2
        b = a + first
        if float(b.detach().max()) > 1:
            b = b.exp()
        return b.sum() * rest.mean(), b

    run = compile(f)
    found = []
    for i in range(5):
        x, w = numbers(torch, 3, 4, seed=i).requires_grad_(), numbers(torch, 4, 4, seed=9 + i)
        w.requires_grad_()
        loss, b = run(x, w)
        (loss + b.mean()).backward()
        found.append((loss, b, x.grad, w.grad, loss.requires_grad, b.is_leaf))
    return found


@script
def backward_inside_across_segments(torch: Any, compile: Any) -> Any:
    net = mlp(torch, torch.nn)

    def f(x: Any) -> Any:
        h = net[0](x)
        flag = bool((h > 0).all())
        y = net[2](net[1](h))
        print_ = str(y.sum() > 0)
        loss = (y**2).mean() + (h.mean() if flag else -h.mean())
        loss.backward()
        return loss, print_, [p.grad.norm().item() for p in net.parameters()]

    run = compile(f)
    return [run(numbers(torch, 6, 4, seed=i)) for i in range(3)], [
        p.grad for p in net.parameters()
    ]


@script
def views_and_writes(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        row, flat, still = y[1], y.view(-1), y.detach()
        if y.sum().item() > 0:
            row.add_(1)
        total = flat.sum().item()
        y[0, 0] = 7.0
        still.mul_(2)
        return y, row, flat, still, total, y.t()

    run = compile(f)
    found = []
    for i in range(4):
        out = run(numbers(torch, 3, 4, seed=i))
        out[2][3] = 100.0
        found.append([out[0], out[1], out[2], out[3], out[4], out[5]])
    return found


@script
def writes_with_history(torch: Any, compile: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        y = x * w
        v = y[0]
        if y.sum().item() > -100:
            y.mul_(2)
        z = v.exp() + y.sum()
        if z.sum().item() > -100:
            v.add_(w[0])
        return (z * v).sum() + y.sum()

    run = compile(f)
    found = []
    for i in range(3):
        w = numbers(torch, 3, 2, seed=i).requires_grad_()
        loss = run(numbers(torch, 3, 2, seed=7 + i), w)
        loss.backward()
        found.append((loss, w.grad))
    return found


@script
def buffers_and_random_numbers(torch: Any, compile: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))

    def f(x: Any) -> Any:
        y = net(x)
        if y.sum() > 0:
            y = y + torch.rand(2)
        else:
            y = y - torch.randn(2)
        return y, torch.randint(0, 10, (3,)).tolist()

    run = compile(f)
    found = [run(numbers(torch, 5, 4, seed=i)) for i in range(4)]
    return found, net.state_dict(), torch.rand(3)


@script
def numpy_in_the_middle(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        y = x + 1
        array = y.numpy()
        z = y * 2
        array[0] = 50.0
        back = torch.from_numpy(np.sort(array, axis=0))
        w = back + y
        y.add_(1)
        return z, w, back, float(array.sum()), y

    run = compile(f)
    return [run(numbers(torch, 4, 3, seed=i)) for i in range(3)]


@script
def numpy_after_a_question(torch: Any, compile: Any) -> Any:
    """The tensor is captured by the question, before NumPy's code gets its memory."""
    def f(x: Any) -> Any:
        y = x + 1
        total = float(y.sum())
        asked = y.requires_grad
        array = y.numpy()
        z = y * 2
        array[0] = 50.0
        return z, total, asked, y

    run = compile(f)
    return [run(numbers(torch, 4, 3, seed=i)) for i in range(3)]


@script
def nested_and_methods(torch: Any, compile: Any) -> Any:
    inner = compile(lambda x: x * 2 if x.sum() > 0 else x * 3)

    class Meter:
        def __init__(self) -> None:
            self.total, self.count, self.last = 0.0, 0, None

        def update(self, x: Any) -> Any:
            self.total += x.mean().item()
            self.count += 1
            self.last = x * 1.5
            return inner(x) + self.count

    meter = Meter()
    run = compile(meter.update)
    found = [run(numbers(torch, 3, seed=i)) for i in range(4)]
    return found, meter.total, meter.count, meter.last


@script
def gradients_by_hand(torch: Any, compile: Any) -> Any:
    def f(x: Any) -> Any:
        y = (x**3).sum()
        value = y.item()
        (g,) = torch.autograd.grad(y, x, retain_graph=True)
        penalty = (x**2).sum()
        (h,) = torch.autograd.grad(penalty, x, create_graph=True)
        (hh,) = torch.autograd.grad((h**2).sum(), x)
        return value, g, hh

    run = compile(f)
    return [run(numbers(torch, 4, seed=i).requires_grad_()) for i in range(3)]


@script
def hooks_and_kept_gradients(torch: Any, compile: Any) -> Any:
    seen: list[float] = []

    def f(x: Any) -> Any:
        y = x * 3
        y.register_hook(lambda g: seen.append(g.sum().item()))
        z = y * y
        z.retain_grad()
        loss = z.sum()
        value = loss.item()
        loss.backward()
        return value, z.grad, x.grad

    run = compile(f)
    return [run(numbers(torch, 4, seed=i).requires_grad_()) for i in range(3)], seen


@script
def custom_functions(torch: Any, compile: Any) -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            assert float(x.sum()) < 1e9
            return g * 3 * x**2

    def f(x: Any) -> Any:
        y = Cube.apply(x * 2)
        if y.sum() > 0:
            y = y + 1
        return y.sum()

    run = compile(f)
    found = []
    for i in range(3):
        x = numbers(torch, 4, seed=i).requires_grad_()
        loss = run(x)
        loss.backward()
        found.append((loss, x.grad))
    return found


@script
def exceptions(torch: Any, compile: Any) -> Any:
    kept = torch.zeros(3)
    log: list[float] = []

    def f(x: Any) -> Any:
        kept.add_(x)
        log.append(kept.sum().item())
        kept.mul_(2)
        if log[-1] > 1:
            raise KeyError("too much")
        return kept + 1

    run = compile(f)
    found = []
    for i in range(5):
        try:
            found.append(run(torch.ones(3) * (i - 2)).clone())
        except KeyError as error:
            found.append(str(error))
    return found, kept, log


@script
def leaves_made_inside(torch: Any, compile: Any) -> Any:
    def f(a: Any, b: Any) -> Any:
        t = torch.full((3, 1), 0.25)
        mid = (a * t + b * (1 - t)).requires_grad_()
        score = (mid.sin() * mid).sum(1)
        note = score.mean().item()
        (g,) = torch.autograd.grad(score.sum(), mid)
        return note, g, mid.is_leaf, mid.requires_grad

    run = compile(f)
    return [run(numbers(torch, 3, 2, seed=i), numbers(torch, 3, 2, seed=9)) for i in range(3)]
