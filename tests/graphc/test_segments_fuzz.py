"""Random programs with demands at random places: eager mode and segments agree, gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.built import CompileCounter
from tests.graphc import tiers
from tests.graphc.scenario import compare, flat


class Program:
    """A random sequence of steps on a pool of [3, 4] tensors, decided by its seed alone."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.steps = [
            (str(rng.choice(KINDS)), int(rng.integers(1 << 20)), int(rng.integers(1 << 20)))
            for _ in range(int(rng.integers(5, 14)))
        ]
        self.log: list[Any] = []

    def __call__(self, x: Any, w: Any) -> Any:
        pool = [x * 1.0, w * 1.0]
        kept: list[Any] = []
        for kind, i, j in self.steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            if kind == "add":
                pool.append(a + b * 0.5)
            elif kind == "mul":
                pool.append((a * b).tanh())
            elif kind == "unary":
                pool.append([a.sin, a.exp, a.sigmoid, a.relu][j % 4]().clamp(-3, 3))
            elif kind == "matmul":
                pool.append((a @ b.t()) @ b * 0.1)
            elif kind == "number":
                pool.append(a * float(f"{1 + 0.1 * (j % 5):.2f}"))
            elif kind == "item":
                self.log.append(a.sum().item())
            elif kind == "branch":
                pool.append(a + 1 if (a.mean() > b.mean()).item() else a - b)
            elif kind == "mask":
                picked = a[b > 0]
                self.log.append(len(picked))
                pool.append(b * (picked.sum() * 0.1))
            elif kind == "inplace":
                a.mul_(0.5).add_(0.1)
            elif kind == "row":
                a[j % 3] = b[(i >> 3) % 3] * 2
            elif kind == "view":
                view = a.t() if j % 2 else a[1:]
                kept.append(view)
            elif kind == "view write" and kept:
                kept[j % len(kept)].mul_(0.75)
            elif kind == "detach":
                pool.append(a.detach() + b)
            elif kind == "no_grad":
                with graphc.no_grad():
                    self.log.append(float((a * b).sum()))
                    a.detach().add_(0.01)
            elif kind == "text":
                self.log.append(f"{a.mean():.3f}")
            elif kind == "drop" and len(pool) > 3:
                pool.pop(i % len(pool))
        total = sum((p * p).mean() for p in pool) + sum(k.mean() for k in kept)
        return total, pool[-1], kept[-1:]


KINDS = (
    "add mul unary matmul number item branch mask inplace row view drop detach no_grad text "
    "add mul unary item branch"
).split()
KINDS.append("view write")


def outcomes(seed: int, compile: Any) -> tuple[list[list[Any] | None], list[Any]]:
    program = Program(seed)
    run = compile(program.__call__)
    found: list[list[Any] | None] = []
    for call in range(4):
        rng = np.random.default_rng(seed * 10 + call % 3)
        x = graphc.tensor(rng.standard_normal((3, 4)).astype("f").tolist())
        w = graphc.tensor(rng.standard_normal((3, 4)).astype("f").tolist(), requires_grad=True)
        if call == 2:  # a gradient more
            x.requires_grad_()
        try:
            result = run(x, w)
            result[0].backward()
        except RuntimeError as error:
            assert "modified by an inplace" in str(error) or "not require grad" in str(error)
            found.append(["no grad"] if "not require" in str(error) else None)
            continue
        found.append(flat([result, w.grad, x.grad]))
    return found, program.log


def check(seed: int, mode: str, patch: pytest.MonkeyPatch) -> None:
    tiers.use(mode, patch)
    expected, log = outcomes(seed, lambda f: f)
    found, said = outcomes(seed, graphc.compile)
    compare(flat(log), flat(said), 1e-4)
    for a, b in zip(expected, found, strict=True):
        if a is not None:  # segments may still know a value that eager mode has lost
            assert b is not None
            compare(a, b, 1e-4)


@pytest.mark.parametrize("mode", tiers.MODES)
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, mode, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 300))
def test_many_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, tiers.MODES[seed % 4], monkeypatch)


def test_known_branches_do_not_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("second time", monkeypatch)

    def f(x: Any) -> Any:
        y = x * 2
        return (y + 1).sum() if y.sum() > 0 else (y - 1).exp().sum()

    run = graphc.compile(f)
    inputs = [graphc.ones(3), -graphc.ones(3)]
    for _ in range(2):
        for x in inputs:
            run(x)
    before = CompileCounter.count
    for _ in range(3):
        for x in inputs:
            assert run(x).item() == pytest.approx(f(x).item())
    assert CompileCounter.count == before
