"""Python state that a compiled function changes: the same at every call as without compile."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.frontend.errors import TraceError
from graphc.nn import functional as F


class Plain:
    """An object of a user's class."""


@dataclasses.dataclass
class Batch:
    x: Any
    y: Any = None


def fresh() -> Plain:
    o = Plain()
    o.cache, o.hist, o.d, o.n, o.inner = None, [], {"x": 0}, 0, Plain()
    o.inner.h, o.s, o.q = None, set(), collections.deque(maxlen=2)
    o.t, o.l, o.a = graphc.zeros(3), [graphc.zeros(3), graphc.zeros(3)], np.zeros(2)
    o.it, o.rng, o.nprng = itertools.count(), random.Random(3), np.random.default_rng(3)
    return o


def plain(value: Any) -> Any:
    """Tensors and objects as plain values."""
    if isinstance(value, graphc.Tensor):
        return value.tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [plain(v) for v in value]
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, (Plain, Batch)):
        hidden = ("it", "rng", "nprng")
        return {k: plain(v) for k, v in vars(value).items() if k not in hidden}
    return value


def new_list(o: Any, x: Any) -> Any:
    o.cache = [x * 2, x + 1]
    return x.sum()


def new_attribute(o: Any, x: Any) -> Any:
    o.made = {"a": (x * 2, 3), "b": [x]}
    return x.sum()


def read_list(o: Any, x: Any) -> Any:
    y = x if o.cache is None else x + o.cache[0]
    o.cache = [y * 2]
    return y


def read_dict(o: Any, x: Any) -> Any:
    y = x if o.cache is None else x + o.cache["k"][1]
    o.cache = {"k": (1, y * 2)}
    return y


def reset_list(o: Any, x: Any) -> Any:
    o.hist = []
    for i in range(2):
        o.hist.append(x * i)
    return x


def append(o: Any, x: Any) -> Any:
    o.hist.append(x * 2)
    return x


def set_item(o: Any, x: Any) -> Any:
    o.d["x"], o.d["new"] = x * 2, x + o.n
    o.d["n"] = o.d.get("n", 0) + 1
    return x


def delete_item(o: Any, x: Any) -> Any:
    o.d.pop("x", None)
    return x


def new_object(o: Any, x: Any) -> Any:
    made = Plain()
    made.h, made.k = x * 3, o.n
    o.n += 1
    o.inner = made
    return x


def renew_list(o: Any, x: Any) -> Any:
    o.l = [a + x for a in o.l]
    return o.l[1]


def swap(o: Any, x: Any) -> Any:
    o.l[0], o.l[1] = o.l[1], x
    return o.l[0]


def window(o: Any, x: Any) -> Any:
    o.l.append(x)
    o.l = o.l[-2:]
    return graphc.stack(o.l).sum(0)


def add_to_set(o: Any, x: Any) -> Any:
    o.s.add(len(o.s))
    return x * len(o.s)


def add_to_deque(o: Any, x: Any) -> Any:
    o.q.append(x * 1)
    return graphc.stack(list(o.q)).sum()


def write_array(o: Any, x: Any) -> Any:
    o.a[0] += 1
    return x * o.a[0]


def read_iterator(o: Any, x: Any) -> Any:
    return x * next(o.it)


def draw(o: Any, x: Any) -> Any:
    return x * o.rng.random() + float(o.nprng.random())


def sample(o: Any, x: Any) -> Any:
    return x * o.rng.sample([1.0, 2.0], 1)[0] + float(o.nprng.random())


def counted_dict(o: Any, x: Any) -> Any:
    o.n += 1
    o.cache = {"step": o.n, "v": x * o.n}
    return x * o.n


