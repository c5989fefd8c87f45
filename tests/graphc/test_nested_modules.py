"""Modules that an open function calls run as versions of their own: as in eager mode, over several
calls with changes between, and only where it gains."""

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn.functional as F
from graphc import config, nn
from graphc.engine import pipeline
from graphc.engine.segments import nested
from graphc.engine.version.shared_builds import Native, SharedBuilds
from graphc.ir import dtypes
from graphc.ir.dim import Guard
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType
from graphc.nn.modules.hooks import forward_between_hooks
from graphc.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    """A layer with everything that a change between calls can reach."""

    def __init__(self, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
        self.dropout = nn.Dropout(dropout)
        self.norm: nn.Module = nn.BatchNorm1d(8) if norm else nn.LayerNorm(8)
        self.calls, self.flag = 0, True

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.dropout(self.b(F.gelu(self.a(x)))) if self.flag else self.b(self.a(x))
        return self.norm(x + y)


# a case gives the function, its state after a call, and what changes between calls
Case = tuple[Callable[[Any], Any], Callable[[], Any], Callable[[int], None]]


def stack(log: list[Any], layers: list[Any], change: Any = lambda layers, i: None) -> Case:
    def function(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
            log.append(round(x.sum().item(), 3))
        return x.square().mean()

    def state() -> list[Any]:
        tensors = [t for layer in layers for t in (*layer.parameters(), *layer.buffers())]
        return [*tensors, [getattr(layer, "calls", 0) for layer in layers]]

    return function, state, lambda i: change(layers, i)


def same_layers(log: list[Any]) -> Case:
    shared = Mlp()
    return stack(log, [shared, Mlp(0.3), shared])


def train_and_eval(log: list[Any]) -> Case:
    def change(layers: Any, i: int) -> None:
        layers[0].train(i % 2 == 0)
        layers[1].train(i < 4)

    return stack(log, [Mlp(norm=True), Mlp(0.4, norm=True)], change)


def replaced(log: list[Any]) -> Case:
    def change(layers: Any, i: int) -> None:
        first, second = layers
        if i == 2:
            first.forward = lambda x: x * 3 + second.a.bias.sum()
        if i == 3:
            second.flag = False
        if i == 4:
            del first.forward
            second.a = nn.Linear(8, 16)
        if i == 5:
            first.a.weight = second.a.weight
        if i == 6:
            first.a.weight = nn.Parameter(first.a.weight.detach() * 2)
        if i == 7:
            with graphc.no_grad():
                second.b.weight.mul_(0.5)

    return stack(log, [Mlp(), Mlp()], change)


def hooks(log: list[Any]) -> Case:
    handles: list[Any] = []

    def change(layers: Any, i: int) -> None:
        first, second = layers
        if i == 1:
            handles.append(first.register_forward_hook(lambda m, a, out: out * 2))
            handles.append(second.a.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))
        if i == 3:
            handles.append(second.register_forward_hook(lambda m, a, y: log.append(y.sum().item())))
        if i == 4:
            first.register_full_backward_hook(
                lambda m, given, got: None if given[0] is None else (given[0] * 2,)
            )
        if i == 6:
            handles[0].remove()
            first.a.weight.register_hook(lambda g: g * 3)

    return stack(log, [Mlp(), Mlp()], change)


def logging_hooks(log: list[Any]) -> Case:
    layers = [Mlp(), Mlp()]
    for layer in layers:
        layer.register_forward_hook(lambda m, a, out: log.append(round(out.sum().item(), 3)))
    model = nn.Sequential(*layers)
    return (lambda x: model(x).mean()), (lambda: list(model.parameters())), (lambda i: None)


def whole_step(log: list[Any]) -> Case:
    model = nn.Sequential(Mlp(), Mlp())
    optimizer = graphc.optim.AdamW(model.parameters(), lr=1e-2)

    def function(x: Any) -> Any:
        assert os.getpid() > 0
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append(round(loss.item(), 4))
        return loss.detach()

    def state() -> list[Any]:
        return [t for p in model.parameters() for t in (p, p.grad)]

    return function, state, lambda i: None


def modes(log: list[Any]) -> Case:
    first, second = Mlp(), Mlp(0.3)

    def function(x: Any) -> Any:
        with graphc.no_grad():
            log.append(round(first(x).sum().item(), 3))
        with graphc.inference_mode():
            log.append(round(first(x).sum().item(), 3))
        with graphc.autocast("cpu", dtype=graphc.bfloat16):
            log.append(first(x).dtype)
        return second(x).mean()

    def change(i: int) -> None:
        second.a.requires_grad_(i % 3 != 1)

    return function, lambda: [*first.parameters(), *second.parameters()], change


class OpenOutside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Mlp(), Mlp()

    def forward(self, x: Any) -> Any:
        assert os.getpid() > 0
        return self.second(self.first(x))


def open_parents(log: list[Any]) -> Case:
    return stack(log, [OpenOutside(), OpenOutside()])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.h = nn.Linear(8, 8), None
        self.register_buffer("seen", graphc.zeros(8))

    def forward(self, x: Any, out: Any, scale: float = 1.0, *, name: str = "a") -> Any:
        self.seen.add_(x.detach().mean(0))
        before = self.h if self.h is not None else 0
        self.h = graphc.tanh(self.linear(x.mean(0)) + before).detach()
        out.mul_(2).add_(self.h)
        return {"x": x * scale + self.linear(self.h) * (2 if name == "b" else 1), "in": x}


def state_and_writes(log: list[Any]) -> Case:
    model, out, calls = Recurrent(), graphc.ones(8), [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        buffer = out * 1
        found = model(x, buffer[:], calls[0] * 0.1, name="ab"[calls[0] % 2])
        log.append((round(found["x"].sum().item(), 3), found["in"] is x))
        y = model(found["x"], out)["x"]
        out.div_(4)
        return y.mean() + buffer.sum() + model.h.sum()

    def change(i: int) -> None:
        if i == 4:
            model.h = None

    return function, lambda: [out, model.seen, model.h, *model.parameters()], change


def errors(log: list[Any]) -> Case:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.calls = nn.Embedding(6, 8), 0

        def forward(self, x: Any, i: Any) -> Any:
            self.calls += 1
            if self.calls == 5:
                raise ValueError("the fifth")
            return x + self.table(i)

    model, calls = Fails(), [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        log.append((calls[0], round((x * 2).sum().item(), 3)))
        try:
            x = model(x * 2, graphc.tensor([calls[0]]))
        except IndexError:
            log.append("out of range")
        return x.mean()

    return function, lambda: [*model.parameters(), model.calls], lambda i: None


def transforms(log: list[Any]) -> Case:
    model = Mlp()

    def function(x: Any) -> Any:
        log.append(round(x.sum().item(), 3))
        g = graphc.func.grad(lambda z: model(z).square().sum())(x)
        v = graphc.func.vmap(lambda z: model(z))(x)
        y = checkpoint(model, x, use_reentrant=False)
        first = graphc.autograd.grad(model(x).sum(), model.a.weight, create_graph=True)[0]
        return (g * v).mean() + y.sum() + first.square().mean()

    return function, lambda: list(model.parameters()), lambda i: None


def compiled_parts(log: list[Any]) -> Case:
    whole = graphc.compile(Mlp())
    kept_out = graphc.compiler.disable(Mlp())
    return stack(log, [whole, kept_out, Mlp(), whole])


CASES = [
    same_layers, train_and_eval, replaced, hooks, logging_hooks, whole_step, modes, open_parents,
    state_and_writes, errors, transforms, compiled_parts,
]


def behaviour(case: Any, compile: Callable[[Any], Any]) -> list[Any]:
    """What ten calls of a case give, leave and log."""
    graphc.manual_seed(0)
    log: list[Any] = []
    function, state, change = case(log)
    call, found = compile(function), []
    for i in range(10):
        graphc.manual_seed(i)
        x = graphc.randn(4 + (i % 3 == 2), 8, requires_grad=i % 2 == 0)
        result: Any = None
        try:
            result = call(x)
            if result.requires_grad:
                result.backward()
        except ValueError as error:
            found.append(str(error))
        now = state()
        leaves = [t for t in now if isinstance(t, graphc.Tensor) and t.requires_grad]
        found.append([result, x.grad, now, [t.grad for t in leaves if t.is_leaf], list(log)])
        change(i)
    return found


def check_same(a: Any, b: Any) -> None:
    if isinstance(a, graphc.Tensor):
        assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)
        x, y = a.detach().numpy(), b.detach().numpy()
        assert np.allclose(x, y, rtol=1e-4, atol=1e-5)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            check_same(one, other)
    elif isinstance(a, float):
        assert abs(a - b) < 2e-3 * max(1.0, abs(a))
    else:
        assert a == b


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every Module is a version of its own as soon as it is known what it records."""
    ran: list[str] = []
    run = nested.NestedModules._version

    def noted(self: Any, known: Any, *rest: Any) -> Any:
        ran.append(known.kind)
        return run(self, known, *rest)

    monkeypatch.setattr(nested, "LEAST", 1)
    monkeypatch.setattr(nested, "PRICE", 0)
    monkeypatch.setattr(nested, "NUMBERS", 1 << 60)
    monkeypatch.setattr(nested.NestedModules, "_version", noted)
    yield ran


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_as_in_eager_mode(case: Any, at_once: list[str]) -> None:
    eager = behaviour(case, lambda function: function)
    check_same(eager, behaviour(case, graphc.compile))
    assert len(at_once) >= 6, "no version of a Module ran"


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_modules_are_freed_with_their_versions(at_once: list[str]) -> None:
    holder, gone = [Mlp()], []

    @graphc.compile
    def function(x: Any) -> Any:
        assert os.getpid() > 0
        return holder[0](x).sum()

    for i in range(12):
        if i % 4 == 3:
            gone.append(weakref.ref(holder[0]))
            holder[0] = Mlp()
        function(graphc.ones(2, 8))
    gc.collect()
    assert at_once and [reference() for reference in gone] == [None] * 3


class Deep(nn.Module):
    """More operators than ending a segment costs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.runs: dict[str, int] = {}

    def forward(self, x: Any) -> Any:
        for _ in range(12):
            x = x + graphc.tanh(self.linear(x))
        return x


def logged(layers: Any) -> Any:
    def function(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
            assert os.getpid() > 0
        return x

    return function


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_a_stack_is_taken_up_within_the_budget_and_compiled_once() -> None:
    layers = nn.ModuleList([Deep() for _ in range(3)])
    function, x = graphc.compile(logged(layers)), graphc.randn(2, 8)
    for _ in range(200):
        with graphc.no_grad():
            function(x)
    modules = function.segments.modules
    used = list(modules.used())
    assert len(used) == 3 and all(known.calls > 10 for known in used)
    twins = 2 / nested._TWIN  # are taken up with the first
    assert 0 < modules.compiled * nested.PRICE <= modules.work * (1 + twins)
    assert len(modules.shared._made) == 1
    report = str(graphc.explain(function))
    assert "(Deep) ran" in report and "as a version of its own (1 compiled)" in report


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_a_stack_shares_code_for_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "PRICE", 8)
    layers = nn.ModuleList([Deep() for _ in range(3)])
    function = graphc.compile(logged(layers))
    with graphc.no_grad():
        for i in range(60):
            x = graphc.randn(2 + i % 5, 8)
            np.testing.assert_allclose(function(x), logged(layers)(x), rtol=1e-3, atol=1e-4)
    modules = function.segments.modules
    assert sum(known.compiled.compile_count for known in modules.used()) == 6
    symbolic = [made for made in modules.shared._made.values() if made.forward.program.dims]
    assert len(modules.shared._made) == 2 and len(symbolic) == 1


def test_what_building_assumed_is_every_sharers() -> None:
    """A build that relies on more than the recording: only sizes that fit may share it."""

    def graph(rows: int) -> Graph:
        builder = Builder()
        n = builder.env.new("n", rows)
        x = Expr(builder, builder.input(TensorType(dtypes.f32, (n, 4))))
        return builder.build([(x + x).node])

    shared, seen = SharedBuilds(), []

    def get(rows: int) -> Native:
        given = graph(rows)

        def make() -> Native:
            built = pipeline.build(given, config=config.current())
            built.assumed = (Guard("divides", 4, given.inputs[0].shape[0], rows % 4 == 0),)
            seen.append(rows)
            return Native(built)

        return shared.get(given, None, make)

    assert get(8) is get(12) and seen == [8]
    assert get(9) is not get(8) and seen[:2] == [8, 9]


class Flagged(Deep):
    """Every value of its flag is a version."""

    flag = 0

    def forward(self, x: Any) -> Any:
        return super().forward(x) + self.flag


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_every_version_of_a_module_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "PRICE", 8)
    layer = Flagged()
    function, x = graphc.compile(logged([layer])), graphc.randn(2, 8)
    with graphc.no_grad():
        for _ in range(100):
            function(x)
        modules = function.segments.modules
        known = modules.found[id(layer), nn.Module._graphc_call_named]
        before = modules.compiled
        for layer.flag in range(1, 4):
            function(x)
        assert before > 0 and known.compiled.compile_count == known.paid == 4
        assert modules.compiled - before == 3 * modules._cost(known) > 0


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_a_recording_that_turns_tells_of_the_modules_that_it_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its first call; the second is plain eager code already."""
    monkeypatch.setattr(nested, "PRICE", 8)
    layers = [Deep(), Deep()]
    layers[1].register_forward_hook(lambda module, args, out: seen.append(out.sum().item()))
    seen: list[float] = []

    def function(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    run, x = graphc.compile(function), graphc.ones(2, 8)
    with graphc.no_grad():
        run(x)
        found = run.segments.modules.found
        assert run.segments.calls == 1 and run.segments.tiers.plain
        assert found[id(layers[0]), nn.Module._graphc_call_named].nodes == 36 + 12
        assert found[id(layers[1]), forward_between_hooks].nodes == 36 + 12
        assert "a segment ends in it" in found[id(layers[1]), nn.Module._graphc_call_named].open
        for _ in range(100):
            run(x)
    assert [known.calls > 10 for known in run.segments.modules.closed()] == [True, True]
    assert len(seen) == 101


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_small_modules_and_large_operands_stay_in_the_segment() -> None:
    small = graphc.compile(logged([nn.Sequential(nn.Linear(8, 8), nn.ReLU())]))
    large = graphc.compile(logged([Deep()]))
    with graphc.no_grad():
        for _ in range(3):
            small(graphc.randn(2, 8))
            large(graphc.randn(1 << 16, 8))
    for function in (small, large):
        known = list(function.segments.modules.found.values())
        assert known and all("no more than" in each.open for each in known if each.nodes)
        assert not list(function.segments.modules.used())
