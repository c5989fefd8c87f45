"""torch.compiler's exits from a graph: what is called, how often, and what the graph holds."""

import math
import operator
import os

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.frontend.errors import TraceError
from tests.reference import torch


def both(program):
    """What a program does in graphc, compiled, and in torch's eager mode."""
    return program(graphc, graphc.compile), program(torch, lambda function: function)


def run(function, xs):
    """The values of a function over several calls."""
    return [np.asarray(function(x).detach()).tolist() for x in xs]


# --- disable ----------------------------------------------------------------------------------


def test_disabled_code_runs_at_each_call_and_gives_ordinary_tensors():
    def program(package, compile):
        seen = []

        @package.compiler.disable
        def outside(x):
            now = package.compiler.is_compiling()
            seen.append((type(x).__name__, float(x.detach().sum()), now))
            return x * len(seen)

        @compile
        def function(x):
            return (outside(x + 1) * 2).sum()

        xs = [package.tensor([1.0, 2.0], requires_grad=True) for _ in range(4)]
        values = run(function, xs)
        for x in xs:
            function(x).backward()
        return values, seen, [x.grad.tolist() for x in xs]

    mine, real = both(program)
    assert mine == real


@pytest.mark.parametrize("recursive", [True, False])
def test_disable_of_a_method_with_a_reason(recursive):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(graphc.tensor(3.0))
            self.calls = 0

        @graphc.compiler.disable(recursive=recursive, reason="it counts")
        def scaled(self, x):
            """Scaled."""
            self.calls += 1
            return x * self.weight * self.calls

        def forward(self, x):
            return self.scaled(x * 2) + 1

    model = Model()
    compiled = graphc.compile(model)
    assert run(compiled, [graphc.ones(1)] * 3) == [[7.0], [13.0], [19.0]]
    assert "it counts" in str(graphc.explain(compiled, graphc.ones(1)))
    assert Model.scaled.__doc__ == "Scaled."
    with pytest.raises(TraceError, match=r"(?s)scaled\(\).*\(it counts\).*Cure: .*test_explicit"):
        graphc.compile(model, fullgraph=True)(graphc.ones(1))
    with pytest.raises(TraceError, match="it counts"):
        graphc.export.export(model, (graphc.ones(1),))
    assert model.calls == 3


def test_disabled_modules_keep_their_state():
    graphc.manual_seed(0)
    seen = []

    class Loud(nn.Linear):
        def forward(self, x):
            seen.append(graphc.compiler.is_compiling())
            return super().forward(x)

    inner = Loud(3, 3)
    twin = graphc.compiler.disable(inner)
    model = nn.Sequential(nn.Linear(3, 3), twin, nn.ReLU())
    assert isinstance(twin, Loud) and twin.weight is inner.weight
    assert set(model.state_dict()) == {
        "0.weight", "0.bias", "1._orig_mod.weight", "1._orig_mod.bias"  # as torch has it
    }
    compiled, x = graphc.compile(model), graphc.randn(2, 3)
    for _ in range(3):
        assert np.allclose(compiled(x).numpy(force=True), model(x).numpy(force=True))
        with graphc.no_grad():
            inner.weight.mul_(2)
    assert seen == [False] * 6
    compiled(x).sum().backward()
    assert inner.weight.grad is not None and model[0].weight.grad is not None


def test_disable_of_a_class_and_of_a_compiled_function():
    seen = []

    @graphc.compiler.disable
    class Doubled(nn.Module):
        def forward(self, x):
            seen.append(graphc.compiler.is_compiling())
            return x * 2

    module = Doubled()
    function = graphc.compile(lambda x: module(x) + 1)
    assert run(function, [graphc.ones(1)] * 2) == [[3.0]] * 2

    compiled = graphc.compile(lambda x: (seen.append(graphc.compiler.is_compiling()), x)[1])
    graphc.compiler.disable(compiled)(graphc.ones(1))
    assert seen == [False] * 3 and compiled.compile_count == 0
    with pytest.raises(AssertionError, match="callable"):
        graphc.compiler.disable(3)


# --- assume_constant_result -------------------------------------------------------------------


