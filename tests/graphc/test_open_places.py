"""fullgraph=True, export and explain() name every open place of a function, and change nothing."""

import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.frontend.errors import TraceError


def lines_of(error: BaseException) -> list[str]:
    """The code of the lines that an error's list names."""
    places = re.findall(r" at (/\S+\.py):(\d+)", str(error))
    return [Path(f).read_text().splitlines()[int(number) - 1].strip() for f, number in places]


class Open(nn.Module):
    """Open places, values that steer Python, and state of every sort."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(graphc.ones(3))
        self.register_buffer("steps", graphc.zeros(()))
        self.log: list[Any] = []
        self.count = 0
        self.way = ""

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.steps.add_(1)
        now = os.getppid()
        print("a line that is not printed")
        y = x * self.weight
        if self.steps.item() > 0.5:  # as written above, not as it was
            self.way = "right"
            y = y[y > 1]
        else:
            y = y / os.getpid()
        self.log.append(random.sample([1.0, 2.0], 1))
        y.sum().backward()
        return np.asarray(y.tolist()).sum() + (now > 0)


NAMED = [
    "now = os.getppid()",
    "if self.steps.item() > 0.5:  # as written above, not as it was",
    "y = y[y > 1]",
    "self.log.append(random.sample([1.0, 2.0], 1))",
    "return np.asarray(y.tolist()).sum() + (now > 0)",
]


def state(model: Open) -> Any:
    """All that a call of the model changes."""
    return (
        model.weight.tolist(), model.weight.grad, model.steps.item(), list(model.log), model.count,
        model.way, random.getstate(),
    )


def test_one_graph_refuses_with_every_place_and_changes_nothing(capsys: Any) -> None:
    model, x = Open(), graphc.tensor([1.0, 2.0, 3.0])
    before = state(model)
    for _ in range(2):
        with pytest.raises(TraceError, match=r"(?s)5 places.*Cure of all: leave out") as caught:
            graphc.compile(model, fullgraph=True)(x)
        assert lines_of(caught.value) == NAMED
        assert state(model) == before
    with pytest.raises(TraceError, match="4 places") as caught:  # then backward() cannot be
        graphc.export.export(model, (x,))
    assert lines_of(caught.value) == NAMED[:4] and "fullgraph" not in str(caught.value)
    assert state(model) == before and x.tolist() == [1.0, 2.0, 3.0]
    assert capsys.readouterr().out == ""


def test_explain_names_every_place_before_and_after_calls(capsys: Any) -> None:
    model, x = Open(), graphc.tensor([1.0, 2.0, 3.0])
    compiled = graphc.compile(model)
    for calls in range(3):
        before = state(model)
        report = graphc.explain(compiled, x)
        assert [p.what.split("(")[0] for p in report.open] == [
            "posix.getppid", "item", "indexing by a mask",
            "drawing from Python's random module ", "tolist",
        ]
        assert "test_open_places.py" in str(report) and "in Open.forward. Cure" in str(report)
        assert state(model)[2:] == before[2:]
        assert capsys.readouterr().out == "a line that is not printed\n" * (calls > 0)
        compiled(x)
    assert model.count == 3 and model.steps.item() == 3.0 and len(model.log) == 3


def test_one_place_is_told_as_ever() -> None:
    with pytest.raises(TraceError) as caught:
        graphc.compile(lambda x: x * os.getpid(), fullgraph=True)(graphc.ones(1))
    first, second = str(caught.value).splitlines()
    assert first == (
        "posix.getpid() inside a function that is compiled as one graph. Cure: do this outside and "
        "pass the result in, or leave out fullgraph=True"
    )
    assert "test_open_places.py" in second


def test_open_python_runs_once_and_its_callbacks_are_not_named_again(tmp_path: Any) -> None:
    written = tmp_path / "log"

    def key(value: int) -> float:
        return -value * (os.getpid() > 0)

    def function(x: Any) -> Any:
        with open(written, "a") as file:
            file.write("line\n")
        order = np.frompyfunc(key, 1, 1)(np.arange(3))
        return x * float(order[0])

    named = [
        'with open(written, "a") as file:', 'file.write("line\\n")',
        "order = np.frompyfunc(key, 1, 1)(np.arange(3))",
    ]

    with pytest.raises(TraceError) as caught:
        graphc.compile(function, fullgraph=True)(graphc.ones(1))
    assert written.read_text() == "line\n"
    assert lines_of(caught.value) == named


def test_an_error_on_the_way_ends_the_list() -> None:
    def function(x: Any) -> Any:
        a = os.getppid()
        b = os.getpid()
        raise KeyError(a + b)

    with pytest.raises(TraceError, match="2 places") as caught:
        graphc.compile(function, fullgraph=True)(graphc.ones(1))
    assert "posix.getppid()" in str(caught.value) and "posix.getpid()" in str(caught.value)


def test_a_closed_step_is_one_graph_as_ever() -> None:
    model = nn.Linear(2, 1)
    optimizer = graphc.optim.Adam(model.parameters())

    @graphc.compile(fullgraph=True)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(graphc.ones(4, 2)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and step.segments is None


def test_what_a_later_backward_pass_does_is_refused_with_fullgraph() -> None:
    """A graph would do it once, as it is recorded, and not in each pass."""
    log: list[int] = []

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: log.append(1))
        return y.sum()

    x = graphc.ones(2, requires_grad=True)
    with pytest.raises(TraceError, match="a later backward"):
        graphc.compile(f, fullgraph=True)(x)
    assert log == []


def test_hooks_that_stay_are_refused_with_fullgraph() -> None:
    weight = graphc.ones(2, requires_grad=True)

    def f(x: Any) -> Any:
        weight.register_hook(lambda grad: grad * 2)
        return (x * weight).sum()

    compiled = graphc.compile(f, fullgraph=True)
    for _ in range(3):  # it might be made for once and all
        compiled(graphc.ones(2)).backward()
    with pytest.raises(TraceError, match="leaves a hook on a tensor"):
        compiled(graphc.ones(2))
