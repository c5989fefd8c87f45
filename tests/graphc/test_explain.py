"""explain(): figures that can be counted by hand, and nothing of the user's changes."""

import importlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import export
from graphc.inspect.explain import Explanation, explain
from graphc.inspect.picture import graph_svg
from graphc.inspect.picture_layout import WIDTH
from graphc.inspect.picture_words import text_width
from graphc.inspect.report import short_path
from graphc.inspect.units import si
from graphc.ir import dtypes, ops
from graphc.ir.graph import Builder, Expr
from graphc.ir.types import TensorType


def lines_with(explanation: Explanation, text: str) -> list[str]:
    return [line for line in str(explanation).splitlines() if text in line]


def test_a_chain_is_one_kernel_with_its_cost_and_lines() -> None:
    @torch.compile
    def chain(x: Any, y: Any) -> Any:
        a = x * y  # the first line
        return torch.exp(a) + 1.0

    x = torch.ones(200, 200)
    found = explain(chain, x, x.clone())
    (step,) = found.steps
    assert step.kind == "loop" and step.ops == ("mul", "exp", "add")
    assert step.cost.read == 320_000 and step.cost.written == 160_000
    assert step.cost.flops == 120_000
    assert step.cost.chunks > 1
    here = f"{short_path(__file__)}:"
    assert [place.startswith(here) for place, _ in step.lines] == [True, True]
    assert [ops for _, ops in step.lines] == [("mul",), ("exp", "add")]
    (part,) = found.parts
    assert part.memory.inputs == 320_000 and part.memory.outputs == 160_000
    assert part.memory.arena == 0 and part.memory.peak == 480_000
    assert lines_with(found, "reads 320 kB, writes 160 kB, 120 kFLOP")
    assert lines_with(found, "compile time, ms: trace and guards")


def test_products_and_convolutions_count_two_operations_per_product() -> None:
    a, b = torch.ones(20, 30), torch.ones(30, 40)
    found = explain(lambda a, b: a @ b, a, b)
    (step,) = found.steps
    assert step.kind == "contraction" and step.cost.flops == 2 * 20 * 30 * 40
    x, w = torch.ones(2, 4, 9, 9), torch.ones(6, 2, 3, 3)
    found = explain(lambda x, w: F.conv2d(x, w, groups=2), x, w)
    flops = sum(step.cost.flops for step in found.steps if step.kind == "contraction")
    assert flops == 2 * 2 * 6 * 7 * 7 * 2 * 3 * 3


def test_a_row_kernel() -> None:
    found = explain(lambda x: torch.softmax(x, 1), torch.ones(64, 1000))
    (step,) = found.steps
    assert step.kind == "rows" and step.cost.chunks > 1
    assert set(step.ops) >= {"amax", "exp", "sum", "reciprocal"}


def test_explaining_neither_runs_nor_changes_anything() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step)
    before = model.weight.detach().numpy().copy()
    found = explain(compiled, torch.ones(2, 4))
    np.testing.assert_array_equal(model.weight.detach().numpy(), before)
    assert compiled.compile_count == 1 and found.versions == 1
    compiled(torch.ones(2, 4))
    assert compiled.compile_count == 1
    assert (model.weight.detach().numpy() != before).any()
    assert lines_with(found, "['lr'] is a float: any value")


def test_a_module_is_two_graphs_where_it_can_be_trained() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.ones(5, 8)
    both = explain(torch.compile(model), x)
    assert len(both.parts) == 2 and "forward and backward" in str(both)
    with torch.no_grad():
        one = explain(model, x)
    assert len(one.parts) == 1 and one.name == "Sequential"
    assert "backward 1" not in one.graph_text


def test_an_exported_program() -> None:
    program = export(nn.Linear(8, 4), (torch.ones(3, 8),), dynamic_shapes=({0: "n"},))
    found = explain(program, torch.ones(5, 8))
    assert [step.kind for step in found.steps] == ["contraction"]
    assert lines_with(found, "graph Linear at n = 3")


def test_callbacks_are_named() -> None:
    found = explain(lambda x: torch.sort(x * 2)[0] + 1, torch.ones(10))
    (callback,) = found.callbacks
    assert callback.name == "sort"
    (line,) = lines_with(found, "NumPy runs sort at ")
    assert short_path(__file__) in line and "no native code" in line


def test_the_cache_is_seen() -> None:
    def unusual(x: Any) -> Any:
        return torch.tanh(x * 0.1234567) - 7.654321

    config = torch.config.override(cache_dir=None)
    with config:
        first = explain(unusual, torch.ones(33))
        second = explain(unusual, torch.ones(33))
    assert second.steps[0].cached is True
    assert lines_with(second, "kernels from the cache: 1 of 1")
    assert first.steps[0].symbol == second.steps[0].symbol


