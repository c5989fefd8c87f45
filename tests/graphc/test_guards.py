"""Guards are records in one list: explain() prints all, and cheap ones are asked first."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.engine.version import guards, guards_of_calls, version
from graphc.engine.version.guards import Array, Asked, Guard
from graphc.inspect.explain import Explanation

KINDS = [
    kind for module in (guards, guards_of_calls) for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Guard) and kind is not Guard
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_what_asking_takes(kind: type[Guard]) -> None:
    assert kind.cost is not Guard.cost
    assert kind.holds is not Guard.holds or kind.holds_for is not Guard.holds_for
    assert kind.text is not Guard.text or kind.__doc__
    of_calls = Asked.STATE < kind.asked < Asked.LAST
    assert (kind.holds_for is not Guard.holds_for) == of_calls


def test_a_call_is_refused_by_guards_alone() -> None:
    """Nothing but a record of the list, a place that holds no tensor now, or weights laid out once
    that others can write to, makes one stale."""
    folder = Path(version.__file__).parent
    raising = {
        path.name for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise) and node.exc is not None
        and ast.unparse(node.exc).startswith("Stale(")
        and "reason(call)" not in ast.unparse(node.exc)
    }
    assert raising == {"sources.py", "version.py"}


class Box:
    scale = 2.0


@functools.lru_cache
def cached(key: int) -> float:
    return 2.0 * key


def everything() -> tuple[Any, tuple[Any, ...]]:
    """A function that has guards of most kinds, and arguments."""
    model, box, state = nn.Linear(4, 4), Box(), {"many": [1.0, 2.0], "h": torch.zeros(4)}
    optimizer, array = torch.optim.SGD(model.parameters(), lr=0.1), np.arange(3.0)

    def step(x: Any, y: Any, n: float, rows: list[Any]) -> Any:
        loss = (model(x) * box.scale * cached(1) * array[1] + y).sum()
        for number in state["many"]:
            loss = loss + number
        loss = loss * 2 if n > 1.5 else loss
        loss = loss + 1 if x is y else loss
        state["h"] = state["h"] * 0.5 + loss.detach()
        rows.append(loss.detach())
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step)
    for size, n in ((3, 2.0), (3, 3.0), (5, 4.0)):
        x, y = torch.ones(size, 4), torch.ones(size, 4)
        compiled(x, y, n, [])
    return compiled, (x, y, 4.0, [])


def test_explain_prints_the_whole_list() -> None:
    compiled, given = everything()
    found = torch.explain(compiled, *given)
    assert isinstance(found, Explanation)
    records = compiled.version(*given).guards.records
    assert len(records) == len(found.guards) == len(found.guard_costs)
    kinds = {type(record).__name__ for record in records}
    assert kinds >= {
        "FoundBy", "Entry", "Items", "Fields", "Code", "Result", "Cached", "Array", "Apart",
        "Differentiable", "Renewed", "Identity", "MemoryOf", "NoOverlap", "Decided",
    }
    text = "\n".join(found.guards)
    for said in (
        "grad mode is True", "autocast is ", "default dtype is ", "argument 0 is f32[",
        "argument 2 is a float", "state['many'] has the same 2 items", "cached() gives 2.0",
        "the values of array", "argument 0 is argument 1: False", "inputs that are written",
        "requires a gradient, with no hooks", "containers among the arguments",
        "a number keeps the value True", "Box.scale == 2.0",
    ):
        assert said in text, said
    assert found.guards_text.count("\n") + 1 == len(records) > 50


def test_cheap_guards_are_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table, state = np.zeros(100_000), {"scale": 1.0}

    def scaled(x: Any) -> Any:
        return x * float(table.sum()) + state["scale"]

    compiled = torch.compile(scaled)
    compiled(torch.ones(2))
    old = compiled.version(torch.ones(2))
    records = old.guards.records
    order = [(record.asked, record.counted, record.cost) for record in records]
    assert order == sorted(order)
    asked: list[Guard] = []
    holds = Array.holds
    monkeypatch.setattr(Array, "holds", lambda self: asked.append(self) or holds(self))
    compiled(torch.ones(2))
    assert len(asked) == 1
    state["scale"] = 3.0
    assert not old.fits([torch.ones(2)], ((torch.ones(2),), {})) and len(asked) == 1
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
