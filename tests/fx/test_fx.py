"""torch.fx: the graphs that PyTorch makes of the same code, and what can be done with them."""

import copy
import importlib
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import pytest

import graphc
from graphc import fx

torch = pytest.importorskip("torch", reason="torch's graphs are what these are compared with")
SIDES: dict[str, Any] = {"torch": torch, "graphc": graphc}


def branches(t: Any) -> Any:
    class Block(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = t.nn.Parameter(t.ones(3, 1))
            self.layers = t.nn.Sequential(t.nn.Linear(4, 4), t.nn.ReLU())
            self.register_buffer("shift", t.zeros(4))

        def forward(self, x: Any) -> Any:
            return self.scale * self.layers(x) + self.shift + self.scale.sum()

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Block(), Block()
            self.normLayer = t.nn.LayerNorm(4)

        def forward(self, x: Any, y: Any = None, *, factor: float = 2.0) -> Any:
            n, c = x.shape
            a = self.first(x).view(n, -1, c)
            b = t.nn.functional.relu(self.normLayer(self.second(x)), inplace=False)
            joined = t.cat([a[0], b * factor], dim=0)
            return {"joined": joined, "mean": (-joined).mean(dim=-1), "both": (a, b[:, 1:])}

    return Net()


def arithmetic(t: Any) -> Any:
    def function(x: Any, y: Any) -> Any:
        z = (x + y) * 2 - 1 / y
        z = 3 - z ** 2 @ x.T
        w = z.sum(0, keepdim=True).expand_as(z)
        return t.where(z > w, z, t.zeros_like(z)), z.size(0), x.dtype, x.shape[0] // 2

    return function


def constants(t: Any) -> Any:
    table = t.arange(3.0)

    def function(x: Any, scale: float = 0.5) -> Any:
        return t.add(x, table, alpha=2).clamp(min=0) * math.sqrt(2.0) + scale

    return function


def stars(t: Any) -> Any:
    def function(x: Any, *rest: Any, **named: Any) -> Any:
        return x + rest[0] * named["factor"]

    return function


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "branches": branches, "arithmetic": arithmetic, "constants": constants, "stars": stars,
}


def rows(graph: Any) -> list[tuple[Any, ...]]:
    def text(value: Any) -> str:
        return str(value).replace("graphc.", "torch.")

    found = []
    for node in graph.nodes:
        target = node.target if isinstance(node.target, str) else node.target.__name__
        # a dtype's and a function's text is not torch's
        found.append((node.op, node.name, target, text(node.args), text(dict(node.kwargs))))
    return found