def test_guards_are_listed() -> None:
    def halves(x: Any, rate: float) -> Any:
        if rate > 0.5:
            return x * rate
        return x

    compiled, x = torch.compile(halves), torch.ones(6).requires_grad_()
    found = explain(compiled, x, 0.5)
    assert "argument 1 is 0.5" in found.guards
    found = explain(compiled, x, 0.75)
    text = "\n".join(found.guards)
    assert "argument 0 is f32[6], requires_grad" in text
    assert "argument 1 is a float: any value" in text
    assert "a number keeps the value" in text and "test_explain.py:" in text


def test_the_guards_of_a_module_are_one_line() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
            self.scale = 2.0

        def forward(self, x: Any) -> Any:
            return self.body(x) * self.scale

    net = Scaled()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    found = explain(step, torch.ones(2, 4))
    assert isinstance(found, Explanation)
    report = str(found).partition("no longer holds:\n")[2].splitlines()
    lines = [line.strip() for line in report]
    named = [line.split()[1] for line in lines if line.startswith("module ")]
    assert named == ["net", "net.body", *(f"net.body.{i}" for i in range(4))]
    (dropout,) = lines_with(found, "module net.body.2")
    assert dropout.strip().startswith("module net.body.2 (Dropout): hooks, training flag unchanged")
    assert [line.split(" == ")[0] for line in lines if line.endswith(("== 2.0", "== 0.5"))] == [
        "net.body.2.p", "net.scale",
    ]
    counts = [re.search(r"\((\d+)(?: times)?\)$", line) for line in lines[:-1]]
    assert sum(int(c[1]) if c else 1 for c in counts) == len(found.guards) > 5 * len(lines)


def test_texts_and_pictures(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    found = explain(torch.compile(model), torch.ones(5, 8))
    assert "tanh" in found.graph_text and "fusion" in found.fused_text
    assert "kernel " in found.kernels_text
    found.save_svg(tmp_path / "net.svg")
    found.save_html(tmp_path / "net.html")
    for name in ("net.svg", "net.backward.svg"):
        root = ElementTree.parse(tmp_path / name).getroot()
        assert root.tag.endswith("svg")
        boxes = [e for e in root.iter() if e.tag.endswith("rect")]
        assert len(boxes) > len(found.parts[0].steps)
        titles = [e.text or "" for e in root.iter() if e.tag.endswith("title")]
        assert any("test_explain.py:" in title for title in titles)
        assert any(", module 1" in title for title in titles)
    page = (tmp_path / "net.html").read_text()
    assert page.count("After fusion: ") == page.count("As it was traced: ") == 2
    assert "kernel " in page


def texts_of(svg: str) -> list[str]:
    return [e.text for e in ElementTree.fromstring(svg).iter() if e.text and e.tag.endswith("text")]


def test_a_picture_escapes_names() -> None:
    b = Builder()
    x = Expr(b, b.input(TensorType(dtypes.f32, (3,)), "<x & y>"))
    value, index = ops.sort(x, dim=0, descending=False, stable=True)
    texts = texts_of(graph_svg(b.build([(value * 2.0).node, index.node], "a<b")))
    assert "reads <x & y>" in texts and "a<b" in texts
    assert any(text.startswith("0  sort") for text in texts)


def boxes_of(svg: str) -> dict[str, list[str]]:
    """The texts of each box by "title column", the column being its x."""
    found: dict[str, list[str]] = {}
    for group in ElementTree.fromstring(svg).iter():
        if group.get("data-box"):
            x = next(e.get("x") for e in group if e.tag.endswith("rect"))
            title, *rest = [e.text or "" for e in group.iter() if e.tag.endswith("text")]
            found[f"{title} {x}"] = rest
    return found


def training_picture(model: Any, x: Any, target: Any) -> str:
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    part = explain(torch.compile(step), x, target).parts[0]
    numbers = {s.node: i for i, s in enumerate(part.steps) if s.node is not None}
    return graph_svg(part.built.fused, numbers)


def test_a_picture_has_a_legend_columns_and_no_counters() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    svg = training_picture(model, torch.randn(5, 8), torch.zeros(5, dtype=torch.int64))
    texts = texts_of(svg)
    assert {"contraction", "rows", "loop", "forward", "backward", "optimizer"} <= {*texts}
    assert any("not drawn: steps" in text for text in texts)
    assert not any("step of" in text or "num_batches" in text for text in texts)
    boxes = boxes_of(svg)
    left, middle, right = sorted({float(name.split()[-1]) for name in boxes})
    assert "reads x, weight, bias" in boxes[f"0 {left:g}"]
    assert "updates weight, bias" in boxes[f"3 {right:g}"]
    assert any("dot_general" in line for line in boxes[f"3 {middle:g}"])
    # forward boxes stand in the order in which their steps run
    tops = [
        float(rect.get("y", 0))
        for group in ElementTree.fromstring(svg).iter() if group.tag.endswith("}g")
        for rect in group if rect.get("x") == f"{left:g}" and rect.get("rx") == "5"
    ]
    assert tops == sorted(tops)


def test_a_picture_of_many_modules_is_collapsed_with_counts() -> None:
    def block() -> nn.Module:
        return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(4, 4), nn.Sigmoid())])

    model = nn.Sequential(*[block() for _ in range(10)])
    svg = training_picture(model, torch.randn(5, 4), torch.zeros(5, dtype=torch.int64))
    boxes = boxes_of(svg)
    assert {name.split()[0] for name in boxes} >= {str(i) for i in range(10)}
    assert not any("." in name.split()[0] and ".py:" not in name for name in boxes)
    left = min(float(name.split()[-1]) for name in boxes)
    assert "4 contraction steps" in boxes[f"3 {left:g}"] or len(boxes[f"3 {left:g}"]) == 5
    flat = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])
    svg = training_picture(flat, torch.randn(5, 4), torch.zeros(5, dtype=torch.int64))
    assert any(" to " in name for name in boxes_of(svg))


