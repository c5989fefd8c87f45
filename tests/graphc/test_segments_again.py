"""Operations that an earlier recording made are recorded again as they were, and told apart."""

from __future__ import annotations

import math
from typing import Any

import pytest

import graphc
from graphc.frontend.names import KeptNames
from graphc.frontend.segment_trace import SegmentTrace
from graphc.frontend.tree import flatten, flatten_call
from tests.graphc import tiers


@pytest.fixture(autouse=True)
def in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("compiled", monkeypatch)


def many(x: Any, w: Any) -> Any:
    y = x * w
    assert y.sum().item() < 1e9
    values, places = y.sort(1)
    turned = y.t().reshape(-1)[1:4]
    kept = y * 2
    kept[0] = 1.5
    return values, places, turned, kept.sum(1, keepdim=True), kept.clamp(-1, 2).softmax(0)


def results(function: Any, x: Any) -> list[Any]:
    w = graphc.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    found = function(x, w)
    sum((t * t).sum() for t in found if t.requires_grad).backward()
    described = [(t.tolist(), t.stride(), t.requires_grad, t.is_leaf) for t in found]
    return [*described, w.grad.tolist()]


def close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)


def test_what_is_known_is_recorded_without_a_type_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    run, x = graphc.compile(many), graphc.linspace(-2, 2, 12).reshape(3, 4)
    for _ in range(3):
        assert close(results(run, x), results(many, x))
    monkeypatch.setattr(SegmentTrace, "apply_new", None)
    assert close(results(run, x + 1), results(many, x + 1))


def test_layouts_are_told_apart() -> None:
    def f(x: Any) -> Any:
        assert x.sum().item() < 1e9
        y = x * 2
        flat = y.reshape(-1)
        flat.add_(1)  # writes to y where that lies row by row
        return y, flat

    run, x = graphc.compile(f), graphc.arange(6.0).reshape(2, 3)
    for given in (x, x.t().contiguous().t(), x, x.t().contiguous().t(), x):
        for found, expected in zip(run(given), f(given), strict=True):
            assert found.tolist() == expected.tolist() and found.stride() == expected.stride()


def test_numbers_are_told_apart() -> None:
    numbers: list[Any] = [1, 1.0, True, 0.0, -0.0, math.nan, 0, False, math.inf]

    def f(x: Any, number: Any) -> Any:
        assert x.sum().item() < 1e9
        return x * number, x.to(graphc.int64) * number

    run, x = graphc.compile(f), graphc.tensor([1.0, -2.0])
    for number in numbers * 3:
        for found, expected in zip(run(x, number), f(x, number), strict=True):
            assert found.dtype is expected.dtype
            assert repr(found.tolist()) == repr(expected.tolist())


def test_a_value_that_was_overwritten_is_noticed_in_later_calls_too() -> None:
    def f(w: Any) -> Any:
        y = w.exp()
        assert y.sum().item() < 1e9
        z = w.exp()
        out = z.sin()
        z.mul_(2)
        return out

    run = graphc.compile(f)
    for _ in range(4):
        for function in (f, run):
            w = graphc.ones(2, requires_grad=True)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                function(w).sum().backward()


def test_names_are_kept_while_what_they_name_lives() -> None:
    kept, held = KeptNames(), {"a": graphc.ones(1)}
    assert kept.of_call(lambda: held, dict).tensor(held["a"]) == "a"
    assert kept.of_call(dict, dict).tensor(held["a"]) == "a"
    held.clear()
    others = [graphc.ones(1) for _ in range(100)]
    assert all(kept.find(other) is None for other in others)  # some of them have its id
    for other in others:  # looked for among the arguments alone, after a few calls
        walked, given = {"walked": other}, {"x": other}
        names = kept.of_call(lambda found=walked: found, lambda found=given: found)
        assert names.tensor(other) in ("walked", "x")
    assert kept.find(others[0]) == "walked" and kept.find(others[-1]) == "x"


def test_the_arguments_of_a_call_are_taken_apart_alike() -> None:
    x = graphc.ones(1)
    for args in ((), (x,), (x, 1, None), (x, [x, 2]), ("a", {"k": x})):
        for kwargs in ({}, {"k": x}):
            assert flatten_call(args, kwargs) == flatten((args, kwargs))
            structure = flatten_call(args, kwargs)[1]
            assert hash(structure) == hash(flatten((args, kwargs))[1])
