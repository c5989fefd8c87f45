"""Backward passes through compiled functions: hooks, several forwards, own Functions."""

from __future__ import annotations

from typing import Any

from tests.graphc.scenario import data, mlp, scenario


@scenario
def hook_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    k = compile(lambda g: g * 2 + 1)
    x = data(torch)[0]
    out = []
    w = m[0].weight
    w.register_hook(lambda g: k(g))
    c(x).sum().backward()
    out += [w.grad]
    y = m(x)
    y.register_hook(lambda g: c(x).detach() + g)
    y.sum().backward()
    out += [w.grad]
    return out


@scenario
def two_forwards(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    a, b = data(torch, seed=1)[0], data(torch, seed=2)[0]
    out = []
    y = c(a)
    z = c(b)
    y.sum().backward()
    z.square().sum().backward()
    out += [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    (c(a) * c(b)).sum().backward()
    out += [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    y = c(c.__call__(a) @ torch.ones(3, 4))
    y.sum().backward()
    out += [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    y = c(a)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    out += [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    g = torch.autograd.grad(c(a).sum(), list(m.parameters()))
    out += list(g)
    return out


@scenario
def backward_args(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = data(torch)[0]
    out = []
    y = c(x)
    y.backward(torch.ones_like(y))
    out += [p.grad.clone() for p in m.parameters()]
    y = c(x)
    g = torch.autograd.grad(y, [m[0].weight], grad_outputs=torch.ones_like(y))
    out += list(g)
    y = c(x.requires_grad_())
    out += list(torch.autograd.grad(y.sum(), [x]))
    out += [y.requires_grad, y.is_leaf, y.grad_fn is not None]
    z = c(x)[0, 0] * 2 + c(x).mean()
    z.backward()
    out += [x.grad]
    return out


@scenario
def retain_grad_output(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)
    c = compile(m)
    x = data(torch)[0]
    out = []
    y = c(x)
    y.retain_grad()
    (y * y).sum().backward()
    out += [y.grad]
    y = c(x)
    y.register_hook(lambda g: g * 0)
    m.zero_grad()
    (y * y).sum().backward()
    out += [p.grad for p in m.parameters()]
    return out


@scenario
def checkpoint_detach(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = mlp(torch, nn)

    def f(x):
        h = m[0](x).detach()
        return m[2](F.relu(h)), h

    c = compile(f)
    out = []
    for _i in range(2):
        m.zero_grad()
        y, h = c(data(torch)[0])
        y.sum().backward()
        out += [p.grad for p in m.parameters()] + [h.requires_grad]
    return out


@scenario
def custom_function(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class MyReLU(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            gx = g.clone()
            gx[x < 0] = 0
            return gx * 7

    m = mlp(torch, nn)

    def f(x):
        return MyReLU.apply(m(x))

    def step(x):
        m.zero_grad()
        loss = MyReLU.apply(m(x)).sum()
        loss.backward()
        return loss

    c = compile(f)
    out = []
    for i in range(2):
        m.zero_grad()
        y = c(data(torch, seed=i)[0])
        y.sum().backward()
        out += [y] + [p.grad.clone() for p in m.parameters()]
    s = compile(step)
    for i in range(2):
        out += [s(data(torch, seed=i)[0])] + [p.grad.clone() for p in m.parameters()]
    return out
