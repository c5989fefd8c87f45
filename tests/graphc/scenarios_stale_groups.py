"""Scenarios: numbers of param groups that the compiled function itself writes (scenario.py)."""

from __future__ import annotations

import math
from typing import Any

from tests.graphc.scenarios_stale_state import row
from tests.graphc.stale_scenario import Box, stale, whole


def _with_numbers(torch: Any, nn: Any, compile: Any, write: Any, make: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    opt = make([w])
    s = Box(n=0)

    def step(x):
        s.n += 1
        write(opt.param_groups[0], s.n)
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        return w * 1

    c = compile(step)
    out = [[c(row(torch, i)), opt.param_groups[0]["lr"]] for i in range(5)]
    s.n = 20
    return [*out, c(row(torch, 1)), s.n]


@stale
def learning_rate_written_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["lr"] = 0.5 / n

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.SGD(p, 0.1))


@stale
def learning_rate_scaled_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["lr"] *= 0.5

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.Adam(p, 0.1))


@stale
def betas_written_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["betas"] = (1 - 1 / (n + 1), 0.75)

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.Adam(p, 0.1))


def _listed_betas(torch: Any, nn: Any, compile: Any, inside: bool) -> Any:
    """betas as a list, an item of which is written to between the calls or in them."""
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.Adam([w], 0.1)
    betas = opt.param_groups[0]["betas"] = [0.7, 0.99]
    s = Box(n=0)

    def step(x):
        s.n += 1
        if inside:
            opt.param_groups[0]["betas"][0] = 1 - 1 / (s.n + 1)
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        return w * 1

    c = compile(step)
    out = []
    for i in range(6):
        out.append([c(row(torch, i)), list(betas)])
        if not inside:
            betas[i % 2] = 0.5 if i < 3 else 0  # a whole number, too
    betas[:] = [0.25, 0.5]
    return [*out, c(row(torch, 1)), opt.param_groups[0]["betas"] is betas]


@stale
def listed_betas_written_between(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _listed_betas(torch, nn, compile, inside=False)


@stale
def listed_betas_written_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _listed_betas(torch, nn, compile, inside=True)


@stale
def eps_written_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["eps"] = 0.1 * n

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.Adam(p, 0.1))


@stale
def weight_decay_written_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["weight_decay"] = 0.0 if n < 3 else 0.1 * n

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.SGD(p, 0.1))


@stale
def momentum_switched_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, n):
        group["momentum"] = 0.0 if n < 3 else 0.5

    return _with_numbers(torch, nn, compile, write, lambda p: torch.optim.SGD(p, 0.1))


# --- schedules: the number follows from an argument, a counter or a table ------------------------


def _rate(it: Any) -> Any:
    """Warm-up, then half a cosine, then a constant: nanoGPT's pattern."""
    if it < 2:
        return 0.1 * (it + 1) / 3
    if it > 9:
        return 0.01
    ratio = (it - 2) / 7
    assert 0 <= ratio <= 1
    return 0.01 + 0.5 * (1.0 + math.cos(math.pi * ratio)) * 0.09


def _scheduled(torch: Any, nn: Any, compile: Any, write: Any, make: Any, compilations: int) -> Any:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    opt = make(net.parameters())

    def step(x, it):
        for group in opt.param_groups:
            write(group, it)
        loss = (net(x) ** 2).sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    c = compile(step)
    out: list[Any] = []
    for it in (*range(12), 4, 4):
        out += [c(torch.ones(4, 3) * (1 + it % 3), it), opt.param_groups[0]["lr"]]
        if it == 5:  # somebody else writes, too
            opt.param_groups[0]["lr"] = 0.02
    whole(c, compilations)
    return out


@stale
def schedule_of_an_argument(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, it):
        group["lr"] = _rate(it)

    def make(params):
        return torch.optim.AdamW(params, 0.1)

    return _scheduled(torch, nn, compile, write, make, 4)


@stale
def schedule_of_a_counter(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(it=0)

    def write(group, it):
        group["lr"] = _rate(s.it)
        group["weight_decay"] = group["lr"] * 0.1  # an int before
        group["momentum"] = 0.9 - group["lr"]
        s.it += 1

    def make(params):
        return torch.optim.SGD(params, 0.1, momentum=0.5)

    return _scheduled(torch, nn, compile, write, make, 4)


@stale
def schedule_in_a_table(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    rates = [0.1 * math.exp(-k / 3) for k in range(20)]

    def write(group, it):
        group.update(lr=rates[it])

    def make(params):
        return torch.optim.RMSprop(params, 0.1)

    return _scheduled(torch, nn, compile, write, make, 2)


@stale
def schedule_table_that_changes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    rates = [0.1, 0.2, 0.3, 0.4]
    c = compile(lambda x, i: x * rates[i])
    out = []
    for i in range(4):
        out.append(c(torch.ones(2), i))
    rates[3] = 0.9
    out += [c(torch.ones(2), 3), c(torch.ones(2), -1)]
    rates.pop()
    for i in (2, 3):
        try:
            out.append(c(torch.ones(2), i))
        except IndexError as error:
            out.append(str(error))
    return out


@stale
def schedule_of_two_optimizers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.05)

    def write(group, it):
        group["lr"] = other.param_groups[0]["lr"] * 2
        other.param_groups[0]["lr"] = 0.01 * (it + 1)

    def make(params):
        return torch.optim.Adam(params, 0.1)

    return _scheduled(torch, nn, compile, write, make, 2)


@stale
def rate_and_momentum_exchanged(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def write(group, it):
        group["lr"], group["momentum"] = group["momentum"] * 0.05, 0.3 + group.get("lr")

    def make(params):
        return torch.optim.SGD(params, 0.1, momentum=0.5)

    return _scheduled(torch, nn, compile, write, make, 2)


@stale
def rates_written_between_segments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], 0.1)
    values = []

    def f(x):
        for k in range(4):
            opt.zero_grad()
            loss = (w * x * (k + 1)).sum()
            loss.backward()
            opt.param_groups[0]["lr"] = 0.1 * (k + 1)
            opt.step()
            if k % 2:
                values.append(loss.item())
        return w * 1

    c = compile(f)
    return [*(c(row(torch, i)) for i in range(4)), values]


@stale
def schedule_step_and_own_write(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)

    def f(x, it):
        (w * x).sum().backward()
        opt.step()
        opt.zero_grad()
        schedule.step()
        if it % 2:
            opt.param_groups[0]["lr"] = 0.3
        return w * 1

    c = compile(f)
    return [[c(row(torch, i), i), opt.param_groups[0]["lr"]] for i in range(6)]
