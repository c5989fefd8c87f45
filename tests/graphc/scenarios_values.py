"""Arguments and results: containers, views, shared memory, layouts, dtypes, Python numbers."""

# ruff: noqa: B023  (each step is called in its own turn of the loop)

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

from tests.graphc.scenario import scenario


@dataclass
class DC:
    a: object
    b: float
    name: str = "n"


NT = namedtuple("NT", "p q")


class Plain:
    def __init__(s, t, k):
        s.t = t
        s.k = k


@scenario
def containers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(a, *rest, nt=None, dc=None, d=None, flag=False, s="add", o=None):
        y = a
        for r in rest:
            y = y + r
        if nt is not None:
            y = y + nt.p * nt.q
        if dc is not None:
            y = y + dc.a * dc.b
        if d is not None:
            y = y + d["x"][0] - d["x"][1]
        if flag:
            y = -y
        if s == "mul":
            y = y * 2
        if o is not None:
            y = y * o.t + o.k
        return y

    c = compile(f)

    def t(v):
        return torch.full((3,), float(v))

    out = []
    out += [
        c(t(1)),
        c(t(1), t(2)),
        c(t(1), t(2), t(3)),
        c(t(1), 2),
        c(t(1), 3.5),
        c(t(1), nt=NT(t(1), t(2))),
        c(t(1), nt=NT(t(1), 5)),
        c(t(1), dc=DC(t(1), 2.0)),
        c(t(1), dc=DC(t(1), 3.0)),
        c(t(1), d={"x": [t(1), t(5)]}),
        c(t(1), d={"x": (t(1), t(5))}),
        c(a=t(4), flag=True),
        c(t(1), flag=True),
        c(t(1), s="mul"),
        c(t(1), o=Plain(t(3), 2)),
        c(t(1), d=OrderedDict(x=[t(1), 3])),
    ]
    o = Plain(t(3), 2)
    out += [c(t(1), o=o)]
    o.k = 9
    out += [c(t(1), o=o)]
    o.t = t(8)
    out += [c(t(1), o=o)]
    dc = DC(t(1), 2.0)
    out += [c(t(1), dc=dc)]
    dc.b = 7.0
    out += [c(t(1), dc=dc)]
    dc.a = t(9)
    out += [c(t(1), dc=dc)]
    return out


