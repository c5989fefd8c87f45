"""Names: inputs by path or argument, nodes by Module and phase; nothing else depends on them."""

from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.engine.capture.reached import argument_names, reached
from graphc.frontend.tree import flatten
from graphc.inspect.explain import explain
from graphc.ir.graph import Graph
from graphc.ir.text import parse_graph, print_graph
from tests.graphc import tiers


def graph_of(function: Any, *args: Any, **kwargs: Any) -> Graph:
    graph = explain(function, *args, **kwargs).parts[0].built.graph
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    return graph


def input_names(graph: Graph) -> list[str]:
    return [node.attrs["name"] for node in graph.inputs]


def places(graph: Graph, op: str) -> list[tuple[str, str]]:
    """(Module, phase) of the nodes of an operator."""
    nodes = [node for node in graph.nodes if node.op.name == op]
    return [("" if n.loc is None else n.loc.module, n.phase) for n in nodes]


def sequential_step() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss()

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step, torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)


def test_a_training_step_names_weights_buffers_and_optimizer_state() -> None:
    step, x, target = sequential_step()
    names = input_names(graph_of(step, x, target))
    assert {"0.weight", "0.bias", "1.weight", "3.bias", "x", "target", "lr", "betas[0]"} <= {*names}
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= {*names}
    assert {"step of 0.weight", "exp_avg of 0.weight", "exp_avg_sq of 3.bias"} <= {*names}
    assert len({*names}) == len(names)


def test_nodes_know_their_module_and_phase() -> None:
    step, x, target = sequential_step()
    graph = graph_of(step, x, target)
    assert ("0", "forward") in places(graph, "dot_general")
    assert ("3", "forward") in places(graph, "dot_general")
    assert ("3", "backward") in places(graph, "dot_general")
    assert ("2", "forward") in places(graph, "relu")
    assert ("criterion", "forward") in places(graph, "cross_entropy")
    assert {*places(graph, "sqrt")} == {("", "optimizer")}


def test_gradients_are_named_by_their_owner() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].weight.grad = torch.ones(2, 2)

    def norm(scale: float) -> Any:
        return (model[0].weight.grad * scale).norm()

    run = torch.compile(norm)
    run(1.0)
    assert {"grad of 0.weight", "scale"} <= {*input_names(run.lower(2.0).graph)}


def test_several_models_are_told_apart_by_their_variables() -> None:
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1))

    def score(noise: Any) -> Any:
        return critic(generator(noise))

    with torch.no_grad():
        graph = graph_of(score, torch.ones(5, 2))
    names = input_names(graph)
    assert names == ["noise", "generator.weight", "generator.bias", "critic.0.weight",
                     "critic.0.bias"]
    assert [m for m, _ in places(graph, "dot_general")] == ["generator", "critic.0"]


