"""Small models trained whole: recurrent, adversarial, convolutions of any size, a GPT."""

# ruff: noqa: B023  (each step is called in its own turn of the loop)

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graphc.scenario import data, scenario


@scenario
def rnn_models(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    out = []
    for kind in (nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        r = kind(3, 4, batch_first=True)
        h = nn.Linear(4, 2)
        ps = list(r.parameters()) + list(h.parameters())
        o = torch.optim.Adam(ps, lr=0.05)

        def step(x, y):
            o.zero_grad()
            loss = F.mse_loss(h(r(x)[0][:, -1]), y)
            loss.backward()
            o.step()
            return loss

        c = compile(step)
        for i in range(3):
            out += [
                c(
                    torch.from_numpy(
                        np.random.default_rng(i).standard_normal((2, 3, 3)).astype("f")
                    ),
                    torch.ones(2, 2),
                )
            ]
        cr = compile(r)
        y, hn = cr(torch.ones(2, 3, 3))
        out += [y, hn]
    return out


@scenario
def grad_penalty(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    D = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    o = torch.optim.Adam(D.parameters(), lr=0.01)
    out = []

    def step(x):
        o.zero_grad()
        x = x.clone().requires_grad_()
        d = D(x)
        (g,) = torch.autograd.grad(d.sum(), x, create_graph=True)
        gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
        loss = d.mean() + 10 * gp
        loss.backward()
        o.step()
        return loss, gp

    c = compile(step)
    for i in range(3):
        out += list(c(data(torch, seed=i)[0]))
    return out + list(D.parameters())


@scenario
def gan(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))
    D = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    og = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.99))
    od = torch.optim.Adam(D.parameters(), lr=0.01)
    out = []

    def step(x, z):
        od.zero_grad()
        f = G(z)
        dl = F.binary_cross_entropy_with_logits(
            D(x), torch.ones(x.shape[0], 1)
        ) + F.binary_cross_entropy_with_logits(D(f.detach()), torch.zeros(x.shape[0], 1))
        dl.backward()
        od.step()
        og.zero_grad()
        gl = F.binary_cross_entropy_with_logits(D(f), torch.ones(x.shape[0], 1))
        gl.backward()
        og.step()
        return {
            "d": dl.detach(),
            "g": gl.detach(),
            "n": x.shape[0],
            "lr": og.param_groups[0]["lr"],
            "k": 2.5,
        }

    c = compile(step)
    for i in range(4):
        out += [
            c(
                data(torch, seed=i)[0],
                torch.from_numpy(np.random.default_rng(i).standard_normal((6, 2)).astype("f")),
            )
        ]
    if hasattr(c, "compile_count"):
        assert c.compile_count == 1, (c.compile_count, c.last_miss)
    return out + list(G.parameters()) + list(D.parameters())


@scenario
def symbolic_conv(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    m = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    out = []

    def step(x, y):
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        return loss

    c = compile(step)
    cm = compile(m)
    for i, n in enumerate((6, 4, 3, 5, 7, 2)):
        x = torch.from_numpy(np.random.default_rng(i).standard_normal((n, 2, 8, 8)).astype("f"))
        y = torch.arange(n) % 3
        out += [c(x, y), cm(x)]
    if hasattr(c, "compile_count"):
        assert c.compile_count == 2, (c.compile_count, c.last_miss)
    x = torch.ones(1, 2, 8, 8)
    m.eval()
    out += [cm(x)]
    return out + list(m.parameters())


@scenario
def gpt(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Block(nn.Module):
        def __init__(s, d, h):
            super().__init__()
            s.n1 = nn.LayerNorm(d)
            s.n2 = nn.LayerNorm(d)
            s.qkv = nn.Linear(d, 3 * d)
            s.o = nn.Linear(d, d)
            s.f = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
            s.h = h

        def forward(s, x):
            B, T, C = x.shape
            q, k, v = s.qkv(s.n1(x)).split(C, dim=2)

            def sh(t):
                return t.view(B, T, s.h, C // s.h).transpose(1, 2)

            y = F.scaled_dot_product_attention(sh(q), sh(k), sh(v), is_causal=True)
            x = x + s.o(y.transpose(1, 2).contiguous().view(B, T, C))
            return x + s.f(s.n2(x))

    class GPT(nn.Module):
        def __init__(s):
            super().__init__()
            s.t = nn.Embedding(11, 8)
            s.p = nn.Embedding(16, 8)
            s.b = nn.ModuleList([Block(8, 2) for _ in range(2)])
            s.n = nn.LayerNorm(8)
            s.h = nn.Linear(8, 11, bias=False)

        def forward(s, i, y=None):
            _B, T = i.size()
            x = s.t(i) + s.p(torch.arange(T))
            for b in s.b:
                x = b(x)
            z = s.h(s.n(x))
            return z if y is None else (z, F.cross_entropy(z.view(-1, z.size(-1)), y.reshape(-1)))

    torch.manual_seed(0)
    m = GPT().double()
    o = torch.optim.AdamW(m.parameters(), lr=0.01)
    out = []

    def step(i, y):
        o.zero_grad()
        _z, loss = m(i, y)
        loss.backward()
        o.step()
        return loss

    c = compile(step)
    cm = compile(m)
    for k, (b, t) in enumerate(((3, 8), (3, 6), (3, 5), (2, 12))):
        i = torch.from_numpy(np.random.default_rng(k).integers(0, 11, (b, t + 1)))
        out += [c(i[:, :-1], i[:, 1:])]
    if hasattr(c, "compile_count"):
        assert c.compile_count <= 3, (c.compile_count, c.last_miss)
    for t in (4, 5, 6, 1):
        out += [cm(torch.arange(t)[None])]
    return out + list(m.parameters())