def inputs(t: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = t.arange(12.0).reshape(3, 4) / 5 - 1
    if name == "branches":
        return (x,), {}
    if name == "constants":
        return (x[:, :3],), {"scale": 2.0}
    if name == "stars":
        return (x, x + 1), {"factor": 3.0}
    return (x, x + 4), {}


def numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [numbers(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else str(value)


def same(found: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert list(found) == list(want)
        found, want = list(found.values()), list(want.values())
    if isinstance(want, list) and want and not isinstance(want[0], float):
        assert len(found) == len(want)
        for one, other in zip(found, want, strict=True):
            same(one, other)
    elif isinstance(want, (list, float)):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    else:
        assert found == want


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_of_torch(name: str) -> None:
    graphs, results = {}, {}
    for side, t in SIDES.items():
        t.manual_seed(0)
        traced = t.fx.symbolic_trace(PROGRAMS[name](t))
        graphs[side] = rows(traced.graph)
        args, kwargs = inputs(t, name)
        results[side] = numbers(traced(*args, **kwargs))
        t.manual_seed(0)
        same(results[side], numbers(PROGRAMS[name](t)(*args, **kwargs)))
        compiled = t.compile(traced)(*args, **kwargs) if side == "graphc" else None
        if compiled is not None:
            same(numbers(compiled), results[side])
    assert graphs["graphc"] == graphs["torch"]
    same(results["graphc"], results["torch"])


class Small(graphc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = graphc.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return graphc.relu(self.linear(x)) + graphc.relu(x)


def written(t: Any, symbolic_trace: Any) -> Any:
    """What there is to write: defaults, annotations, operators, dtypes, names that are taken."""

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = t.nn.Linear(3, 3), t.nn.Parameter(t.ones(3))

        def forward(
            self, x, y=None, n=2, *rest, k=1.5, **named,
        ):
            relu = t.relu(self.linear(x)).add(self.scale, alpha=k)
            z = -relu.to(t.float64).view(-1, n)[0, 1:, None, ...]
            return t.cat([z, z], dim=-1), {"a": (relu * 2,), "b": rest[0]}

    Net.forward.__annotations__ = {
        "x": t.Tensor, "y": Optional[t.Tensor], "n": int | None, "k": float, "return": Any,  # noqa: UP045
    }
    return symbolic_trace(Net())


def test_texts_are_torchs() -> None:
    found, want = written(graphc, fx.symbolic_trace), written(torch, torch.fx.symbolic_trace)
    assert str(found.graph) == str(want.graph)
    assert found.code == want.code
    assert [n.format_node() for n in found.graph.nodes] == [
        n.format_node() for n in want.graph.nodes
    ]
    x = graphc.arange(6.0).view(2, 3)
    assert found(x, None, 2, 1.5, 7)[1]["b"] == 7


def test_a_graph_can_be_changed() -> None:
    traced = fx.symbolic_trace(Small())
    x = graphc.tensor([[-1.0, 0.5, 2.0]])
    before = traced(x)
    for node in traced.graph.nodes:
        if node.target is graphc.relu:
            with traced.graph.inserting_after(node):
                other = traced.graph.call_function(graphc.tanh, node.args)
            assert node.next is other and other.prev is node
            node.replace_all_uses_with(other)
    assert traced.graph.eliminate_dead_code() and not traced.graph.eliminate_dead_code()
    traced.recompile()
    want = graphc.tanh(traced.linear(x)) + graphc.tanh(x)
    assert traced(x).tolist() == want.tolist() != before.tolist()
    assert "torch.tanh" in traced.code and "self.linear(x)" in traced.code
    traced.graph.lint()
    with pytest.raises(RuntimeError, match="still had 1 users"):
        traced.graph.erase_node(next(iter(traced.graph.nodes)).next)
    output = traced.graph.output_node()
    traced.graph.erase_node(output)
    with traced.graph.inserting_after(other):
        traced.graph.output({"x": other})
    assert list(traced.graph.nodes)[-1].op != "output" or traced.graph.output_node().args
    assert [n.op for n in reversed(traced.graph.nodes)][-1] == "placeholder"


@pytest.mark.parametrize("module", ["torch", "graphc"])
def test_where_new_nodes_go(module: str) -> None:
    """At once, and directly behind a Node: the last made is the first there."""
    t, fx = importlib.import_module(module), importlib.import_module(f"{module}.fx")

    def begun() -> Any:
        graph = fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(t.relu, (x,))
        graph.output(y)
        return graph, x, y

    def make(graph: Any, x: Any, *names: str) -> str:
        for name in names:
            graph.call_function(getattr(t, name), (x,))
        return " ".join(node.name for node in graph.nodes)

    graph, x, y = begun()
    with graph.inserting_after(x):
        assert make(graph, x, "abs", "neg") == "x neg abs_1 relu output"
    with graph.inserting_before(y):
        assert make(graph, x, "sin", "cos") == "x neg abs_1 sin cos relu output"
    assert make(graph, x, "tan") == "x neg abs_1 sin cos relu output tan"
    graph, x, y = begun()
    graph.inserting_after(x)
    assert make(graph, x, "abs") == "x abs_1 relu output"
    with graph.inserting_before():
        assert make(graph, x, "sin", "cos") == "cos sin x abs_1 relu output"
    assert make(graph, x, "tan") == "cos sin x tan abs_1 relu output"
    graph, x, y = begun()
    with graph.inserting_after():
        assert make(graph, x, "abs", "neg") == "x relu output abs_1 neg"
    graph, x, y = begun()
    graph.inserting_after(graph.call_function(t.exp, (x,)))
    graph.erase_node(next(node for node in graph.nodes if node.name == "exp"))
    assert make(graph, x, "abs") == "x relu output abs_1"


def test_a_trace_of_ones_own() -> None:
    """As torch_geometric's, which is made of the parts that torch's Tracer is made of."""
    from graphc.fx import _symbolic_trace as st

    class Own(graphc.fx.Tracer):
        @st.compatibility(is_backward_compatible=True)
        def trace(self, root: Any, concrete_args: Any = None) -> Any:
            self.root = root
            self.graph = graphc.fx.Graph(tracer_cls=type(self))
            function, args = self.create_args_for_root(type(root).forward, True, concrete_args)
            found: dict[str, Any] = {}

            def attribute(module: Any, name: str) -> Any:
                return self.getattr(name, st._orig_module_getattr(module, name), found)

            def call(module: Any, *args: Any, **kwargs: Any) -> Any:
                def forward(*args: Any, **kwargs: Any) -> Any:
                    return st._orig_module_call(module, *args, **kwargs)

                return self.call_module(module, forward, args, kwargs)

            with st._Patcher() as patcher:
                patcher.patch_method(graphc.nn.Module, "__getattr__", attribute, deduplicate=False)
                patcher.patch_method(graphc.nn.Module, "__call__", call, deduplicate=False)
                st._patch_wrapped_functions(patcher)
                st._autowrap_check(patcher, globals(), self._autowrap_function_ids)
                self.create_node("output", "output", (self.create_arg(function(*args)),), {})
            return self.graph

    class Scaled(graphc.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = graphc.nn.Linear(3, 2)
            self.scale = graphc.nn.Parameter(graphc.ones(2) * 2)

        def forward(self, x: Any, *, bias: Any) -> Any:
            return self.linear(x) * self.scale + bias

    model, before = Scaled(), graphc.nn.Module.__call__
    made = graphc.fx.GraphModule(model, Own().trace(model))
    assert [n.op for n in made.graph.nodes] == [
        "placeholder", "placeholder", "call_module", "get_attr", "call_function", "call_function",
        "output",
    ]
    x = graphc.randn(4, 3)
    assert graphc.equal(made(x, bias=1.0), model(x, bias=1.0))
    assert graphc.nn.Module.__call__ is before


def test_a_graph_module_is_a_module() -> None:
    model = Small()
    traced = fx.symbolic_trace(model)
    assert traced.state_dict().keys() == model.state_dict().keys()
    assert type(traced).__name__ == "Small" and isinstance(traced, fx.GraphModule)
    assert traced.linear.weight is model.linear.weight
    copied = copy.deepcopy(traced)
    x = graphc.ones(1, 3)
    assert copied(x).tolist() == traced(x).tolist()
    assert copied.linear.weight is not traced.linear.weight
    assert copied.graph is not traced.graph and copied.graph.owning_module is copied
    loss = traced(x).sum()
    loss.backward()
    assert model.linear.weight.grad is not None
    with pytest.raises(NotImplementedError, match=r"state_dict\(\)"):
        pickle.dumps(traced)


def test_interpreters_and_transformers() -> None:
    traced, x = fx.symbolic_trace(Small()), graphc.tensor([[-1.0, 0.5, 2.0]])

    class Doubled(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_function(target, args, kwargs)
            return result * 2 if target is graphc.relu else result

    assert fx.Interpreter(traced).run(x).tolist() == traced(x).tolist()
    assert Doubled(traced).run(x).tolist() == (traced(x) * 2).tolist()

    class Negated(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            target = operator.sub if target is operator.add else target
            return super().call_function(target, args, kwargs)

    changed = Negated(traced).transform()
    assert changed(x).tolist() == (graphc.relu(traced.linear(x)) - graphc.relu(x)).tolist()


@pytest.mark.parametrize("name", ["branches", "arithmetic", "constants"])
def test_shapes_of_nodes_are_those_of_torch(name: str) -> None:
    found = {}
    for side, t in SIDES.items():
        shape_prop = importlib.import_module(f"{side}.fx.passes.shape_prop")
        traced = t.fx.symbolic_trace(PROGRAMS[name](t))
        args, kwargs = inputs(t, name)
        shape_prop.ShapeProp(traced).propagate(*args, *kwargs.values())
        found[side] = [
            (node.name, *map(described, (node.meta["type"].__name__, node.meta.get("tensor_meta"))))
            for node in traced.graph.nodes
        ]
    assert found["graphc"] == found["torch"]


def described(meta: Any) -> str:
    return str(meta).replace("graphc.", "torch.").removeprefix("immutable_")


def test_a_node_that_fails_is_named() -> None:
    traced = fx.symbolic_trace(Small())
    with pytest.raises(RuntimeError, match=r"ShapeProp error for: node=%linear : .*call_module"):
        fx.passes.shape_prop.ShapeProp(traced).propagate(graphc.ones(1, 4))


def helper(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


fx.wrap("helper")
fx.wrap("len")


def test_wrapped_functions_are_nodes() -> None:
    def function(x: Any) -> Any:
        return helper(x) * len(x)

    traced = fx.symbolic_trace(function)
    assert [n.name for n in traced.graph.nodes if n.op == "call_function"] == [
        "helper", "len_1", "mul"
    ]
    assert traced(graphc.tensor([-1.0, -2.0])).tolist() == [2.0, 4.0]
    assert helper(graphc.tensor([-1.0])).tolist() == [1.0] and len([1]) == 1
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("helper")


def test_what_needs_a_value_is_refused() -> None:
    def branching(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(fx.proxy.TraceError, match="control flow"):
        fx.symbolic_trace(branching)
    with pytest.raises(fx.proxy.TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: sum(row for row in x))
    with pytest.raises(NotImplementedError, match="argument of type: object"):
        fx.symbolic_trace(lambda x: graphc.add(x, object()))
    assert not fx._symbolic_trace.is_fx_tracing()
    assert graphc.relu(graphc.tensor([-1.0])).tolist() == [0.0]
    x = graphc.ones(1, 3)
    assert Small()(x).shape == (1, 3)  # Modules are as before
