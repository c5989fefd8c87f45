"""A version lives as long as the objects that its call named, and there are not too many."""

from __future__ import annotations

import collections
import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.version import versions
from graphc.frontend.tree import flatten


def apply(module: Any, x: Any) -> Any:
    return module(x) * 2


def same(found: Any, wanted: Any) -> None:
    """Sums of products: eager mode may add them in another order."""
    graphc.testing.assert_close(found, wanted)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_module_that_was_an_argument_is_freed(fullgraph: bool) -> None:
    run = graphc.compile(apply, fullgraph=fullgraph)
    x = graphc.ones(2, 3)
    alive = []
    for k in range(3):
        module = graphc.nn.Sequential(graphc.nn.Linear(3, 2), graphc.nn.Tanh())
        with graphc.no_grad():
            module[0].weight.fill_(k / 10)
            module[0].bias.fill_(0.0)
        for _ in range(2):
            found = run(module, x)
            same(found, module(x) * 2)
        alive += [weakref.ref(module), weakref.ref(module[0].weight)]
        del module, found
        gc.collect()
    assert [r() for r in alive] == [None] * len(alive)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_modules_that_hold_themselves_are_few(fullgraph: bool) -> None:
    run = graphc.compile(apply, fullgraph=fullgraph)
    x, alive = graphc.ones(2, 3), []
    for _ in range(50):
        module = graphc.nn.Linear(3, 2)
        module.owner = [module]  # its own version keeps it alive
        same(run(module, x), module(x) * 2)
        alive.append(weakref.ref(module))
        del module
    gc.collect()
    assert sum(r() is not None for r in alive) <= 32
    assert len(run._versions.found_by) <= 32 and run.segments is None


def test_modules_that_come_back_are_kept_in_any_number() -> None:
    run = graphc.compile(apply)
    modules, x = [graphc.nn.Linear(2, 2) for _ in range(40)], graphc.ones(1, 2)
    counts = []
    for _ in range(4):
        for module in modules:
            same(run(module, x), module(x) * 2)
        counts.append(run.compile_count)
    assert counts[0] == 40 and counts[-1] == counts[-2] < 3 * 40


def test_a_compiled_module_that_holds_itself_is_freed() -> None:
    alive = []
    for _ in range(5):
        module = graphc.nn.Linear(3, 2)
        module.owner = [module]
        run = graphc.compile(module)
        run(graphc.ones(2, 3)).sum().backward()
        alive.append(weakref.ref(module))
        del module, run
    gc.collect()
    assert [r() for r in alive] == [None] * 5


def test_an_object_in_the_place_of_a_freed_one_is_not_taken_for_it() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

    run = graphc.compile(lambda scale, x: x * scale.by)
    x = graphc.ones(2)
    for k in range(6):
        scale = Scale(float(k))  # where the last one was
        assert run(scale, x).tolist() == [float(k)] * 2
        assert run(scale, x).tolist() == [float(k)] * 2
        del scale


def test_versions_are_looked_at_without_keeping_their_objects() -> None:
    run = graphc.compile(apply)
    module = graphc.nn.Linear(3, 2)
    run.version(module, graphc.ones(2, 3))
    reference = weakref.ref(module)
    del module
    gc.collect()
    assert reference() is None


def test_fullgraph_keeps_no_more_versions_than_others() -> None:
    state: dict[str, Any] = {"k": "0"}
    run = graphc.compile(lambda x: x + int(state["k"]), fullgraph=True)
    for k in [*range(20), 19, 18, 3]:
        state["k"] = str(k)
        assert run(graphc.zeros(2)).tolist() == [float(k)] * 2
    kept = [v for found in run._versions._exact.values() for v in found]
    assert len(kept) <= 8
    count = run.compile_count
    for k in (3, 18, 19):
        state["k"] = str(k)
        assert run(graphc.zeros(2)).tolist() == [float(k)] * 2
    assert run.compile_count == count


def test_a_recording_that_fails_holds_nothing_back() -> None:
    """What the attempt at one graph met is freed with it, at once: the collector is not asked."""
    held = [Box()]
    watch = weakref.ref(held[0])
    seen = collections.defaultdict(list)

    def entry(x: Any) -> Any:
        x = x * (2 if watch() is None else 3)
        seen["t"].append(x)
        return x + seen["t"][0] + len(seen["t"])

    run = graphc.compile(entry)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            run(graphc.ones(2))
        seen.clear()  # the length is a run-time number now, and the list a new one: segments
        run(graphc.ones(2))
        held.clear()
        assert watch() is None
    finally:
        gc.enable()


class Box:
    """What may be referred to weakly."""