def test_constant_results_are_asked_for_once_for_each_version():
    asked = []

    @graphc.compiler.assume_constant_result
    def factor(name):
        asked.append((name, graphc.compiler.is_compiling()))
        return os.getpid() * 0 + len(asked)

    @graphc.compile(fullgraph=True)
    def function(x):
        return x * factor("first") + factor("second")

    assert run(function, [graphc.ones(2)] * 3) == [[3.0, 3.0]] * 3
    assert asked == [("first", False), ("second", False)]
    function(graphc.ones(2, dtype=graphc.float64))
    assert len(asked) == 4


def test_constant_tensors_and_containers_are_those_of_the_function():
    table = {"w": graphc.tensor([2.0], requires_grad=True), "n": [1, 2]}

    class Model(nn.Module):
        @graphc.compiler.assume_constant_result
        def table(self):
            return table if os.getpid() > 0 else None

        def forward(self, x):
            found = self.table()
            return x * found["w"] * len(found["n"]), found

    model = graphc.compile(Model(), fullgraph=True)
    for factor in (2, 5):
        with graphc.no_grad():
            table["w"].fill_(factor)  # the same tensor: read at each call
        result, found = model(graphc.ones(1))
        assert result.item() == 2 * factor and found is table
    result.backward()
    assert table["w"].grad.item() == 2.0
    table["n"].append(3)  # a container is read as ever
    assert model(graphc.ones(1))[0].item() == 15.0