class Trainer:
    """Models as attributes of an object of the user's."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.offset = torch.ones(2)

    def predict(self, x: Any, *, mask: Any) -> Any:
        return self.net(x) * mask + self.offset


def test_methods_closures_and_tensors_of_objects() -> None:
    trainer = Trainer()
    with torch.no_grad():
        graph = graph_of(trainer.predict, torch.ones(3, 2), mask=torch.ones(3, 2))
    assert input_names(graph) == ["x", "0.weight", "0.bias", "mask", "offset"]


def test_arguments_in_containers_and_starred() -> None:
    def total(batch: dict[str, Any], *rest: Any) -> Any:
        return batch["image"] + batch["more"][1] + rest[0] + rest[1]

    one = torch.ones(2)
    graph = graph_of(total, {"image": one, "more": [0, one + 1]}, one + 2, one + 3)
    names = input_names(graph)
    assert names == ["batch['image']", "batch['more'][1]", "rest[0]", "rest[1]"]


def test_naming_calls_nothing_of_the_users() -> None:
    class Shy:
        def __init__(self) -> None:
            self.weight = torch.ones(2)

        def __repr__(self) -> str:
            raise AssertionError("called by a name")

    shy = {Shy(): torch.ones(2), torch.ones(1): Shy()}

    def use(x: Any, given: dict[Any, Any]) -> Any:
        return x + next(iter(shy.values())) + next(iter(given.values()))

    call = (torch.ones(2), {Shy(): torch.ones(2)})
    assert {*reached(use, call, {})} == {"x", "given[Shy]", "shy[Shy]", "shy[Tensor].weight"}
    _, structure = flatten((call, {}))
    assert argument_names(use, call, {}, structure) == ["x", "given[Shy]"]


def test_names_that_clash_are_numbered() -> None:
    weight = torch.ones(2)

    def apart(x: Any, scale: dict[str, Any]) -> Any:
        return x * weight * scale["x"]

    def clash(weight_of: Any) -> Any:
        def inner(weight: Any) -> Any:
            return weight * weight_of

        return inner

    assert input_names(graph_of(apart, torch.ones(2), {"x": torch.ones(2)})) == [
        "x", "weight", "scale['x']",
    ]
    module = nn.Linear(2, 2)

    def shadowing(weight: Any) -> Any:
        return module.weight * weight * clash(weight)(weight)

    names = input_names(graph_of(shadowing, torch.ones(2, 2)))
    assert sorted(names) == ["weight", "weight 2"]


def test_a_module_that_hangs_nowhere_and_one_that_is_compiled() -> None:
    loose = [nn.Linear(2, 2, bias=False)]

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)

        def forward(self, x: Any) -> Any:
            return loose[0](self.first(x))

    with torch.no_grad():
        names = input_names(graph_of(Holder(), torch.ones(1, 2)))
        assert names == ["x", "first.weight", "loose[0].weight"]
        compiled = torch.compile(nn.Sequential(nn.Linear(2, 2, bias=False)))
        names = input_names(graph_of(lambda x: compiled(x), torch.ones(1, 2)))
    assert names == ["x", "0.weight"]


def test_odd_module_names_print_and_parse() -> None:
    model = nn.Module()
    model.add_module("a layer, module 7", nn.Linear(2, 2))
    model.forward = lambda x: model._modules["a layer, module 7"](x)
    with torch.no_grad():
        graph = graph_of(model, torch.ones(1, 2))
    assert "a layer, module 7.weight" in input_names(graph)
    assert places(graph, "dot_general") == [("a layer, module 7", "forward")]


def test_equal_layers_run_one_kernel_whatever_they_are_called() -> None:
    one = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    named = nn.Sequential()
    for i, layer in enumerate(one):
        named.add_module(f"layer{i}", layer)
    with torch.no_grad():
        first, second = explain(one, torch.ones(3, 8)), explain(named, torch.ones(3, 8))
    assert first.steps[0].symbol == first.steps[1].symbol
    assert [s.symbol for s in first.steps] == [s.symbol for s in second.steps]
    assert all(step.cached for step in second.steps)


def test_the_report_and_the_kernels_say_who_reads_what() -> None:
    step, x, target = sequential_step()
    found = explain(torch.compile(step), x, target)
    (first,) = [s for s in found.steps if s.kind == "contraction" and "0.bias" in s.reads]
    assert first.reads == ("x", "0.weight", "0.bias")
    report = str(found)
    assert ", module 3, backward" in report and ", optimizer" in report
    (update,) = [s for s in found.steps if "0.weight" in s.writes]
    assert {*update.writes} == {"0.weight", "exp_avg of 0.weight", "exp_avg_sq of 0.weight"}
    assert "  writes " in report
    assert "a1 = 0.weight" in found.kernels_text
    assert "forward of 0: a0 = x" in found.kernels_text
    assert "  blocks of k " in found.kernels_text


def test_segments_carry_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("compiled", monkeypatch)
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU())

    @torch.compile
    def peek(x: Any) -> Any:
        hidden = model(x)
        if hidden.sum().item() < 0:
            return hidden
        return hidden * 2

    with torch.no_grad():
        peek(torch.ones(2, 3))
        peek(torch.ones(2, 3))
    found = explain(peek, torch.ones(2, 3))
    graphs = [built.graph for built in found.builts]
    assert any({"x", "0.weight"} <= {*input_names(graph)} for graph in graphs)
    assert any(("1", "forward") in places(graph, "relu") for graph in graphs)


class Undecided(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


def test_errors_name_the_module() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Undecided())
    with pytest.raises(RuntimeError, match=r"test_names\.py:\d+ in .*forward, module 1"):
        torch.compile(lambda x: model(x), fullgraph=True)(torch.ones(1, 3))
    table = nn.ModuleDict({"tokens": nn.Embedding(4, 2)})

    @torch.compile
    def look(ids: Any) -> Any:
        return F.relu(table["tokens"](ids))

    with pytest.raises(IndexError, match=r"test_names\.py:\d+ in "):
        look(torch.tensor([9]))


def test_a_closure_of_an_optimizer_is_no_optimizer_step() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = model(x).exp().sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    graph = graph_of(step, torch.ones(3, 2))
    assert places(graph, "exp") == [("", "forward")]
    assert ("", "optimizer") in places(graph, "mul")