@scenario
def outputs_nested(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x + 1
        return {"a": [y, (y * 2, None)], "b": NT(y, "s"), "c": DC(y, 1.5), "d": 3, "e": [], "x": x}

    c = compile(f)
    x = torch.ones(2)
    out = []
    for _i in range(2):
        r = c(x)
        out += [
            r["a"][0],
            r["a"][1][0],
            r["a"][1][1],
            type(r["b"]).__name__,
            r["b"].p is r["a"][0],
            r["c"].a is r["a"][0],
            type(r["c"]).__name__,
            r["d"],
            r["e"],
            r["x"] is x,
        ]
    return out


@scenario
def same_twice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x * 2
        return y, y

    c = compile(f)
    out = []
    for _i in range(2):
        a, b = c(torch.ones(3))
        out += [a is b]
        a.add_(1)
        out += [b]
    return out


@scenario
def out_is_view(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        return x, x.view(-1), x[0], x.t(), x.detach()

    c = compile(f)
    out = []
    for _i in range(2):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        y = x * 1
        r = c(y)
        out += [r[0] is y]
        (r[1].sum() + r[2].sum() * 3 + (r[3] ** 2).sum()).backward()
        out += [x.grad, r[4].requires_grad]
        with torch.no_grad():
            r[4].add_(100)
        out += [y, r[1], r[2], r[3]]
    return out


@scenario
def views_of_outputs(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x * 2
        return y, y[0], y.view(-1), y.t()

    c = compile(f)
    out = []
    for _i in range(2):
        r = c(torch.arange(6.0).reshape(2, 3))
        r[0].add_(10)
        out += list(r)
        r[1].zero_()
        out += list(r)
        out += [r[3].is_contiguous(), tuple(r[3].stride())]
    return out


@scenario
def views_of_outputs_grad(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x * 2
        return y, y[0], y.view(-1)

    c = compile(f)
    out = []
    for _i in range(2):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        r = c(x)
        (r[1].sum() * 5 + (r[2] ** 2).sum() + r[0].prod()).backward()
        out += [x.grad]
    return out


@scenario
def noncontig(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(lambda x, y: (x @ y, (x + 1)))
    b = torch.arange(24.0).reshape(4, 6)
    out = []
    out += [
        f(b[:, ::2], torch.ones(3, 2)),
        f(b[::2, :3], torch.ones(3, 2)),
        f(b.t()[:, :3], torch.ones(3, 2)),
        f(b[:, 1:4], torch.ones(3, 2)),
        f(b[:, :1].expand(4, 3), torch.ones(3, 2)),
        f(b.t()[:4, :3], torch.ones(3, 2)),
    ]
    return out


@scenario
def noncontig_write(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        x.mul_(2)
        x[0] = 7
        return x.sum()

    c = compile(f)
    out = []
    for _i in range(2):
        b = torch.arange(24.0).reshape(4, 6)
        out += [c(b[:, ::2]), b]
        b = torch.arange(24.0).reshape(4, 6)
        out += [c(b.t()), b]
        b = torch.arange(24.0).reshape(4, 6)
        out += [c(b[1]), b]
    return out


@scenario
def zero_d_empty(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(lambda x: (x * 2 + 1, x.sum(), x.shape, x.numel()))
    out = []
    for s in [(), (0,), (0, 3), (2, 0, 3), (1,), (1, 1)]:
        out += [f(torch.ones(s)), f(torch.ones(s))]
    g = compile(lambda x: torch.cat([x, x[:0]]).mean())
    out += [g(torch.ones(3))]
    h = compile(lambda x, w: F.linear(x, w))
    out += [h(torch.ones(0, 3), torch.ones(2, 3)), h(torch.ones(4, 3), torch.ones(0, 3))]
    return out


@scenario(tolerance=3e-2)
def half_models(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    out = []
    for dt in (torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to(dt)
        opt = torch.optim.SGD(m.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            opt.step()
            return loss

        c = compile(step)
        x = torch.randn(6, 8).to(dt)
        y = torch.tensor([0, 1, 2, 3, 0, 1])
        for _i in range(3):
            loss = c(x, y)
            out += [loss.float(), str(loss.dtype)]
        out += [p.float() for p in m.parameters()]
    return out


@scenario
def int_inputs(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(
        lambda x, y: (
            x + y,
            x * y,
            x // y,
            x % y,
            x / y,
            (x > y),
            x & y,
            x.float(),
            x.sum(),
            x.max(),
            x << 1,
            ~x,
            -x,
            x**2,
            x.to(torch.bool),
        )
    )
    out = []
    for dt in (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16):
        out += [f(torch.tensor([7, 5, 3], dtype=dt), torch.tensor([2, 3, 1], dtype=dt))]
    return out


@scenario
def same_obj_args(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    W = torch.full((2,), 3.0)
    f = compile(lambda a, b: a * 10 + b)
    g = compile(lambda x: x * 10 + W)
    out = []
    x = torch.ones(2)
    y = torch.full((2,), 2.0)
    out += [f(x, x), f(x, y), f(y, x), f(y, y), g(W), g(x), g(W)]
    h = compile(lambda a, b: a * 10 + b)
    out += [h(x, x.detach()), h(x, y)]
    k = compile(lambda a, b, c: (a.mul_(2), b + 1, c + a)[1:])
    z = torch.arange(8.0)
    out += [k(z[:4], z[2:6], z[4:]), z, k(z[:4], z[1:5], z[4:]), z, k(z[1:5], z[3:7], z[4:]), z]
    out += [k(torch.ones(4), torch.ones(4), torch.ones(4))]
    return out


@scenario
def sliding_windows(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    d = torch.arange(40.0)
    f = compile(lambda a, b: (a * b).sum())
    out = []
    for i in range(6):
        out += [f(d[i : i + 8], d[i + 1 : i + 9])]
    if hasattr(f, "compile_count"):
        assert f.compile_count == 1, (f.compile_count, f.last_miss)
    g = compile(lambda t: (t[:, :-1] * t[:, 1:]).sum())
    for n in (3, 4, 5, 6):
        x = torch.arange(8.0 * n).reshape(n, 8)
        out += [f(x[:, :-1], x[:, 1:]), g(x)]
    if hasattr(f, "compile_count"):
        assert f.compile_count <= 3, (f.compile_count, f.last_miss)
    return out


@scenario
def inputs_share(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(a, b):
        a.add_(1)
        return a + b

    c = compile(f)
    out = []
    x = torch.arange(6.0)
    y = torch.ones(6)
    out += [c(x, y), x, y]
    x = torch.arange(6.0)
    out += [c(x, x), x]
    x = torch.arange(6.0)
    out += [c(x[:4], x[2:]), x]
    x = torch.arange(6.0)
    out += [c(x[:3], x[3:]), x]
    x = torch.arange(6.0)
    out += [c(x, x.view(2, 3).view(-1)), x]
    x = torch.arange(6.0)
    y = torch.ones(6)
    out += [c(x, y), x, y]
    return out


@scenario
def input_written_grad(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(a, w):
        a.mul_(w)
        a[1:] += w[0]
        return (a * a).sum()

    c = compile(f)
    out = []
    for _i in range(2):
        w = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
        a = torch.ones(3)
        loss = c(a, w)
        loss.backward()
        out += [loss, a, w.grad, a.requires_grad]
        a = torch.ones(3)
        loss = c(a, w)
        a.sum().backward()
        out += [w.grad]
    return out


@scenario
def inplace_input_ops(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, y):
        x += y
        x[0] = 0
        y.zero_()
        return x

    c = compile(f)
    out = []
    for _i in range(2):
        x = torch.arange(6.0).reshape(2, 3)
        y = torch.ones(2, 3)
        r = c(x, y)
        out += [r is x, x, y, tuple(x.shape)]
    return out


@scenario
def python_values(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n, mode, flag, none, tup):
        y = x
        for i in range(n):
            y = y + i
        if mode == "a" and flag:
            y = y * 2
        if none is None:
            y = y - 1
        return y.reshape(tup), n, mode, n * 2

    c = compile(f)
    out = []
    for a in (
        (3, "a", True, None, (2, 3)),
        (4, "a", True, None, (2, 3)),
        (4, "b", True, None, (2, 3)),
        (4, "a", False, None, (3, 2)),
        (4, "a", False, 0, (3, 2)),
        (3, "a", 1, None, (-1,)),
        (3, "a", True, None, [6]),
    ):
        out += [c(torch.arange(6.0), *a)]
    return out


@scenario
def numbers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, a, b):
        y = x * a + b**2 - math.sqrt(a)
        if a > b:
            y = -y
        return y, a + b, a // b, a % b, -a, a / b, a > b, max(a, b), round(a, 1), int(a)

    c = compile(f)
    out = []
    for a, b in ((4.0, 2.0), (4.5, 2.0), (1.0, 2.0), (9, 2), (2, 9), (9, 2.5)):
        out += [c(torch.ones(2), a, b)]
    return out


@scenario
def nested_data_structs(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(batch):
        return {
            k: (v * 2 if not isinstance(v, (list, tuple)) else [t + 1 for t in v])
            for k, v in batch.items()
        }

    c = compile(f)
    r = c({"a": torch.ones(2), "b": [torch.ones(1), torch.zeros(2)]})
    return [r, c({"a": torch.ones(3), "b": ()}), c({"z": torch.ones(3)})]


@scenario
def dict_key_none_bool(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, mask=None, opts=None):
        if mask is not None:
            x = x * mask
        if opts and opts.get("neg"):
            x = -x
        return x

    c = compile(f)
    x = torch.ones(2)
    return [
        c(x),
        c(x, torch.zeros(2)),
        c(x, None, {"neg": True}),
        c(x, opts={"neg": False}),
        c(x, opts={}),
        c(x, mask=x, opts={"neg": 1}),
    ]


@scenario
def varargs_many(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(lambda *a, **k: sum(a) + sum(k.values()))
    o = torch.ones(2)
    return [f(o, o, o), f(o, z=o), f(o, o, z=o, y=o), f(o, y=o)]


@scenario
def keep100(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(lambda x, k: (x * k, (x + k).sum()))
    r = [f(torch.ones(40), float(i)) for i in range(100)]
    return r


@scenario
def lambda_loop(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    fs = [compile(lambda x, k=k: x * k) for k in (1.0, 2.0, 3.0)]
    return [f(torch.ones(2)) for f in fs] + [fs[0](torch.ones(2), 5.0)]
