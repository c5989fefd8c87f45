"""Functions that need values in the middle: PyTorch, graphc eager and graphc compiled agree.

Each scenario is run by all three (scenario.py); the compiled one must stop compiling once it has
seen every pattern of branches.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import graphc
from graphc.engine.built import CompileCounter
from tests.graphc import tiers
from tests.graphc.scenario import compare, flat, identity, mlp
from tests.graphc.segment_scripts import SCRIPTS, numbers
from tests.reference import torch


def run_script(name: str, torch: Any, compile: Any) -> list[Any]:
    torch.manual_seed(0)
    return flat(SCRIPTS[name](torch, compile))


@pytest.mark.parametrize("mode", tiers.MODES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_segments_agree_with_eager_and_with_torch(
    name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.use(mode, monkeypatch)
    expected = run_script(name, torch, identity)
    compare(expected, run_script(name, graphc, identity), 2e-5)
    compare(expected, run_script(name, graphc, graphc.compile), 2e-5)


def gpt(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(16), nn.Linear(16, 48)
            self.out, self.mlp = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm(x)).split(c, dim=2)
            q, k, v = (z.view(b, t, 2, c // 2).transpose(1, 2) for z in (q, k, v))
            scores = (q @ k.transpose(-2, -1)) * (c // 2) ** -0.5
            mask = torch.tril(torch.ones(t, t)) == 0
            weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
            y = (weights @ v).transpose(1, 2).contiguous().view(b, t, c)
            x = x + self.out(y)
            return x + self.mlp(F.gelu(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(13, 16), nn.Embedding(64, 16)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(16, 13)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(1)
    return GPT()


def generate(torch: Any, net: Any, compile: Any, sample: bool, count: int) -> Any:
    def run(ids: Any, end: int) -> Any:
        said = []
        for _ in range(count):
            logits = net(ids)[:, -1, :]
            if sample:
                token = torch.multinomial(torch.softmax(logits, -1), 1)
            else:
                token = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], dim=1)
            said.append(token.item())
            if said[-1] == end:
                break
        return ids, said

    go = compile(run)
    with torch.no_grad():
        return [go(torch.tensor([[1, 2, 3][: 1 + i]]), 99) for i in range(2)]


@pytest.mark.parametrize("sample", [pytest.param(False, marks=pytest.mark.slow), True])
def test_growing_contexts_compile_a_few_times(sample: bool) -> None:
    torch.manual_seed(0)
    expected = flat(generate(torch, gpt(torch), identity, sample, 12))
    graphc.manual_seed(0)
    compare(expected, flat(generate(graphc, gpt(graphc), identity, sample, 12)), 1e-5)
    graphc.manual_seed(0)
    before = CompileCounter.count
    compare(expected, flat(generate(graphc, gpt(graphc), graphc.compile, sample, 12)), 1e-5)
    assert CompileCounter.count - before <= 5


def branching(x: Any) -> Any:
    y = x * 2
    return y + 1 if y.sum() > 0 else y.exp()


def test_explain_names_the_lines_and_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("compiled", monkeypatch)
    run = graphc.compile(branching)
    for sign in (1.0, -1.0, 1.0):
        run(graphc.ones(3) * sign)
    report = str(graphc.explain(run, graphc.ones(3)))
    assert "3 compiled segments" in report and "2.0 a call" in report, report
    assert "bool(tensor)" in report and "test_segments.py:" in report and "ms a call" in report


def test_fullgraph_is_an_error_that_names_the_line_and_the_cure() -> None:
    with pytest.raises(RuntimeError, match=r"bool\(tensor\).*Cure(.|\n)*test_segments.py"):
        graphc.compile(branching, fullgraph=True)(graphc.ones(3))


def test_a_gradient_that_passes_inside_a_segment() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        z = (y * y).sum()
        z.item()
        return graphc.autograd.grad(z, y)

    run = graphc.compile(f)
    for k in range(3):
        (found,) = run(graphc.full((3,), float(k), requires_grad=True))
        assert found.tolist() == [4.0 * k] * 3


def test_threads_share_the_segments() -> None:
    run = graphc.compile(branching)
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        found[n] = [
            run(graphc.full((3,), float(n - 2 + 0.5 * i))).tolist() for i in range(20)
        ]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        for i in range(20):
            expected = branching(graphc.full((3,), float(n - 2 + 0.5 * i))).tolist()
            assert found[n][i] == pytest.approx(expected, rel=1e-5)


def test_a_number_that_is_only_returned_ends_no_segment() -> None:
    net = mlp(graphc, graphc.nn)
    opt = graphc.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.item(), {"count": (x > 0).sum().item()}, x.sum()

    run = graphc.compile(step)
    x = numbers(graphc, 6, 4)
    found = [run(x) for _ in range(3)]
    assert run.segments is None and run.compile_count == 1
    assert all(type(f[0]) is float and type(f[1]["count"]) is int for f in found)
    assert found[0][0] > found[1][0] > found[2][0]
    assert found[0][1]["count"] == int((x > 0).sum())

    def half(x: Any) -> Any:
        return x.mean().item() / 2, [x.sum().item()]

    assert flat(graphc.compile(half)(x)) == pytest.approx(flat(half(x)), rel=1e-6)


def test_a_reshape_that_copies_is_made_concrete_once() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.sum().item()
        z = y.t() * 2
        flat = z.reshape(-1)
        flat.add_(1)
        z.sum().item()
        return z, flat

    run, x = graphc.compile(f), graphc.arange(6.0).reshape(2, 3)
    for _ in range(4):
        for found, expected in zip(run(x), f(x), strict=True):
            assert found.tolist() == expected.tolist() and found.stride() == expected.stride()


READERS = {
    "histc": lambda t, x: t.histc(x, 4, -1, 1),
    "mode": lambda t, x: t.mode((x * 4).floor()).values,
    "frexp": lambda t, x: t.frexp(x)[0],
    "nextafter": lambda t, x: t.nextafter(x, x + 1),
    "gcd": lambda t, x: t.gcd((x * 9).long(), (x * 6).long()),
    "bincount": lambda t, x: t.bincount((x * 9).long().abs()),
    "unique": lambda t, x: t.unique((x * 2).floor(), return_counts=True)[1],
    "nonzero": lambda t, x: t.nonzero(x > 0),
    "masked_select": lambda t, x: t.masked_select(x, x > 0),
    "multinomial": lambda t, x: t.multinomial(x.abs(), 2),
    "repeat_interleave": lambda t, x: x.repeat_interleave((x * 3).long().abs()),
    "split": lambda t, x: x.split([*(x[:2] > 9).long().add(2).tolist(), x.numel() - 4])[2],
}


@pytest.mark.parametrize("name", READERS)
def test_functions_that_read_what_the_call_computed(name: str) -> None:
    def f(t: Any, x: Any) -> Any:
        return READERS[name](t, t.sin(x) * 0.9) * 2

    run = graphc.compile(lambda x: f(graphc, x))
    for size in (7, 7, 9, 7):
        x = torch.linspace(-2, 2, size)
        torch.manual_seed(size)
        expected = f(torch, x)
        graphc.manual_seed(size)
        found = run(graphc.from_numpy(x.numpy()))
        assert found.shape == expected.shape
        assert found.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-6)
