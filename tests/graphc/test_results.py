"""What a compiled call gives back is what eager mode makes: kinds, identities, new objects."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import types
import weakref
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.errors import TraceError
from tests.graphc.result_kinds import KEPT, LIMITS, SEGMENTS, WHOLE, Thing
from tests.reference import torch

CALLS = 3


def described(value: Any, seen: dict[int, Any]) -> Any:
    """Types, values, and which object is which, of a result."""
    if isinstance(value, (bool, int, float, str, bytes, type(None), slice, range, type)):
        return value
    if id(value) in seen:
        return "again", seen[id(value)][0]
    seen[id(value)] = len(seen), value
    name = type(value).__name__

    def inside(items: Any) -> list[Any]:
        return [described(item, seen) for item in items]

    if hasattr(value, "detach"):
        extra = (value.requires_grad, value.is_leaf, getattr(value, "tag", None))
        return name, str(value.dtype), value.detach().tolist(), extra
    if isinstance(value, np.ndarray):
        return name, value.tolist()
    if isinstance(value, functools.partial):
        called = value() if value.func.__name__ == "add" else value(1)
        return name, inside([*value.args, *value.keywords.values(), called])
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return name, inside([value()])
    if isinstance(value, Mapping):
        parts = [name, list(value.keys()), inside(value.values())]
    elif isinstance(value, (list, tuple, deque, UserList)):
        parts = [name, inside(value), getattr(value, "maxlen", None)]
    elif isinstance(value, (set, frozenset)):
        parts = [name, sorted(map(str, inside(value)))]
    elif isinstance(value, Iterator):
        return "iterator", inside(value)
    else:
        parts = [name]
    if type(value).__module__.endswith("result_kinds") or type(value) is types.SimpleNamespace:
        names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
        own = {n: getattr(value, n) for n in names if hasattr(value, n)}
        own = {**own, **getattr(value, "__dict__", {})}
        parts += [list(own), inside(own.values())]
    return parts


def results(torch: Any, function: Callable[..., Any], compile: Any) -> list[Any]:
    run = compile(functools.partial(function, torch))
    found = []
    for k in range(CALLS):
        x = torch.arange(4.0).reshape(2, 2) + k
        found.append(described(run(x), {id(x): (-1, x), id(LIMITS): (-2, 0), id(KEPT): (-3, 0)}))
    return found


@pytest.mark.parametrize("name", [*WHOLE, *SEGMENTS])
def test_as_in_torch(name: str) -> None:
    function = {**WHOLE, **SEGMENTS}[name]
    expected = results(torch, function, lambda f: f)
    assert results(graphc, function, lambda f: f) == expected
    assert results(graphc, function, graphc.compile) == expected


@pytest.mark.parametrize("name", [*WHOLE, *SEGMENTS])
def test_one_graph_or_segments(name: str) -> None:
    run = graphc.compile(functools.partial({**WHOLE, **SEGMENTS}[name], graphc))
    for k in range(CALLS):
        run(graphc.arange(4.0).reshape(2, 2) + k)
    assert (run.segments is None) == (name in WHOLE)
    assert run.compile_count == (1 if name in WHOLE else 0)


def parts(value: Any) -> list[Any]:
    """The mutable objects in a result."""
    found: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if any(item is f for f in found) or item is LIMITS or item is KEPT:
            continue
        if isinstance(item, (dict, list, set, deque, bytearray, np.ndarray, UserDict)) or (
            hasattr(item, "__dict__") and not isinstance(item, (type, types.ModuleType))
            and not isinstance(item, graphc.Tensor) and not callable(item)
        ):
            found.append(item)
        if not isinstance(item, (bytearray, np.ndarray, graphc.Tensor, types.ModuleType)):
            stack += gc.get_referents(item) if not isinstance(item, type) else []
    return [f for f in found if not isinstance(f, type)]


@pytest.mark.parametrize("name", ["without_tensors", "objects", "the_same_twice", "model_output"])
def test_containers_are_new_at_each_call(name: str) -> None:
    run = graphc.compile(functools.partial(WHOLE[name], graphc))
    x = graphc.ones(2, 2)
    kept = [run(x) for _ in range(CALLS)]
    owned = [{id(part) for part in parts(result)} for result in kept]
    assert owned[0] and not owned[0] & owned[1] and not owned[1] & owned[2]


def test_what_a_caller_does_to_a_result_stays_with_the_caller() -> None:
    run = graphc.compile(lambda x: ([1, 2], {"a": [x * 2]}, Thing(4)))
    for k in range(CALLS):
        numbers, table, thing = run(graphc.full((2,), float(k)))
        assert numbers == [1, 2] and list(table) == ["a"] and thing.parts == (4,)
        assert table["a"][0].tolist() == [2.0 * k] * 2
        numbers.append(3)
        table["b"] = table["a"].append(5)
        thing.parts = None


def test_nothing_of_an_earlier_call_is_kept() -> None:
    run = graphc.compile(lambda x: Thing(x * 2))
    run(graphc.ones(2))
    reference = weakref.ref(run(graphc.ones(2)))
    gc.collect()
    assert reference() is None


# --- identity of arguments and state ---------------------------------------------------------


def both(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    yield function
    yield graphc.compile(function)


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_an_argument_container_comes_back_as_itself(kind: type) -> None:
    for run in both(lambda given: (given, [given])):
        for k in range(CALLS):
            tensors = [graphc.full((2,), float(k)), graphc.ones(1)]
            given = dict(enumerate(tensors)) if kind is dict else kind(tensors)
            found, (inner,) = run(given)
            assert found is given and inner is given


def test_an_argument_object_comes_back_as_itself() -> None:
    for run in both(lambda thing: (thing, thing.parts[0] * 2)):
        thing = Thing(graphc.ones(2))
        for _ in range(CALLS):
            found, product = run(thing)
            assert found is thing and product.tolist() == [2.0, 2.0]


def test_tensors_are_those_that_they_are_in_eager_mode() -> None:
    class Net(graphc.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = graphc.nn.Parameter(graphc.ones(2))
            self.register_buffer("seen", graphc.zeros(2))

        def forward(self, x: Any) -> Any:
            self.seen.add_(1)
            y = x * self.weight
            return x, self.weight, self.seen, y, [y, self.seen], x.detach()

    net = Net()
    for run in both(net):
        for k in range(CALLS):
            x = graphc.full((2,), float(k))
            first, weight, seen, y, (again, same), detached = run(x)
            assert first is x and weight is net.weight and seen is net.seen is same
            assert y is again and detached is not x
            assert detached.data_ptr() == x.data_ptr()


def test_a_stored_object_is_the_one_that_is_returned() -> None:
    class Holder:
        last: Any = None

        def step(self, x: Any) -> Any:
            found = {"y": x * 2, "list": [1]}
            self.last = found
            return found, found["list"]

    for run_compiled in (False, True):
        holder = Holder()
        run = graphc.compile(holder.step) if run_compiled else holder.step
        kept = []
        for k in range(CALLS):
            found, inner = run(graphc.full((2,), float(k)))
            assert holder.last is found and found["list"] is inner
            assert found["y"].tolist() == [2.0 * k] * 2
            kept.append(found)
        assert len({id(f) for f in kept}) == CALLS


def test_a_list_that_is_only_stored_is_a_new_one_at_each_call() -> None:
    class Holder:
        sizes: Any = None
        values: Any = None

        def step(self, x: Any) -> Any:
            self.sizes = [1, 2]
            self.values = [x * 2, self.sizes]
            return x + 1

    for run_compiled in (False, True):
        holder = Holder()
        run = graphc.compile(holder.step) if run_compiled else holder.step
        kept = []
        for k in range(CALLS):
            run(graphc.full((2,), float(k)))
            assert holder.sizes == [1, 2] and holder.values[0].tolist() == [2.0 * k] * 2
            assert holder.values[1] is holder.sizes
            kept.append(holder.sizes)
        kept[0].append(3)
        assert kept[1:] == [[1, 2]] * (CALLS - 1)


def test_an_object_that_something_unseen_holds_is_not_copied() -> None:
    class Slot:
        __slots__ = ("held",)

    slot = Slot()
    slot.held = [1]
    for run in both(lambda x: (slot.held, x * 2)):
        for _ in range(CALLS):
            assert run(graphc.ones(2))[0] is slot.held


# --- the first call, where it turns into segments ----------------------------------------------


def test_a_number_beside_objects() -> None:
    def step(x: Any) -> Any:
        print(end="")
        return {"thing": Thing(x * 2), "number": x.sum().item(), "list": LIMITS}

    run = graphc.compile(step)
    for k in range(CALLS):
        found = run(graphc.full((2,), float(k)))
        assert found["number"] == 2.0 * k and found["list"] is LIMITS
        assert found["thing"].parts[0].tolist() == [2.0 * k] * 2


def test_a_pending_number_and_a_generator() -> None:
    def step(x: Any) -> Any:
        return {"values": (v for v in [x * 2]), "number": x.sum().item()}

    run = graphc.compile(step)
    for k in range(CALLS):
        found = run(graphc.full((2,), float(k)))
        assert type(found["number"]) is float and found["number"] == 2.0 * k
        assert next(found["values"]).tolist() == [2.0 * k] * 2


def test_fullgraph_says_what_it_cannot_give_back() -> None:
    run = graphc.compile(lambda x: (v for v in [x]), fullgraph=True)
    with pytest.raises(TraceError, match="gives back a new generator") as caught:
        run(graphc.ones(2))
    assert __file__ in str(caught.value) and "Cure:" in str(caught.value)


# --- caches ------------------------------------------------------------------------------------


def test_a_cached_function_is_not_poisoned() -> None:
    @functools.lru_cache
    def table(size: int) -> Any:
        return graphc.arange(float(size)) * 2

    run = graphc.compile(lambda x: x + table(3))
    for k in range(CALLS):
        assert run(graphc.full((3,), float(k))).tolist() == [k, k + 2.0, k + 4.0]
    assert table(3).tolist() == [0.0, 2.0, 4.0]


def test_free_sizes_in_tuples_are_keys_of_a_cache() -> None:
    """einops has ((axis, size), ...) in one."""
    asked: list[Any] = []

    @functools.lru_cache
    def table(sizes: Any) -> Any:
        asked.append(sizes)
        return sum(size for _, size in sizes)

    kept = {(("a", 6), "b"): 7.0}

    def scaled(x: Any) -> Any:
        sizes = (("a", x.shape[0] * 2), ("b", x.shape[1]))
        return x * table(sizes) + kept.get((sizes[0], "b"), 0.5)

    run = graphc.compile(scaled, fullgraph=True, dynamic=True)
    for rows, columns in ((3, 4), (5, 4), (3, 4), (2, 3)):
        x = graphc.ones(rows, columns)
        added = 7.0 if rows == 3 else 0.5
        assert run(x).tolist() == [[2.0 * rows + columns + added] * columns] * rows
    # as in eager mode, once for each
    assert asked == [(("a", 2 * r), ("b", c)) for r, c in ((3, 4), (5, 4), (2, 3))]
    assert all(type(size) is int for sizes in asked for _, size in sizes)


def test_copies_of_results() -> None:
    """Nothing of how they were made clings to them."""
    run = graphc.compile(functools.partial(WHOLE["dataclasses_of_every_sort"], graphc))
    first = copy.deepcopy(run(graphc.ones(2, 2)))
    assert dataclasses.asdict(first[1])["a"].tolist() == [[2.0, 2.0]] * 2
