"""Bugs put into the compiler on purpose: each is found, and shrunk to a few nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from graphc.doubt.case import Case
from graphc.doubt.shrink import shrink
from graphc.engine import stages
from graphc.ir import ops
from graphc.ir.graph import Graph, Node
from graphc.ir.machine import Machine
from graphc.ir.op import REGISTRY
from graphc.ir.passes import lower, plan
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.simplify import RULES as SIMPLIFY
from graphc.ir.passes.simplify.algebra import RULES
from graphc.ir.record import replaced
from graphc.ir.rewrite import everywhere, rebuilt
from tests.fuzz.__main__ import config
from tests.fuzz.check import check
from tests.fuzz.generate import generate
from tests.fuzz.report import report

_SECONDS = 20.0  # for shrinking, at most; on an idle machine each takes a second or two


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """No kernel lowered by a wrong compiler stays behind."""
    lower._MEMO.clear()
    with np.errstate(all="ignore"):
        yield
    lower._MEMO.clear()


def find(suits: Callable[[Case], bool], start: int = 0) -> tuple[Case, str]:
    """The smallest form of the first case that fails among those that suit, and its report."""
    settings = config(1)
    for seed in range(start, start + 2000):
        case = generate(seed)
        if not suits(case) or (failure := check(case, settings)) is None:
            continue
        kind = failure.kind

        def fails(candidate: Case, kind: str = kind) -> bool:
            found = check(candidate, settings)
            return found is not None and found.kind == kind

        small = shrink(case, fails, _SECONDS)
        again = check(small, settings)
        assert again is not None and again.kind == kind
        return small, report(small, str(again))
    raise AssertionError("nothing failed")


def names(graph: Graph) -> list[str]:
    """The operators of a graph, in order."""
    return [n.op.name for n in graph.nodes if n.op.name != "input"]


def _flips(node: Node, source: Node) -> bool:
    """Whether a node is a flipped input, or computed from one."""
    near = [node, *node.inputs]
    return any(x.op.name == "flip" and x.inputs[0] is source for x in near)


def test_a_wrong_gradient_rule() -> None:
    op = REGISTRY["sigmoid"]
    right = op.vjp

    def wrong(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
        return (grads[0] * outs[0],)

    object.__setattr__(op, "vjp", wrong)  # the record is frozen
    try:
        small, text = find(lambda c: c.forward is not None and "sigmoid" in names(c.forward))
    finally:
        object.__setattr__(op, "vjp", right)
    assert small.forward is not None and names(small.forward) == ["sigmoid"]
    assert text.startswith("gradient: along a random direction")
    assert "= sigmoid %0" in text and "graph fuzz_joint(" in text


def test_a_wrong_rewrite_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = {r for _, r in RULES.by_op["mul"] if r.name == "algebra.multiplied_by_itself"}
    assert any(r is rule for _, r in SIMPLIFY.by_op["mul"])
    monkeypatch.setattr(rule, "replace", lambda m: ops.abs(m.x))

    def suits(case: Case) -> bool:
        return any(n.op.name == "mul" and n.inputs[0] is n.inputs[1] for n in case.graph.nodes)

    small, text = find(suits)
    assert names(small.graph) == ["mul"]
    assert text.startswith("values: native") and "mul %0, %0" in text


def test_a_wrong_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subtractions turn round, but only in kernels of several operators."""

    def one(graph: Graph) -> Graph:
        if len([n for n in graph.nodes if n.op.family != "structure"]) < 2:
            return graph
        new: dict[Node, Node] = {}
        for node in graph.nodes:
            inputs = tuple(new[x] for x in node.inputs)
            same = len(inputs) == 2 and inputs[0].type == inputs[1].type
            if node.op.name == "sub" and same:
                inputs = inputs[::-1]
            new[node] = node if inputs == node.inputs else replaced(node, inputs=inputs)
        return rebuilt(graph, new)

    def wrong(graph: Graph, machine: Machine, *options: Any, **named: Any) -> Graph:
        fused = fuse(graph, machine, *options, **named)
        return everywhere(fused, lambda g: g if g.name == fused.name else one(g))

    monkeypatch.setattr(stages, "fuse", wrong)

    def suits(case: Case) -> bool:
        return case.forward is None and "sub" in names(case.graph)

    small, text = find(suits)
    assert "sub" in names(small.graph) and len(names(small.graph)) == 2
    assert text.startswith("values: native")


def test_a_wrong_plan_of_what_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel may write over what it reads."""
    monkeypatch.setattr(plan, "safe_in_place", lambda kernel, source, result: True)

    def suits(case: Case) -> bool:
        return any(
            case.graph.outputs[o].op.name in ("flip", "sub", "maximum")
            and _flips(case.graph.outputs[o], case.graph.inputs[i])
            for o, i in case.mutated.items()
        )

    small, text = find(suits)
    assert len(small.mutated) == 1 and len(names(small.graph)) <= 2
    assert "written back: output 0 to input 0" in text


def test_a_wrong_plan_of_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that live at the same time share a place."""
    right = plan.assign_offsets

    def wrong(order: Any, env: Any) -> Any:
        size = right(order, env)
        for step in order:
            for storage in (*step.writes, *step.scratch):
                if storage.space == "arena":
                    storage.offset = 0
        return size

    monkeypatch.setattr(plan, "assign_offsets", wrong)
    small, text = find(
        # a loop might not end
        lambda c: c.forward is None and not c.graph.env.hints and "while_loop" not in names(c.graph)
    )
    assert len(names(small.graph)) <= 7
    assert "graph fuzz(" in text
