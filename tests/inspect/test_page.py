"""The page of a compiled function: whole, escaped, the same each time, of any function."""

from __future__ import annotations

import base64
import gc
import re
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import export
from graphc.inspect.page.markup import Markup, tag
from graphc.inspect.timing import Timing
from tests.inspect.pages import Page, checked, long_chain, without_runs


def saved(found: Any, folder: Path, **options: Any) -> tuple[str, Page]:
    path = folder / "page.html"
    found.save_html(path, **options)
    text = path.read_text(encoding="utf-8")
    return text, checked(text)


def training(model: nn.Module) -> Any:
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return torch.compile(step)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Sequential(nn.Linear(16, 4), nn.ReLU()))


def test_a_training_step(net: nn.Module, tmp_path: Path) -> None:
    x, target = torch.randn(5, 8), torch.zeros(5, dtype=torch.int64)
    before = [p.detach().clone() for p in net.parameters()]
    found = torch.explain(training(net), x, target)
    text, page = saved(found, tmp_path)
    # measured, on copies
    for parameter, was in zip(net.parameters(), before, strict=True):
        assert torch.equal(parameter, was)
        assert parameter.grad is None
    (timing,) = found.timings
    assert isinstance(timing, Timing) and timing.given and timing.whole > 0
    assert len(timing.steps) == len(found.steps) and all(s > 0 for s in timing.steps)
    # every step, kernel, guard and stage is there
    for number, step in enumerate(found.steps):
        assert f"p0-s{number}" in page.ids and step.name in page.text
    for kernel in re.findall(r"^kernel (\S+)\(", found.kernels_text, re.M):
        assert f"kernel {kernel}(" in page.text
    for line in (*found.guards, *found.folded, *found.times):
        assert line in page.text
    assert "the first call" in page.text and "x: float32[5, 8]" in page.text
    # the user's line, as it is written
    assert "loss = F.cross_entropy(model(x), target)" in page.text
    # code is packed
    packed = re.findall(r'<script type="application/octet-stream" id="p0-k\d+-code">([^<]*)<', text)
    assert packed
    assert all("define" in zlib.decompress(base64.b64decode(each)).decode() for each in packed)
    assert "of copy" in page.text or "of peak" in page.text


def test_the_same_function_gives_the_same_page(net: nn.Module, tmp_path: Path) -> None:
    x, target = torch.randn(3, 8), torch.zeros(3, dtype=torch.int64)
    step = training(net)
    first, _ = saved(torch.explain(step, x, target), tmp_path)
    second, _ = saved(torch.explain(step, x, target), tmp_path)
    assert without_runs(first) == without_runs(second)
    assert len(without_runs(first)) > 0.5 * len(first)  # not by leaving all out