def test_a_training_step_asks_once_though_it_is_recorded_twice():
    asked = []

    @graphc.compiler.assume_constant_result
    def rate():
        asked.append(1)
        return 0.5

    model = nn.Linear(2, 1)
    optimizer = graphc.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @graphc.compile(fullgraph=True)
    def step(x):
        loss = (model(x) * rate()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(graphc.ones(4, 2))
    assert len(asked) == step.compile_count


def test_a_constant_of_a_tensor_is_open():
    @graphc.compiler.assume_constant_result
    def total(x):
        return float(x.sum())

    function = graphc.compile(lambda x: x * total(x + 1))
    assert run(function, [graphc.tensor([k]) for k in (1.0, 2.0, 3.0)]) == [[2.0], [6.0], [12.0]]
    with pytest.raises(TraceError, match=r"total\(\), a constant of each version, of a tensor"):
        graphc.compile(lambda x: x * total(x), fullgraph=True)(graphc.ones(1))


# --- allow_in_graph ---------------------------------------------------------------------------


@pytest.mark.parametrize("allow", ["compiler.allow_in_graph", "_dynamo.nonstrict_trace"])
def test_allowed_functions_are_recorded_and_not_looked_at(allow):
    runs = []

    @operator.attrgetter(allow)(graphc)
    def opaque(x, scale, *, shift):
        runs.append(graphc.compiler.is_compiling())
        assert os.getpid() > 0  # open, were it looked at
        return x.exp() * scale[0] + shift

    @graphc.compile(fullgraph=True)
    def function(x, scale):
        return opaque(x, scale, shift=1).sum()

    for scale in (2.0, 3.0):
        x = graphc.tensor([0.0, 1.0], requires_grad=True)
        for _ in range(2):
            value = function(x, [scale])
        assert math.isclose(value.item(), scale * (1 + math.e) + 2, rel_tol=1e-6)
        value.backward()
        assert np.allclose(x.grad.numpy(), scale * np.exp([0, 1]))
    assert runs == [True] * function.compile_count
    text = str(graphc.explain(function, x, [3.0]).graph_text)
    assert "exp" in text


def test_allowed_functions_come_back_as_they_are():
    def first(x):
        return x

    def second(x):
        return x

    assert graphc.compiler.allow_in_graph(first) is first
    assert graphc.compiler.allow_in_graph((first, second)) == [first, second]
    with pytest.raises(AssertionError, match="callable"):
        graphc.compiler.allow_in_graph(3)


def test_a_value_needed_in_an_allowed_function_ends_a_segment():
    @graphc.compiler.allow_in_graph
    def positive(x):
        return x + 1 if bool(x.sum() > 0) else x - 1

    function = graphc.compile(lambda x: positive(x * 2) * 10)
    assert run(function, [graphc.tensor([v]) for v in (1.0, -1.0, 1.0)]) == [[30], [-30], [30]]


# --- substitutes ------------------------------------------------------------------------------


def test_a_substitute_is_recorded_in_the_place_of_a_function():
    calls = []

    def opaque(a, b):
        calls.append("real")
        return a * b * (os.getpid() > 0)

    @graphc.compiler.substitute_in_graph(opaque)
    def polyfill(a, b):
        return a * b

    function = graphc.compile(lambda x: opaque(x, 2) + polyfill(x, 3), fullgraph=True)
    assert run(function, [graphc.ones(1), graphc.zeros(1)]) == [[5.0], [0.0]]
    assert calls == [] and polyfill(2, 3) == 6 and calls == ["real"]
    with pytest.raises(ValueError, match="Duplicate"):
        graphc.compiler.substitute_in_graph(opaque)
    with pytest.raises(TypeError, match="Signature mismatch"):
        graphc.compiler.substitute_in_graph(lambda one: one)(lambda other: other)
    with pytest.raises(TypeError, match="expects a function"):
        graphc.compiler.substitute_in_graph(3)


# --- the process ------------------------------------------------------------------------------


@pytest.fixture
def default_stance():
    yield
    graphc.compiler.set_stance("default")
    graphc.compiler.set_default_backend(None)


@pytest.mark.usefixtures("default_stance")
def test_stances():
    seen = {}

    @graphc.compile
    def function(x):
        seen["compiling"] = graphc.compiler.is_compiling()
        return x + 1

    def compiled(x):
        function(x)
        return seen["compiling"]

    with graphc.compiler.set_stance("force_eager"):
        assert not compiled(graphc.ones(1))
    graphc.compiler.set_stance("fail_on_recompile")
    with pytest.raises(RuntimeError, match="Detected recompile"):
        function(graphc.ones(1))
    graphc.compiler.set_stance("default")
    assert compiled(graphc.ones(1))
    wide = graphc.ones(1, 2)
    assert not graphc.compiler.set_stance("eager_on_recompile")(compiled)(wide)
    assert compiled(wide)
    with graphc.compiler.set_stance("eager_then_compile"):
        other = graphc.compile(lambda x: x + graphc.compiler.is_compiling())
        assert run(other, [graphc.zeros(1)] * 3) == [[0.0], [1.0], [1.0]]
    with pytest.raises(RuntimeError, match="invalid"):
        graphc.compiler.set_stance("fast")
    with pytest.raises(RuntimeError, match="force_backend"):
        graphc.compiler.set_stance("force_eager", force_backend="eager")
    with pytest.raises(RuntimeError, match="region"):
        graphc.compile(lambda x: (graphc.compiler.set_stance("force_eager"), x)[1])(wide)


@pytest.mark.usefixtures("default_stance")
def test_reset_and_backends():
    function = graphc.compile(lambda x: x * 2)
    function(graphc.ones(1))
    assert function.compile_count == 1
    graphc.compiler.reset()
    assert function.compile_count == 0 and function(graphc.ones(1)).item() == 2.0
    graphc.compiler.set_default_backend("numpy")
    assert graphc.compiler.get_default_backend() == "numpy"
    assert graphc.compile(lambda x: x).backend == "numpy"


def test_exporting_is_told():
    class Model(nn.Module):
        def forward(self, x):
            return x * (2 if graphc.compiler.is_exporting() else 3)

    model = Model()
    program = graphc.export.export(model, (graphc.ones(1),))
    assert program.module()(graphc.ones(1)).item() == 2.0
    assert graphc.compile(model)(graphc.ones(1)).item() == model(graphc.ones(1)).item() == 3.0
    program = graphc.export.export(lambda x: x * 2 if graphc.compiler.is_compiling() else x,
                                   (graphc.ones(1),))
    assert program(graphc.ones(1)).item() == 2.0


def test_numpy_functions_of_tensors():
    function = graphc.compile(graphc.compiler.wrap_numpy(lambda a: {"sum": np.sum(a * a)}))
    for k in (1.0, 2.0):
        assert function(graphc.full((3,), k))["sum"] == 3 * k * k


def test_every_documented_name_resolves():
    pytest.importorskip("torch")
    missing = [name for name in torch.compiler.__all__ if not hasattr(graphc.compiler, name)]
    assert missing == []
