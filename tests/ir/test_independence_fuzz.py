"""Rows that are proven independent, in random graphs: other rows are replaced, rows change places,
and nothing else changes in a row's results."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir.dim import Dim
from graphc.ir.graph import Graph, Node
from graphc.ir.independence import dependence
from graphc.ir.independence.call import mentions
from graphc.ir.interpret import evaluate
from graphc.ir.types import TensorType
from tests.fuzz import generate
from tests.fuzz.maker import Traits


def proven(graph: Graph, name: str, shared: set[int]) -> list[Node]:
    """The values of a graph whose rows along a named dim are proven independent."""
    found = []
    for node in graph.nodes:
        if isinstance(node.type, TensorType) and node.shape[:1] == (Dim.var(name),) and (
            node.op.name != "input"
        ):
            part = Graph("part", graph.inputs, (node,), graph.env)
            if dependence(part, name, shared) is None:
                found.append(node)
    return found


def run(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    try:
        return evaluate(graph, arrays, TABLE)
    except (IndexError, ZeroDivisionError, RuntimeError):  # a value that an operator refuses
        return None


def close(have: np.ndarray, want: np.ndarray) -> bool:
    if have.dtype.kind in "biu":
        return bool((have == want).all())
    wide = np.complex128 if have.dtype.kind == "c" else np.float64
    have, want = have.astype(wide), want.astype(wide)
    return np.allclose(have, want, rtol=2e-2, atol=1e-3, equal_nan=True)


def try_case(seed: int, seen: Counter[str]) -> None:
    case = generate.generate(seed)
    graph, rng = case.graph, np.random.default_rng(seed)
    for name in graph.env.hints:
        size = Dim.var(name)
        shared = {i for i, node in enumerate(graph.inputs) if not mentions(node.shape, name)}
        nodes = proven(graph, name, shared)
        if not nodes:
            continue
        part = Graph("part", graph.inputs, tuple(nodes), graph.env)
        arrays = case.arrays(graph.env.hints)
        rows = [i for i, node in enumerate(graph.inputs) if node.shape[:1] == (size,)]
        want = run(part, arrays)
        order = rng.permutation(graph.env.hints[name])
        turned = [a[order] if i in rows else a for i, a in enumerate(arrays)]
        have = run(part, turned)
        other = [np.concatenate([a[:1], a[:-1]]) if i in rows else a for i, a in enumerate(arrays)]
        kept = run(part, other)
        if want is None or have is None or kept is None:
            continue
        for node, a, b, c in zip(nodes, want, have, kept, strict=True):
            seen[node.op.name] += 1
            assert close(b, a[order]), f"seed {seed}: {node.op.name} by {name}\n{graph}"
            assert close(c[0], a[0]), f"seed {seed}: {node.op.name} by {name}\n{graph}"


@pytest.mark.parametrize("count", [60, pytest.param(6000, marks=pytest.mark.slow)])
def test_random_graphs(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def traits(rng: random.Random) -> Any:
        return Traits(symbolic=True, failing=rng.random() < 0.1)

    monkeypatch.setattr(generate, "traits_of", traits)
    monkeypatch.setattr(generate, "is_unrolled", lambda seed: False)
    seen: Counter[str] = Counter()
    for seed in range(count):
        try_case(seed, seen)
    print(seen.total(), seen)
    assert seen.total() > count // 4 and len(seen) > (20 if count < 100 else 80)