def test_labels_fit_their_boxes() -> None:
    model = nn.Sequential()
    model.add_module("a_layer_with_a_name_that_is_much_too_long_for_any_box" * 2, nn.Linear(8, 4))
    svg = training_picture(model, torch.randn(5, 8), torch.zeros(5, dtype=torch.int64))
    for lines in boxes_of(svg).items():
        for text in (lines[0].rsplit(" ", 1)[0], *lines[1]):
            assert text_width(text) <= WIDTH


def test_pictures_of_nothing_and_of_much() -> None:
    b = Builder()
    x = Expr(b, b.input(TensorType(dtypes.f32, (3,)), "x"))
    assert "<svg" in graph_svg(b.build([x.node], "same"))
    y = x
    for _ in range(2000):
        y = ops.sin(y) + y
    deep = texts_of(graph_svg(b.build([y.node], "deep")))
    assert {"2000 sin steps", "2000 add steps", "steps 0-3999"} <= {*deep}


@pytest.mark.parametrize(("value", "text"), [(0, "0 "), (999, "999 "), (1500, "1.5 k"),
                                             (2.5e9, "2.5 G"), (7e13, "70000 G"),
                                             (999_700, "1 M"), (999.6, "1 k")])
def test_prefixes(value: float, text: str) -> None:
    assert si(value) == text


@pytest.mark.parametrize(
    "name",
    ["mlp", "lenet", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt", "resnet18"))],
)
def test_no_training_step_calls_numpy_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    models = importlib.import_module("models")
    space = models.load("graphc")
    step = torch.compile(models.training_step(space, *models.make(space, name)))
    found = explain(step, *(torch.from_numpy(array) for array in models.batch(name)))
    assert found.callbacks == [] and len(found.parts) == 1
    assert sum(step.kind == "contraction" for step in found.steps) >= 5


def test_without_arguments_the_newest_version_is_explained() -> None:
    model = torch.compile(nn.Linear(3, 2))
    with pytest.raises(TypeError, match="which was not called yet"):
        torch.explain(model)
    model(torch.ones(4, 3))
    assert "argument 0 is f32[4,3]" in torch.explain(model).guards
    model(torch.ones(4, 3, requires_grad=True))
    assert "argument 0 is f32[4,3], requires_grad" in torch.explain(model).guards


def test_a_function_that_was_not_called_needs_arguments() -> None:
    def twice(x: Any) -> Any:
        return x * 2

    compiled = torch.compile(twice)
    with pytest.raises(TypeError, match=r"twice\(\), which was not called yet.*Cure: explain"):
        explain(compiled)
    compiled(torch.ones(2))
    assert explain(compiled).steps


def test_of_a_table_what_is_looked_up_is_read() -> None:
    table, at = torch.ones(5000, 16), torch.tensor([3, 7, 7])
    (step,) = explain(torch.compile(lambda t, i: t[i] * 2), table, at).steps
    assert (step.cost.read, step.cost.written) == (3 * 16 * 4 + 3 * 8, 3 * 16 * 4)
