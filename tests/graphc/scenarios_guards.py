"""What a compiled function must notice: modes, flags, hooks, modules, values around it."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from tests.graphc.scenario import data, mlp, scenario


@scenario
def train_eval(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    c = compile(m)
    out = []
    for _i in range(3):
        x = torch.randn(5, 4)
        c.train()
        out.append(c(x))
        c.eval()
        out.append(c(x))
        m.train()
        out.append(c(x))
    return out + list(m.state_dict().values())


@scenario
def grad_mode(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = []
    with torch.no_grad():
        y = c(x)
        out += [y, y.requires_grad]
    y = c(x)
    out += [y, y.requires_grad]
    y.sum().backward()
    out += [p.grad for p in m.parameters()]
    with torch.inference_mode():
        y = c(x)
        out += [y.requires_grad]
    with torch.no_grad(), torch.enable_grad():
        y = c(x)
        out += [y.requires_grad]
    return out


@scenario
def requires_grad_change(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = []
    c(x).sum().backward()
    out += [p.grad for p in m.parameters()]
    m.zero_grad()
    for p in m[0].parameters():
        p.requires_grad_(False)
    c(x).sum().backward()
    out += [p.grad for p in m.parameters()]
    m.zero_grad()
    for p in m[0].parameters():
        p.requires_grad = True
    c(x).sum().backward()
    out += [p.grad for p in m.parameters()]
    m.zero_grad()
    x.requires_grad_()
    c(x).sum().backward()
    out += [x.grad]
    return out


@scenario
def dtype_change(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = [c(x)]
    m.double()
    y = c(x.double())
    out += [y, str(y.dtype)]
    m.float()
    y = c(x)
    out += [y, str(y.dtype)]
    return out


@scenario
def default_dtype(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    f = compile(lambda x: x + torch.ones(3) * 0.1)
    x = torch.ones(3)
    out = [f(x)]
    torch.set_default_dtype(torch.float64)
    try:
        y = f(x)
        out += [y, str(y.dtype)]
    finally:
        torch.set_default_dtype(torch.float32)
    y = f(x)
    out += [str(y.dtype)]
    return out


@scenario
def hooks_module(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = [c(x)]
    h = m[0].register_forward_hook(lambda mod, i, o: o * 2)
    out += [c(x)]
    h2 = m.register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    out += [c(x)]
    h.remove()
    out += [c(x)]
    h2.remove()
    out += [c(x)]
    return out


@scenario
def hooks_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = []
    c(x).sum().backward()
    out += [m[0].weight.grad.clone()]
    m.zero_grad()
    h = m[0].weight.register_hook(lambda g: g * 3)
    c(x).sum().backward()
    out += [m[0].weight.grad.clone()]
    m.zero_grad()
    h.remove()
    c(x).sum().backward()
    out += [m[0].weight.grad.clone()]
    return out


@scenario
def hooks_tensor_in_step(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    x = torch.randn(5, 4)
    out = []

    def step(x):
        m.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        return loss

    c = compile(step)
    c(x)
    out += [m[0].weight.grad.clone()]
    h = m[0].weight.register_hook(lambda g: g * 3)
    c(x)
    out += [m[0].weight.grad.clone()]
    h2 = m[0].weight.register_hook(lambda g: g + 1)
    c(x)
    out += [m[0].weight.grad.clone()]
    h.remove()
    c(x)
    out += [m[0].weight.grad.clone()]
    m[0].weight.register_hook(lambda g: g + 5)
    h2.remove()
    c(x)
    out += [m[0].weight.grad.clone()]
    return out


@scenario
def full_backward_hook(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    x = torch.randn(5, 4)
    out = []

    def step(x):
        m.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        return loss

    c = compile(step)
    c(x)
    h = m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    c(x)
    out += [p.grad.clone() for p in m.parameters()]
    h.remove()
    c(x)
    out += [p.grad.clone() for p in m.parameters()]
    return out


@scenario
def module_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = torch.randn(5, 4)
    out = [c(x)]
    m[1] = nn.Tanh()
    out += [c(x)]
    m[2] = nn.Linear(8, 2)
    out += [c(x)]
    m.add_module("more", nn.Sigmoid())
    out += [c(x)]
    del m[1]
    out += [c(x)]
    m[0].weight = nn.Parameter(torch.ones(8, 4))
    out += [c(x)]
    return out


@scenario
def relu_inplace_flag(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.1))
    c = compile(m)
    x = torch.randn(3, 4)
    out = [c(x)]
    m[1].negative_slope = 0.5
    out += [c(x)]
    m[1].negative_slope = 1
    out += [c(x)]
    return out


SCALE = 2.0


FLAG = True


CFG = {"a": 1.0, "b": [1, 2, {"c": 3}], "mode": "x"}


@scenario
def closure_global(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    global SCALE, FLAG
    SCALE = 2.0
    FLAG = True
    k = 3

    def f(x):
        return x * SCALE + k if FLAG else x - SCALE

    c = compile(f)
    x = torch.ones(3)
    out = [c(x)]
    SCALE = 5.0
    out += [c(x)]
    k = 7
    out += [c(x)]
    FLAG = False
    out += [c(x)]
    SCALE = torch.tensor(4.0)
    out += [c(x)]
    SCALE = 2.0
    out += [c(x)]
    return out


@scenario
def config_container(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    CFG.update({"a": 1.0, "b": [1, 2, {"c": 3}], "mode": "x"})

    def f(x):
        y = x * CFG["a"] + CFG["b"][2]["c"]
        return y if CFG["mode"] == "x" else -y

    c = compile(f)
    x = torch.ones(3)
    out = [c(x)]
    CFG["a"] = 2.0
    out += [c(x)]
    CFG["b"][2]["c"] = 9
    out += [c(x)]
    CFG["mode"] = "y"
    out += [c(x)]
    CFG["b"] = [0, 0, {"c": 1}]
    out += [c(x)]
    return out


@scenario
def config_len(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    L = [1, 2]
    S = {3, 4}
    D = {"u": 1}

    def f(x):
        for loss in L:
            x = x + loss
        for s in S:
            x = x * s
        for k in D:
            x = x - D[k]
        return x

    c = compile(f)
    x = torch.ones(3)
    out = [c(x)]
    L.append(10)
    out += [c(x)]
    S.add(7)
    out += [c(x)]
    D["v"] = 4
    out += [c(x)]
    L.clear()
    out += [c(x)]
    del D["u"]
    out += [c(x)]
    return out


class Cfg:
    lr = 2.0
    sizes = [1, 2]


class Mode(enum.Enum):
    A = 1
    B = 2


class Helper:
    factor = 3.0

    def __init__(s, k):
        s.k = k

    def go(s, x):
        return x * s.k * s.factor * GLOB

    @property
    def half(s):
        return s.k / 2 * GLOB

    @staticmethod
    def st(x):
        return x + GLOB


GLOB = 1.0


@scenario
def class_attrs(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    global GLOB
    Cfg.lr = 2.0
    Cfg.sizes[:] = [1, 2]
    Helper.factor = 3.0
    GLOB = 1.0

    def f(x, mode):
        h = Helper(2.0)
        y = h.go(x) * Cfg.lr + Cfg.sizes[1] + h.half + Helper.st(x)
        return y if mode is Mode.A else -y

    c = compile(f)
    x = torch.ones(2)
    out = [c(x, Mode.A), c(x, Mode.B)]
    Cfg.lr = 5.0
    out += [c(x, Mode.A)]
    Cfg.sizes.append(3)
    Cfg.sizes[1] = 9
    out += [c(x, Mode.A)]
    Helper.factor = 1.0
    out += [c(x, Mode.A)]
    GLOB = 4.0
    out += [c(x, Mode.A)]
    Helper.go = lambda s, x: x * 100
    out += [c(x, Mode.A)]

    def go(s, x):
        return x * s.k * s.factor * GLOB

    Helper.go = go
    out += [c(x, Mode.A)]
    return out


@scenario
def module_cfg(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.cfg = {"k": 2.0}
            s.l = [1, 2]
            s.inner = Helper(1.0)

        def forward(s, x):
            y = x * s.cfg["k"]
            for i in s.l:
                y = y + i
            return y * s.inner.k

    m = M()
    c = compile(m)
    x = torch.ones(2)
    out = [c(x)]
    m.cfg["k"] = 3.0
    out += [c(x)]
    m.l.append(5)
    out += [c(x)]
    m.l[0] = 7
    out += [c(x)]
    m.inner.k = 4.0
    out += [c(x)]
    m.cfg = {"k": 1.0}
    out += [c(x)]
    return out


@scenario
def hook_global(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    global GLOB
    GLOB = 1.0
    m = mlp(torch, nn)
    x = data(torch)[0]
    out = []
    m[0].weight.register_hook(lambda g: g * GLOB)
    m[1].register_forward_hook(lambda mod, i, o: o * GLOB)

    def step(x):
        m.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        return loss

    c = compile(step)
    out += [c(x), m[0].weight.grad.clone()]
    GLOB = 3.0
    out += [c(x), m[0].weight.grad.clone()]
    return out


@scenario
def numpy_capture(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    A = np.ones(3, "f")
    out = []
    f = compile(lambda x: x + torch.from_numpy(A))
    out += [f(torch.ones(3))]
    A[0] = 7
    out += [f(torch.ones(3))]
    g = compile(lambda x: x + torch.tensor(A))
    out += [g(torch.ones(3))]
    A[1] = 9
    out += [g(torch.ones(3))]
    h = compile(lambda x: x * torch.as_tensor(A))
    out += [h(torch.ones(3))]
    A[2] = 9
    out += [h(torch.ones(3))]
    L = [1.0, 2.0, 3.0]
    k = compile(lambda x: x * torch.tensor(L))
    out += [k(torch.ones(3))]
    L[0] = 8.0
    out += [k(torch.ones(3))]
    q = compile(lambda x, a: x + torch.from_numpy(a))
    out += [q(torch.ones(3), np.ones(3, "f")), q(torch.ones(3), np.zeros(3, "f"))]
    B = np.ones(3, "f")
    out += [q(torch.ones(3), B)]
    B[0] = 5
    out += [q(torch.ones(3), B)]
    return out


@scenario
def param_list_dict(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.p = nn.ParameterList([nn.Parameter(torch.eye(3)) for _ in range(2)])
            s.d = nn.ParameterDict({"a": nn.Parameter(torch.ones(3, 1))})

        def forward(s, x, c="a"):
            for p in s.p:
                x = x @ p
            return x @ s.d[c]

    m = M()
    c = compile(m)
    x = torch.ones(2, 3)
    out = [c(x)]
    m.p.append(nn.Parameter(2 * torch.eye(3)))
    out += [c(x)]
    m.d["b"] = nn.Parameter(torch.zeros(3, 2))
    out += [c(x, "b"), c(x, c="a")]
    c(x).sum().backward()
    out += [p.grad for p in m.parameters()]
    return out
