"""State on objects, modules and tapes: methods, buffers, histories, copies."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np

from tests.graphc.scenario import data, mlp, scenario


class WithMethod:
    def __init__(s, m):
        s.m = m
        s.k = 1.0

    def run(s, x):
        return s.m(x) * s.k


@scenario
def in_no_grad_nested(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    inner = compile(lambda x: m(x) * 2)

    @compile
    def outer(x):
        with torch.no_grad():
            t = inner(x)
        return inner(x) - t.mean()

    x = torch.randn(5, 4)
    out = []
    for _i in range(2):
        y = outer(x)
        y.square().sum().backward()
        out += [y, [p.grad for p in m.parameters()]]
    with torch.no_grad():
        out += [outer(x), inner(x)]
    return out


@scenario
def compiled_method(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = WithMethod(mlp(torch, nn))
    c = compile(w.run)
    x = torch.randn(2, 4)
    out = [c(x)]
    w.k = 3.0
    out += [c(x)]

    class A:
        def __init__(s):
            s.k = 2.0
            s.n = 0

        @compile
        def f(s, x, b=1):
            s.n += 1
            return x * s.k + b

        @compile(dynamic=True)
        def g(s, x):
            return x - s.k

    a = A()
    b = A()
    b.k = 5.0
    for i in range(3):
        out += [
            a.f(torch.ones(2)),
            b.f(torch.ones(2), b=2),
            a.g(torch.ones(3 + i)),
            b.g(torch.ones(2)),
            a.n,
            b.n,
        ]
    return out


@scenario
def decorator_module_method(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(3, 3)

        @compile
        def forward(s, x):
            return s.l(x).relu()

    m = M()
    x = torch.randn(4, 3)
    y = m(x)
    y.sum().backward()
    return [y, m.l.weight.grad, m(x), m.l.bias.grad]


@scenario
def rebinding_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class S:
        def __init__(s):
            s.h = torch.zeros(3)
            s.n = 0
            s.log = {}

    s = S()

    def f(x):
        s.h = s.h * 0.5 + x
        s.n += 1
        return s.h * s.n

    c = compile(f)
    out = []
    for i in range(5):
        out += [c(torch.full((3,), float(i))), s.h, s.n]
    s.h = torch.ones(3)
    s.n = 100
    out += [c(torch.ones(3)), s.n]
    return out


@scenario
def first_use_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class S:
        pass

    s = S()

    def f(x):
        if not hasattr(s, "h"):
            s.h = torch.zeros(3)
        s.h = s.h + x
        return s.h * 2

    c = compile(f)
    out = []
    for _i in range(4):
        out += [c(torch.ones(3)), s.h]
    return out


@scenario
def buffers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("a", torch.zeros(3))
            s.register_buffer("n", torch.tensor(0))
            s.register_buffer("np", torch.ones(3), persistent=False)

        def forward(s, x):
            s.a = 0.9 * s.a + 0.1 * x.detach().mean(0)
            s.n += 1
            s.np.mul_(2)
            return x - s.a

    m = M()
    c = compile(m)
    out = []
    for i in range(4):
        out += [c(torch.full((2, 3), float(i + 1))), m.a, m.n, m.np]
    m.a.zero_()
    out += [c(torch.ones(2, 3)), m.a]
    m.load_state_dict({"a": torch.ones(3), "n": torch.tensor(7)})
    out += [c(torch.ones(2, 3)), m.a, m.n]
    return [*out, list(m.state_dict())]


@scenario
def number_result_and_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class S:
        pass

    s = S()
    s.n = 0

    def f(x):
        s.n += 1
        return x * s.n, s.n, s.n * 2

    c = compile(f)
    out = []
    for _i in range(5):
        out += [c(torch.ones(2)), s.n]
    return out


class Trainer:
    def __init__(s, torch, nn):
        s.m = mlp(torch, nn)
        s.o = torch.optim.SGD(s.m.parameters(), lr=0.1)
        s.losses = []
        s.epoch = 0
        s.best = None
        s.log = {}

    def step(s, x, y):
        s.o.zero_grad()
        loss = s.m(x).square().mean() + 0 * y.sum()
        loss.backward()
        s.o.step()
        return loss

    def fit(s, torch, c):
        for i in range(4):
            loss = c(*data(torch, seed=i))
            s.losses.append(loss.item())
            s.epoch += 1
            s.best = min(s.losses)
            s.log[i] = s.best
            s.extra = i


@scenario
def trainer_noise(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    t = Trainer(torch, nn)
    c = compile(t.step)
    t.fit(torch, c)
    if hasattr(c, "compile_count"):
        assert c.compile_count == 1, (c.compile_count, c.last_miss)
    return [*t.losses, t.epoch]


@scenario
def exceptions_leave_what_ran(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).double()
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    out = []

    class S:
        pass

    s = S()
    s.n = 0
    s.h = torch.zeros(2)

    def step(x, bad):
        s.n += 1
        s.h = s.h + 1
        o.zero_grad()
        loss = (m(x) * torch.arange(6.0)[:, None]).sum()
        loss.backward()
        o.step()
        torch.rand(2)
        if bad:
            raise KeyError("boom")
        return loss

    c = compile(step)
    x = data(torch)[0].double()

    def state():
        return (
            [p.detach().clone() for p in m.state_dict().values()]
            + [p.grad is None for p in m.parameters()]
            + [s.n, s.h, len(o.state)]
        )

    try:
        c(x, True)
        assert 0
    except KeyError:
        pass
    out += [*state(), torch.initial_seed() is not None]
    out += [torch.rand(2)]
    out += [c(x, False)]
    out += state()
    return out


@scenario
def deepcopy_pickle(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = data(torch)[0]
    out = [c(x)]
    d = copy.deepcopy(c)
    out += [d(x), type(d).__name__, isinstance(d, nn.Sequential)]
    with torch.no_grad():
        d[0].weight.zero_()
    out += [d(x), c(x)]
    e = pickle.loads(pickle.dumps(c))
    out += [e(x)]
    with torch.no_grad():
        e[0].weight.zero_()
    out += [e(x), c(x)]
    b = io.BytesIO()
    torch.save(c.state_dict(), b)
    b.seek(0)
    d.load_state_dict(torch.load(b))
    out += [d(x)]
    c.load_state_dict(e.state_dict())
    out += [c(x), m(x), str(c) == str(m), repr(d)]
    c.eval()
    out += [m.training]
    c.double()
    out += [c(x.double())]
    return out


@scenario
def dropout_seed(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.3), nn.Linear(64, 2))
    c = compile(m)
    out = []
    for s in (3, 4, 3):
        torch.manual_seed(s)
        x = torch.randn(5, 4)
        out += [c(x), torch.rand(3), c(x), torch.randn(2)]

    def f(x):
        return (
            torch.randn_like(x)
            + torch.rand(3)
            + torch.randint(0, 9, (3,))
            + torch.randperm(3)
            + F.dropout(x, 0.5)
        )

    f = compile(f)
    for _i in range(2):
        out += [f(torch.ones(3)), torch.rand(1)]
    g = torch.Generator()
    g.manual_seed(5)
    h = compile(lambda: torch.rand(4, generator=g))
    out += [h(), h(), torch.rand(2, generator=g)]
    return out


@scenario
def bn_switch(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    m = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    out = []

    def step(x, y):
        m.train()
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        return loss

    def ev(x):
        m.eval()
        with torch.no_grad():
            return m(x)

    c, e = compile(step), compile(ev)
    for i in range(4):
        x = torch.from_numpy(np.random.default_rng(i).standard_normal((5, 1, 6, 6)).astype("f"))
        y = torch.tensor([0, 1, 2, 0, 1])
        out += [c(x, y), m.training, e(x), m.training, m[1].running_mean, m[1].num_batches_tracked]
    return out


@scenario
def shared_params(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    out = []

    @compile
    def fwd(x):
        return m(x)

    @compile
    def step(x, y):
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        return loss

    @compile
    def norm():
        return sum(p.norm() for p in m.parameters())

    for i in range(3):
        x, y = data(torch, seed=i)
        out += [fwd(x), step(x, y), norm(), fwd(x)]
    return out


@scenario
def tying(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class LM(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(10, 6)
            s.h = nn.Linear(6, 10, bias=False)
            s.h.weight = s.e.weight

        def forward(s, i):
            return s.h(torch.tanh(s.e(i)))

    torch.manual_seed(0)
    m = LM()
    o = torch.optim.AdamW(m.parameters(), lr=0.05)
    out = [len(list(m.parameters())), list(m.state_dict())]

    def step(i, y):
        o.zero_grad()
        loss = F.cross_entropy(m(i).flatten(0, 1), y.flatten())
        loss.backward()
        o.step()
        return loss

    c = compile(step)
    i = torch.arange(8).reshape(2, 4)
    for _ in range(3):
        out += [c(i, (i + 1) % 10)]
    c2 = compile(m)
    o.zero_grad()
    c2(i).square().sum().backward()
    return out + list(m.parameters()) + [m.e.weight.grad, m.h.weight is m.e.weight]


@scenario
def memory_read_as_two_dtypes_and_written(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def through_integers(x, w):
        y = x * 2
        v = x.view(torch.int32)
        v.add_(1)
        x.mul_(2)
        return x * w + y, v

    def captured_later(x, w):
        x.view(torch.int32).bitwise_and_(-256)
        return x * w

    def through_floats(x, w):
        v = x.view(torch.int32)
        x.zero_()
        x += w
        return v + 1, v

    def a_part(x, w):
        v = x.view(torch.int32)
        s = v.sum()
        x[1] = 5.0
        return s, v.sum(), x

    results = []
    for function in (through_integers, captured_later, through_floats, a_part):
        for size in (4, 40000):
            run = compile(function)
            for k in range(4):
                x = torch.arange(float(size)) + k
                results.append((run(x, torch.ones(size)), x))
    return results
