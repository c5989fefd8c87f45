"""Whole training loops and steps."""

# ruff: noqa: B023  (each step is called in its own turn of the loop)

from __future__ import annotations

import copy
import io
from typing import Any

from tests.graphc.scenario import data, mlp, scenario


@scenario
def accumulation(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    out = []

    def fb(x, y):
        loss = F.cross_entropy(m(x), y) / 2
        loss.backward()
        return loss

    c = compile(fb)
    for i in range(6):
        out.append(c(*data(torch, seed=i)))
        if i % 2:
            opt.step()
            opt.zero_grad()
    out += list(m.parameters())
    if hasattr(c, "compile_count"):
        assert c.compile_count <= 2, c.compile_count
    return out


@scenario
def accumulation_noset(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    out = []

    def fb(x, y):
        loss = F.cross_entropy(m(x), y) / 2
        loss.backward()
        return loss

    c = compile(fb)
    for i in range(4):
        out.append(c(*data(torch, seed=i)))
        out += [p.grad.clone() for p in m.parameters()]
    g = m[0].weight.grad
    c(*data(torch))
    out += [g is m[0].weight.grad, g]
    return out


@scenario
def clip_between(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    out = []
    for i in range(3):
        x, y = data(torch, seed=i)
        opt.zero_grad()
        loss = F.cross_entropy(c(x), y)
        loss.backward()
        n = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.3)
        opt.step()
        out += [loss, n]
    return out + list(m.parameters())


@scenario
def clip_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    opt = torch.optim.Adam(m.parameters(), lr=0.1)
    out = []

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        n = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.3)
        torch.nn.utils.clip_grad_value_(m.parameters(), 0.05)
        opt.step()
        return loss, n

    c = compile(step)
    for i in range(3):
        out += list(c(*data(torch, seed=i)))
    return out + list(m.parameters()) + [p.grad for p in m.parameters()]


@scenario
def ema_edit(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    e = copy.deepcopy(m)
    opt = torch.optim.Adam(m.parameters(), lr=0.1)
    out = []

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    c = compile(step)
    ce = compile(e)
    for i in range(4):
        out += [c(*data(torch, seed=i))]
        with torch.no_grad():
            for p, q in zip(m.parameters(), e.parameters(), strict=False):
                q.mul_(0.9).add_(p, alpha=0.1)
        out += [ce(data(torch)[0])]
        if i == 1:
            m[0].weight.data.zero_()
            m[2].bias.data = torch.ones(3)
        if i == 2:
            for p in m.parameters():
                p.grad = None
    if hasattr(c, "compile_count"):
        out.append(None)
        assert c.compile_count <= 2, c.compile_count
    else:
        out.append(None)
    return out + list(e.parameters())


@scenario
def grad_edit(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    out = []

    def fb(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        return loss

    def upd():
        opt.step()
        opt.zero_grad()

    fb = compile(fb)
    upd = compile(upd)
    for i in range(4):
        out += [fb(*data(torch, seed=i))]
        if i == 1:
            m[0].weight.grad *= 2
            m[2].weight.grad = torch.ones(3, 8)
        if i == 2:
            m[0].bias.grad = None
        upd()
        out += [p.grad is None for p in m.parameters()]
    return out + list(m.parameters())


@scenario
def freeze(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    opt = torch.optim.Adam(m.parameters(), lr=0.1, weight_decay=0.1)
    out = []

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    c = compile(step)
    for i in range(6):
        if i == 2:
            m[0].requires_grad_(False)
        if i == 4:
            m[0].requires_grad_(True)
        out += [c(*data(torch, seed=i))]
        out += [p.grad is None for p in m.parameters()]
    return out + list(m.parameters())


@scenario
def schedulers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    out = []
    S = torch.optim.lr_scheduler
    for name, mk in {
        "one": lambda o: S.OneCycleLR(o, 0.1, total_steps=8),
        "one_sgd": lambda o: S.OneCycleLR(o, 0.1, total_steps=8),
        "lam": lambda o: S.LambdaLR(o, lambda e: 0.9**e),
        "plateau": lambda o: S.ReduceLROnPlateau(o, patience=0),
    }.items():
        m = mlp(torch, nn)
        o = (
            torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
            if "sgd" in name
            else torch.optim.Adam(m.parameters(), lr=0.1)
        )
        s = mk(o)

        def step(x, y):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            return loss

        c = compile(step)
        for i in range(6):
            loss = c(*data(torch, seed=i))
            s.step(loss.detach()) if name == "plateau" else s.step()
            out += [loss, o.param_groups[0]["lr"]]
        if hasattr(c, "compile_count"):
            assert c.compile_count == 1, (name, c.compile_count, c.last_miss)
    return out


@scenario
def scheduler_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 2)
    out = []

    def step(x, y):
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        s.step()
        return loss

    c = compile(step)
    for i in range(6):
        out += [c(*data(torch, seed=i)), o.param_groups[0]["lr"], s.last_epoch]
    return out


@scenario
def optimizer_groups(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    o = torch.optim.SGD(
        [{"params": m[0].parameters(), "lr": 0.01}, {"params": m[2].parameters()}],
        lr=0.1,
        momentum=0.9,
    )
    out = []

    def step(x, y):
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        return loss

    c = compile(step)
    n = nn.Linear(4, 4)
    for i in range(5):
        if i == 2:
            o.param_groups[0]["lr"] = 0.5
            o.param_groups[1]["weight_decay"] = 0.1
        if i == 3:
            o.param_groups[1]["nesterov"] = True
        if i == 4:
            o.add_param_group({"params": n.parameters()})
        out += [c(*data(torch, seed=i))]
    return out + list(m.parameters())


@scenario
def save_resume(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    out = []

    def mk(m, o):
        def step(x, y):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            return loss

        return compile(step)

    c = mk(m, o)
    for i in range(3):
        out += [c(*data(torch, seed=i))]
    b = io.BytesIO()
    torch.save({"m": m.state_dict(), "o": o.state_dict()}, b)
    b.seek(0)
    for i in range(2):
        out += [c(*data(torch, seed=i))]
    ck = torch.load(b)
    m.load_state_dict(ck["m"])
    o.load_state_dict(ck["o"])
    for i in range(2):
        out += [c(*data(torch, seed=i))]
    m2 = mlp(torch, nn, seed=9)
    o2 = torch.optim.Adam(m2.parameters(), lr=0.5)
    m2.load_state_dict(ck["m"])
    o2.load_state_dict(ck["o"])
    mk(m2, o2)
    return out