BODIES = [
    new_list, new_attribute, read_list, read_dict, reset_list, append, set_item, delete_item,
    new_object, renew_list, swap, window, add_to_set, add_to_deque, write_array, read_iterator,
    draw, counted_dict,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_state_of_an_object(body: Callable[[Any, Any], Any]) -> None:
    eager, compiled = fresh(), fresh()
    run = graphc.compile(lambda x: body(compiled, x))
    for i in range(5):
        x = graphc.full((3,), float(i + 1))
        want, found = body(eager, x), run(x)
        assert plain(found) == plain(want)
        assert plain(compiled) == plain(eager)
        if i == 3:  # what a loop does between calls is seen
            for o in (eager, compiled):
                o.n, o.a[0], o.cache = 10, 7.0, None


def write_dict(d: Any, x: Any) -> Any:
    d["out"] = x * 2
    return len(d)


def append_to(d: Any, x: Any) -> Any:
    d["l"].append(x * 2)
    return d["l"][0]


def pop_from(d: Any, x: Any) -> Any:
    return d.pop("k") + x


def write_field(d: Any, x: Any) -> Any:
    d["b"].y = x * d["b"].x
    return x


@pytest.mark.parametrize("body", [write_dict, append_to, pop_from, write_field])
def test_writes_to_containers_among_the_arguments(body: Callable[[Any, Any], Any]) -> None:
    run = graphc.compile(body)
    for i in range(3):
        x = graphc.full((2,), float(i))
        given = {"k": graphc.ones(2), "l": [], "b": Batch(graphc.ones(2))}
        other = copy.deepcopy(given)
        inner = other["l"], other["b"]
        want, found = body(given, x), run(other, x)
        assert plain(found) == plain(want) and plain(other) == plain(given)
        assert other["l"] is inner[0] and other["b"] is inner[1]


_calls = 0
_seen: dict[str, Any] = {}


def _global_count(x: Any) -> Any:
    global _calls, _made_late
    _calls += 1
    _seen["last"] = x * _calls
    _made_late = x + _calls
    return x * _calls


def test_globals() -> None:
    global _calls
    _calls = 0
    run = graphc.compile(_global_count)
    for i in range(1, 5):
        assert run(graphc.ones(2)).tolist() == [i, i] and _calls == i
        assert _seen["last"].tolist() == [i, i] and _made_late.tolist() == [1 + i, 1 + i]


def test_print_prints_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    def speak(x: Any) -> Any:
        print("one")
        y = x * 2
        print("two", y.shape)
        return y

    run = graphc.compile(speak)
    for _ in range(3):
        run(graphc.ones(2))
    assert capsys.readouterr().out == "one\ntwo torch.Size([2])\n" * 3
    assert run.segments is None

    def say(x: Any) -> None:
        print("one", [x * 2])
        print(x * 3)

    with pytest.raises(TraceError, match=r"(?s)print\(\).*print\(\).*fullgraph") as caught:
        graphc.compile(say, fullgraph=True)(graphc.ones(2))
    assert __file__ in str(caught.value) and capsys.readouterr().out == ""


def test_one_graph_refuses_and_changes_nothing() -> None:
    for body in (renew_list, sample):
        o = fresh()
        before = plain(o)
        with pytest.raises(TraceError, match="Cure"):
            graphc.compile(lambda x, o=o, body=body: body(o, x), fullgraph=True)(graphc.ones(3))
        assert plain(o) == before
        twin = fresh()
        assert (o.rng.random(), o.nprng.random()) == (twin.rng.random(), twin.nprng.random())


class Momentum:
    """A hand-written optimizer that makes its state when it first meets a parameter."""

    def __init__(self, parameters: Any) -> None:
        self.parameters, self.state = list(parameters), {}

    def step(self) -> None:
        with graphc.no_grad():
            for p in self.parameters:
                if p not in self.state:
                    self.state[p] = {"m": graphc.zeros_like(p), "n": 0}
                state = self.state[p]
                state["n"] += 1
                state["m"].mul_(0.9).add_(p.grad)
                p.sub_(state["m"] * 0.1 / (1 - 0.9 ** state["n"]))


def losses(compiled: bool, make: Callable[[Any], Any], step: Callable[[Any], None]) -> Any:
    graphc.manual_seed(0)
    model = nn.Linear(4, 1)
    used = make(model)

    def train(x: Any, y: Any) -> Any:
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        step(used)
        return loss.detach()

    run = graphc.compile(train) if compiled else train
    data = [(graphc.randn(5, 4), graphc.randn(5, 1)) for _ in range(6)]
    return [run(*pair).item() for pair in data], run


def test_state_made_at_first_use_ends_as_one_graph() -> None:
    def make(model: Any) -> Momentum:
        return Momentum(model.parameters())

    want, _ = losses(False, make, Momentum.step)
    found, run = losses(True, make, Momentum.step)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    # as the state is made, with it, and with the count of steps as a run-time number
    assert run.segments is None and run.compile_count == 3


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: optim.lr_scheduler.StepLR(o, 2, 0.5),
    "LambdaLR": lambda o: optim.lr_scheduler.LambdaLR(o, lambda e: 0.9**e),
    "CosineAnnealingLR": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "OneCycleLR": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "SequentialLR": lambda o: optim.lr_scheduler.SequentialLR(
        o, [optim.lr_scheduler.LinearLR(o, 0.1, total_iters=2),
            optim.lr_scheduler.ExponentialLR(o, 0.9)], [2],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_inside_the_step(name: str) -> None:
    def make(model: Any) -> Any:
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return optimizer, SCHEDULES[name](optimizer)

    def step(used: Any) -> None:
        for part in used:
            part.step()

    want, _ = losses(False, make, step)
    found, _ = losses(True, make, step)
    np.testing.assert_allclose(found, want, rtol=1e-6)


class Cache:
    """Grows by each call."""

    k: Any = None


def attend(x: Any, cache: Cache) -> Any:
    cache.k = x if cache.k is None else graphc.cat([cache.k, x], 1)
    return (cache.k.softmax(1) * cache.k).sum(1)


def test_a_growing_cache_becomes_symbolic() -> None:
    eager, compiled = Cache(), Cache()
    run = graphc.compile(attend)
    for i in range(12):
        x = graphc.full((2, 1, 3), 0.1 * i)
        np.testing.assert_allclose(
            run(x, compiled).numpy(), attend(x, eager).numpy(), rtol=1e-6
        )
    # without a cache, of one row, of two, of any number
    assert run.compile_count <= 4 and compiled.k.tolist() == eager.k.tolist()


def test_a_function_that_no_version_fits_twice_runs_in_segments() -> None:
    run = graphc.compile(attend)
    for _ in range(20):  # another object at each call
        cache, other = Cache(), Cache()
        x = graphc.rand(2, 1, 3)
        assert run(x, cache).tolist() == attend(x, other).tolist()
        assert run(x, cache).tolist() == attend(x, other).tolist()
    assert run.segments is not None and run.compile_count <= 8
    assert "each call needed another version" in str(graphc.explain(run, x, cache))
    scale = graphc.compile(lambda x, t: x * math.cos(t))
    for t in range(20):
        assert scale(graphc.ones(1), 0.5 * t).item() == pytest.approx(math.cos(0.5 * t), abs=1e-6)
    assert scale.compile_count <= 8
    layers = [nn.Linear(2, 2) for _ in range(12)]  # each Module has its own version
    call = graphc.compile(lambda layer, x: layer(x))
    for layer in layers * 2:
        np.testing.assert_allclose(
            call(layer, graphc.ones(1, 2)).tolist(), layer(graphc.ones(1, 2)).tolist(), rtol=1e-6
        )
    assert call.segments is None and call.compile_count == 12


# --- compiled functions in compiled functions --------------------------------------------------


class Counting:
    """An object that counts its calls."""

    def __init__(self) -> None:
        self.total, self.count, self.scale = graphc.zeros(2), 0, [1.0]

    def __call__(self, x: Any) -> Any:
        self.total = self.total + x * self.scale[0]
        self.count += 1
        return self.total


def counting() -> Any:
    state = Counting()
    total, count, scale = state.total, 0, state.scale

    def call(x: Any) -> Any:
        nonlocal total, count
        total = total + x * scale[0]
        count += 1
        state.total, state.count = total, count
        return total

    return call, state


def test_the_state_of_a_compiled_function_that_another_one_calls() -> None:
    one, two = Counting(), Counting()
    closure, three = counting()
    for inner, state in ((one, one), (two.__call__, two), (closure, three)):
        compiled = graphc.compile(inner)
        step = graphc.compile(lambda x, compiled=compiled: compiled(x) + x)
        seen = []
        for i in range(4):
            state.scale[0] = 5.0 if i == 3 else 1.0
            seen.append((step(graphc.ones(2)).tolist(), state.total.tolist(), state.count))
        assert seen == [([n + 1.0] * 2, [float(n)] * 2, i + 1) for i, n in enumerate((1, 2, 3, 8))]


NAMED = None
NUMBER = 0


def test_what_a_recording_wrote_is_taken_back_the_last_first() -> None:
    """A global is written by its name, then another one in globals()."""

    def step(x: Any) -> Any:
        global NAMED
        NAMED = x * 2
        globals()["NUMBER"] += 1
        return float(NAMED.sum())

    with pytest.raises(TraceError):
        graphc.compile(step, fullgraph=True)(graphc.ones(2))
    assert NAMED is None and NUMBER == 0


Pair = collections.namedtuple("Pair", "scale tensor")


class Registry:
    """What is stored in a class."""

    pair: Any = None


def test_a_new_object_in_a_class_is_made_anew_although_the_call_reads_it_back() -> None:
    def step(x: Any) -> Any:
        Registry.pair = Registry.pair._replace(scale=Registry.pair.scale + 1, tensor=x * 2)
        return Registry.pair.tensor * Registry.pair.scale

    seen = []
    for function in (step, graphc.compile(step)):
        Registry.pair = Pair(1.0, graphc.zeros(2))
        results = [function(graphc.ones(2) * i).tolist() for i in range(3)]
        seen.append((results, Registry.pair.scale, Registry.pair.tensor.tolist()))
    assert seen[0] == seen[1]