def test_names_are_escaped(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("a<b>&\"'</script><script>alert(1)//", nn.Linear(3, 2))

        def forward(self, x: Any) -> Any:
            return next(iter(self.children()))(x) * 2

    def function(x: Any) -> Any:
        return odd(x)

    odd = Odd()
    function.__name__ = "<script>alert('name')</script>"
    compiled = torch.compile(function)
    with torch.no_grad():
        compiled(torch.ones(4, 3))
        found = torch.explain(compiled, torch.ones(4, 3))
    text, page = saved(found, tmp_path, measure=False)
    assert page.tags["script"] == text.count("<script")
    assert "<script>alert" not in text and "<script>alert('name')</script>" in page.text
    for shown in (found._repr_html_(), compiled._repr_html_()):
        assert "<script" not in shown and "alert(&#x27;name&#x27;)" in shown
        Page(shown)


def test_markup_escapes_what_is_no_markup() -> None:
    assert tag("p", "a<b", Markup("<i>c</i>"), title='"&', hidden=True, lang=None) == (
        '<p title="&quot;&amp;" hidden>a&lt;b<i>c</i></p>'
    )


def test_a_forward_and_a_backward(net: nn.Module, tmp_path: Path) -> None:
    found = torch.explain(torch.compile(net), torch.ones(5, 8))
    _, page = saved(found, tmp_path)
    assert {"part-0", "part-1", "versions", "memory"} <= {*page.ids}
    forward, backward = found.timings
    assert isinstance(forward, Timing) and forward.given
    assert isinstance(backward, Timing) and not backward.given
    assert "on made-up numbers" in page.text


def test_symbolic_sizes_and_several_versions(tmp_path: Path) -> None:
    @torch.compile
    def scaled(x: Any, by: Any) -> Any:
        return torch.softmax(x * by, 1)

    for size, by in ((4, 2.0), (6, 2.0), (6, True)):
        scaled(torch.ones(size, 3), by)
    found = torch.explain(scaled, torch.ones(7, 3), 2.0)
    _, page = saved(found, tmp_path)
    assert "s0 = 6" in page.text and len(found.history) == 3
    first, second, third = found.history
    assert first.why == ("the first call",) and second.explained
    assert second.why == ("x: float32[4, 3] -> float32[6, 3]",) and "by:" in third.why[0]
    assert second.why[0] in page.text and second.arguments[0] == "x: float32[s0, 3]"
    (timing,) = found.timings
    assert isinstance(timing, Timing) and timing.given


def test_a_guard_that_broke_is_the_reason() -> None:
    settings = {"scale": 2.0}

    @torch.compile
    def scaled(x: Any) -> Any:
        return x * settings["scale"]

    scaled(torch.ones(3))
    settings["scale"] = 3.0
    scaled(torch.ones(3))
    found = torch.explain(scaled, torch.ones(3))
    assert [each.number for each in found.history] == [1, 2]
    assert "scale" in " ".join(found.history[1].why)


def test_segments(tmp_path: Path) -> None:
    @torch.compile
    def halved(x: Any) -> Any:
        while x.norm() > 1:
            x = x / 2
        return x.exp()

    x = torch.ones(2000)
    for _ in range(3):
        halved(x)
    found = torch.explain(halved, x)
    _, page = saved(found, tmp_path)
    assert "open" in page.ids and "while x.norm() > 1:" in page.text and "in segments" in page.text
    for place in found.open:
        assert place.what in page.text and place.cure in page.text
    assert "in segments" in found._repr_html_() and "in segments" in halved._repr_html_()


def test_what_was_never_one_graph(tmp_path: Path) -> None:
    def never(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    found = torch.explain(torch.compile(never), torch.ones(2))
    _, page = saved(found, tmp_path)
    assert "part-0" not in page.ids and "if x.sum() > 0 else x" in page.text
    assert found.open and found.open[0].cure in page.text


def test_what_fullgraph_refuses(tmp_path: Path) -> None:
    def refused(x: Any) -> Any:
        y = x * x.sum().item()
        return y if y[0] > 0 else -y

    compiled = torch.compile(refused, fullgraph=True)
    found = torch.explain(compiled, torch.ones(2))
    _, page = saved(found, tmp_path)
    assert "part-0" not in page.ids and "refused: no one graph" in page.text
    assert len(found.open) == 2 and "2 places in it are open" in str(found)
    for place in found.open:
        assert place.what in page.text and place.cure in page.text
    assert "return y if y[0] > 0 else -y" in page.text
    with pytest.raises(type(found.refused), match="item"):
        compiled(torch.ones(2))


def test_a_loop_and_its_memory(tmp_path: Path) -> None:
    rnn = nn.LSTM(6, 6)
    with torch.no_grad():
        found = torch.explain(rnn, torch.ones(9, 4, 6))
    text, page = saved(found, tmp_path)
    (part,) = found.parts
    assert any(step.times == 8 for step in part.steps) and " × 9" in text
    (timing,) = found.timings
    assert isinstance(timing, Timing)
    assert "m-value" in text and page.tags["rect"] > len(part.lifetimes)


def test_a_loop_that_data_end_is_measured_on_real_numbers_alone() -> None:
    def grown(x: Any) -> Any:
        return torch.while_loop(lambda x: (x.sum() < 100.0), lambda x: (x * 2,), (x,))[0]

    compiled = torch.compile(grown)
    compiled(torch.ones(3))
    with_numbers, without = torch.explain(compiled, torch.ones(3)), torch.explain(compiled)
    with_numbers.measure()
    without.measure()
    assert isinstance(with_numbers.timings[0], Timing)
    assert "a loop ends by its data" in str(without.timings[0])


def test_an_index_out_of_range_is_no_time() -> None:
    compiled = torch.compile(lambda table, at: table[at] * 2)
    compiled(torch.ones(5, 2), torch.tensor([1, 2]))
    found = torch.explain(compiled, torch.ones(5, 2), torch.tensor([1, 7]))
    found.measure()
    assert "IndexError" in str(found.timings[0])


def test_numpy_steps_are_said(tmp_path: Path) -> None:
    found = torch.explain(lambda x: torch.sort(x * 2)[0] + 1, torch.ones(10))
    _, page = saved(found, tmp_path)
    assert "NumPy runs sort" in page.text and "NumPy runs it, on the host." in page.text


def test_an_exported_program(tmp_path: Path) -> None:
    program = export(nn.Linear(8, 4), (torch.ones(3, 8),), dynamic_shapes=({0: "n"},))
    _, page = saved(torch.explain(program, torch.ones(5, 8)), tmp_path)
    assert "guards" not in page.ids and "n = 3" in page.text


def test_a_large_graph_is_a_small_page(tmp_path: Path) -> None:
    found = torch.explain(torch.compile(long_chain(2000), backend="numpy"), torch.ones(4, 4))
    assert len(found.parts[0].built.graph.nodes) > 2000 and len(found.steps) > 300
    text, _ = saved(found, tmp_path)
    assert len(text) < 3_000_000
    assert "interprets" in str(found.timings[0])


def test_a_compiled_function_writes_its_page(tmp_path: Path) -> None:
    @torch.compile
    def twice(x: Any) -> Any:
        return x * 2

    assert "not called yet" in twice._repr_html_()
    twice(torch.ones(3))
    twice.save_html(tmp_path / "twice.html")
    assert "twice" in checked((tmp_path / "twice.html").read_text()).text
    assert "x: float32[3]" in twice._repr_html_()


def test_compiled_segments_are_parts(tmp_path: Path) -> None:
    @torch.compile
    def grown(x: Any) -> Any:
        y = torch.tanh(x @ x)
        return y * 2 if y.sum() < 1e9 else y

    grown.always_compiled = True
    grown(torch.ones(8, 8))
    grown(torch.ones(8, 8))
    found = torch.explain(grown, torch.ones(8, 8))
    _, page = saved(found, tmp_path)
    assert len(found.parts) == 2 and {"part-0", "part-1", "open"} <= {*page.ids}
    assert all(isinstance(timing, Timing) for timing in found.timings)


def test_what_no_document_may_hold(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("a\x1b\udc80b", nn.Linear(2, 2))
    found = torch.explain(model, torch.ones(1, 2))
    _, page = saved(found, tmp_path, measure=False)
    assert "a\ufffd\ufffdb" in page.text
    found.save_svg(tmp_path / "page.svg")
    ElementTree.parse(tmp_path / "page.svg")
    assert found._repr_html_().encode()


def test_numbers_are_said_as_they_are_written() -> None:
    compiled = torch.compile(lambda x, by: x * by, dynamic=False)
    for by in (2.5, 3):
        compiled(torch.ones(2), by)
    first, second = torch.explain(compiled, torch.ones(2), 3).history
    assert first.arguments[1] == "by: 2.5" and second.why == ("by: 2.5 -> 3",)


def test_pictures_share_no_names() -> None:
    """An id that is there twice is that of the first picture, which may be folded away."""
    found = torch.explain(lambda x: torch.softmax(x @ x, 1).sum(), torch.ones(3, 3))
    assert not re.search(r'\bid="|url\(', found.parts[0].fused_svg() + found._repr_html_())


def test_versions_that_are_gone() -> None:
    class Options:
        pass

    compiled = torch.compile(lambda x, options: x + 1)
    compiled(torch.ones(2), Options())
    gc.collect()
    assert compiled.versions() == []
    assert "1 version compiled; none is left" in compiled._repr_html_()


def test_measuring_leaves_all_as_it_was(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4))
    step, calls = training(model), []
    x, target = torch.randn(5, 8), torch.zeros(5, dtype=torch.int64)

    def counted(x: Any, target: Any) -> Any:
        calls.append(x.shape[0])
        return step(x, target)

    compiled = torch.compile(counted)
    for _ in range(3):
        compiled(x, target)
    kept = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    before = [each.clone() for each in (*kept, torch.get_rng_state())]
    saved(torch.explain(compiled, x, target), tmp_path)
    for each, was in zip((*kept, torch.get_rng_state()), before, strict=True):
        assert torch.equal(each, was)
    count = compiled.compile_count
    compiled(x, target)
    assert compiled.compile_count == count and calls == [5] * 4

    written = torch.compile(lambda x: x.add_(1))
    written(x)
    was = x.clone()
    saved(torch.explain(written, x), tmp_path)
    assert torch.equal(x, was)