def test_what_ends_a_recording_holds_nothing_back() -> None:
    """An error that the recording keeps, with the frames that it went through, neither."""
    box, generator, order = Box(), random.Random(3), [1, 2, 3]
    table = weakref.WeakKeyDictionary({box: 2.0})

    def entry(x: Any) -> Any:
        x = x * len(table) + table.get(box, 0.5) + generator.random() * 0
        generator.shuffle(order)
        return x

    run = graphc.compile(entry)
    gc.collect()
    gc.disable()
    try:
        assert run(graphc.ones(2)).tolist() == [3.0, 3.0]
        box = Box()
        assert run(graphc.ones(2)).tolist() == [0.5, 0.5]
    finally:
        gc.enable()


def test_the_version_that_fitted_last_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "is_time", lambda calls: False)  # shortcuts are not looked up
    compiled = graphc.compile(lambda x: x.sum(1) * 2.0, dynamic=True)
    rows, columns = graphc.randn(6, 8), graphc.randn(8, 6).t()  # one shape, two layouts
    compiled(rows), compiled(columns)
    leaves, structure = flatten(((rows,), {}))
    for x in (rows, columns, columns, rows):
        np.testing.assert_allclose(compiled(x), x.sum(1) * 2.0, rtol=1e-5, atol=1e-5)
        exact, symbolic = compiled._versions.candidates(*compiled._versions.key(leaves, structure))
        known = exact or symbolic
        assert len(known) == compiled.compile_count == 2
        assert known[0].fits([x], ((x,), {})) and not known[1].fits([x], ((x,), {}))


def added(x: Any) -> Any:
    return x.add_(1)


def two(x: Any) -> Any:
    x[1:].mul_(2)
    return x, x[:1], {"rows": [x, x * 2]}


def gradients(x: Any) -> Any:
    x = x.detach().requires_grad_(True)
    (x * x).sum().backward()
    return x.grad


def flags(x: Any) -> Any:
    x.requires_grad_(True)
    return (x * x).sum()


def rebinds(x: Any) -> Any:
    x.data = x.data * 2
    x.grad = x.detach() + 1
    return x + x.grad


def last(x: Any) -> Any:
    held[0] = x
    return x * held[0]


def mean(x: Any) -> Any:
    """What each call renews."""
    state["mean"] = x if state.get("mean") is None else state["mean"] * 0.5 + x.sum() * 0.5
    return state["mean"] * 1


class Centred(graphc.nn.Module):
    """A layer whose buffer and cache calls renew."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = graphc.nn.Linear(3, 3)
        self.register_buffer("mean", graphc.zeros(3))
        self.cache: Any = None

    def forward(self, x: Any) -> Any:
        self.mean = self.mean * 0.5 + x.detach().mean(0) * 0.5
        self.cache = x
        return self.layer(x - self.mean)


held: list[Any] = [None]
state: dict[str, Any] = {}
FUNCTIONS = [
    lambda x: x * 2, lambda x: x, lambda x: x[1:].t(), lambda x: (x * x).sum(), added, two,
    gradients, flags, rebinds, last, mean, Centred(), graphc.nn.GRU(3, 3),
]


@pytest.mark.parametrize("dynamic", [None, False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_version_keeps_no_tensor_of_a_call(function: Any, dynamic: bool | None) -> None:
    """Neither what it was recorded with, nor what any call was given or has given back."""
    run = graphc.compile(function, dynamic=dynamic)
    alive: list[weakref.ref[Any]] = []
    for rows in (3, 3, 3, 4, 4, 5, 5, 5, 5):
        x = graphc.randn(rows, 3)
        results = flatten(run(x))[0]
        for result in results:
            if result.requires_grad:
                result.sum().backward()
                break
        alive += [weakref.ref(t) for t in (x, x._graphc_array, x.grad, *results) if t is not None]
        del x, results, result
    held[0] = None
    state.clear()
    if isinstance(function, Centred):
        function.mean, function.cache = graphc.zeros(3), None
    gc.collect()
    assert [r() for r in alive if r() is not None] == []


def test_many_sizes_leave_as_much_behind_as_few() -> None:
    """A training step whose batches have another size each: 50 are as 10 are."""
    model = graphc.nn.Sequential(graphc.nn.Linear(3, 3), graphc.nn.Tanh())
    optimizer = graphc.optim.Adam(model.parameters(), lr=0.01)
    run = graphc.compile(model)

    @graphc.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = run(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    counts = []
    for rows in range(2, 52):
        run(graphc.randn(rows, 3)).sum().backward()
        step(graphc.randn(rows, 3))
        if rows % 10 == 1:
            gc.collect()
            counts.append(sum(issubclass(type(each), graphc.Tensor) for each in gc.get_objects()))
    assert counts[1:] == counts[:1] * 4
