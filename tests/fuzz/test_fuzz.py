"""The fuzzer: a short run of it, what it draws, and that it finds planted bugs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.doubt.case import Case
from graphc.doubt.evaluate import Evaluator
from graphc.ir import dtypes
from graphc.ir.op import REGISTRY
from tests.fuzz.__main__ import config
from tests.fuzz.check import Tally, check, count
from tests.fuzz.generate import MOST_NODES, RECIPES, generate, is_unrolled
from tests.fuzz.recipes import OPTED_OUT
from tests.fuzz.report import report


@pytest.fixture(autouse=True)
def _numbers_may_overflow() -> Any:
    with np.errstate(all="ignore"):
        yield


def test_every_operator_has_a_recipe_or_a_reason() -> None:
    assert not REGISTRY.keys() - RECIPES.keys() - OPTED_OUT.keys(), "write a recipe"
    assert not OPTED_OUT.keys() - REGISTRY.keys()
    assert not RECIPES.keys() & OPTED_OUT.keys()
    assert all(len(reason) > 20 for reason in OPTED_OUT.values())


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_a_few_graphs(start: int) -> None:
    settings, tally = config(2), Tally()
    for seed in range(start, start + 20):
        case = generate(seed)
        count(tally, case)
        failure = check(case, settings, tally)
        assert failure is None, report(case, f"seed {seed}: {failure}")
    assert tally.events["graphs"] == 20


@pytest.mark.slow
def test_many_graphs(repository: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--count", "600", "--seed", "50000"]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 failures in 600 graphs" in result.stdout


# --- what is drawn ---------------------------------------------------------------------------


def test_a_seed_gives_one_case() -> None:
    for seed in range(8):
        first, again = generate(seed), generate(seed)
        dims = dict(first.graph.env.hints)
        assert str(first.graph) == str(again.graph) and first.mutated == again.mutated
        for a, b in zip(first.arrays(dims), again.arrays(dims), strict=True):
            assert a.tobytes() == b.tobytes()


def traits(case: Case) -> set[str]:
    """What kinds of things a case holds."""
    graph = case.graph
    found = {node.dtype.name for node in graph.inputs}
    found |= {"symbolic"} if graph.env.hints else set()
    found |= {"mutated"} if case.mutated else set()
    found |= {"gradient"} if case.forward is not None else set()
    found |= {f"rank {len(node.shape)}" for node in graph.inputs}
    for node in graph.nodes:
        found |= {"sub-graph"} if node.graphs else set()
        found |= {"a view of a view"} if _is_view(node) and _is_view(node.inputs[0]) else set()
        strided = node.op.name == "slice" and any(s > 1 for s in node.attrs["steps"])
        found |= {"strided"} if strided or node.op.name == "as_strided" else set()
        found |= {"broadcast"} if _broadcasts(node) else set()
    return found


def _is_view(node: Any) -> bool:
    return bool(node.op.view)


def _broadcasts(node: Any) -> bool:
    return node.op.family == "binary" and node.inputs[0].shape != node.inputs[1].shape


def test_every_dtype_and_kind_of_graph_is_drawn() -> None:
    wanted = {d.name for d in dtypes.ALL}
    wanted |= {"symbolic", "mutated", "gradient", "sub-graph", "a view of a view", "strided"}
    wanted |= {"broadcast", "rank 0", "rank 1", "rank 2", "rank 3", "rank 4"}
    sizes = Counter[bool]()
    for seed in range(300):
        case = generate(seed)
        wanted -= traits(case)
        nodes = sum(n.op.name not in ("input", "get") for n in (case.forward or case.graph).nodes)
        sizes[nodes > 15] += 1
        assert nodes <= MOST_NODES or is_unrolled(seed)
        if not wanted and sizes[True] > 5:
            break
    assert not wanted


def edges(case: Case) -> set[str]:
    """Which values at the edge of what an operator takes a case meets, on NumPy."""
    graph, dims = case.graph, dict(case.graph.env.hints)
    evaluator = Evaluator(dims)
    found: set[str] = set()
    for node, array in zip(graph.inputs, case.arrays(dims), strict=True):
        evaluator.give(node, array)
        found |= {"empty"} if array.size == 0 else {"0-d"} if array.ndim == 0 else set()
        if node.dtype.is_float:
            wide = array.astype(np.float64)
            found |= {"NaN"} if np.isnan(wide).any() else set()
            found |= {"inf"} if np.isinf(wide).any() else set()
            found |= {"-0.0"} if (np.signbit(wide) & (wide == 0)).any() else set()
    for node in graph.nodes:
        operands = [x for x in node.inputs if x.op.name != "get" or x in evaluator.values]
        try:
            arrays = [np.asarray(evaluator.value(x)) for x in operands if _is_tensor(x)]
            evaluator.value(node)
        except (RuntimeError, IndexError) as error:
            found.add(type(error).__name__ + (": division" if "Zero" in str(error) else ""))
            continue
        if len(arrays) == len(node.inputs):
            found |= _at_edge(node, arrays)
    return found


def _is_tensor(node: Any) -> bool:
    return not hasattr(node.type, "elements") or not isinstance(node.type.elements, tuple)


def _at_edge(node: Any, arrays: list[np.ndarray]) -> set[str]:
    name, found = node.op.name, set()
    if node.op.divides:
        a, b = np.broadcast_arrays(*arrays)
        if a.dtype.kind == "i" and ((a == np.iinfo(a.dtype).min) & (b == -1)).any():
            found.add("INT_MIN // -1")
    elif name.startswith("shift") and (arrays[1] >= node.dtype.bits).any():
        found.add("shift past the width")
    elif name.startswith("shift") and (arrays[1].astype(np.int64) < 0).any():
        found.add("negative shift")
    elif name == "cast" and node.inputs[0].dtype.is_float and node.dtype.kind in ("int", "uint"):
        wide, limits = arrays[0].astype(np.float64), np.iinfo(node.dtype.numpy)
        if (~((wide >= limits.min) & (wide <= limits.max))).any():
            found.add("float to int out of range")
    return found


def test_values_at_the_edges_are_drawn() -> None:
    wanted = {
        "NaN", "inf", "-0.0", "empty", "0-d", "INT_MIN // -1", "shift past the width",
        "negative shift", "float to int out of range", "RuntimeError: division", "IndexError",
        "OutOfRange",
    }
    for seed in range(3000):
        wanted -= edges(generate(seed))
        if not wanted:
            break
    assert not wanted, f"never drawn: {wanted}"
