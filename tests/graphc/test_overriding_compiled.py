"""Compiled functions and tensors whose classes answer: what eager mode gives, never less."""

from typing import Any

import pytest

import graphc
from graphc.frontend.errors import TraceError


class Doubled(graphc.Tensor):
    """add() comes to twice the sum."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs)
        return found * 2 if func in (graphc.add, graphc.Tensor.add) else found


def doubled(*values: float) -> Doubled:
    found: Doubled = graphc.tensor(values).as_subclass(Doubled)
    return found


def test_an_argument_that_answers() -> None:
    @graphc.compile
    def step(x: Any, y: Any) -> Any:
        return (x + y).exp() + x.shape[0]

    plain = graphc.tensor([0.5, 1.5])
    for _ in range(3):
        assert type(step(plain, plain)) is graphc.Tensor
        found, expected = step(doubled(0.5, 1.5), plain), step.function(doubled(0.5, 1.5), plain)
        assert type(found) is Doubled and found.tolist() == expected.tolist()
    assert step.compile_count == 1 and step.segments is None
    text = str(graphc.explain(step, doubled(1.0, 2.0), plain))
    assert "Doubled.__torch_function__ (an argument) answers its calls" in text, text


def test_one_graph_is_refused() -> None:
    @graphc.compile(fullgraph=True)
    def step(x: Any) -> Any:
        return x + 1

    assert step(graphc.ones(1)).tolist() == [2.0]
    with pytest.raises(TraceError, match=r"Doubled\.__torch_function__.*Cure: hand over"):
        step(doubled(1.0))


def test_a_captured_tensor_that_answers() -> None:
    scale = doubled(1.0, 2.0)

    @graphc.compile
    def step(x: Any) -> Any:
        y = x * 3
        return (y + scale).relu(), y - 1

    for _ in range(4):
        found, rest = step(graphc.tensor([1.0, -5.0]))
        assert type(found) is Doubled and found.tolist() == [8.0, 0.0]
        assert type(rest) is graphc.Tensor and rest.tolist() == [2.0, -16.0]


def test_a_tensor_made_inside() -> None:
    @graphc.compile
    def step(x: Any) -> Any:
        y = (x * 2).as_subclass(Doubled)
        y.note = "here"
        z = y + 1
        return y, z, z.as_subclass(graphc.Tensor) + 1

    for _ in range(4):
        y, z, w = step(graphc.ones(2))
        assert (type(y), type(z), type(w)) == (Doubled, Doubled, graphc.Tensor)
        assert y.note == "here" and z.tolist() == [6.0, 6.0] and w.tolist() == [7.0, 7.0]


def test_gradients_go_through() -> None:
    weight = graphc.nn.Parameter(graphc.tensor([1.0, 2.0]))

    @graphc.compile
    def loss(x: Any) -> Any:
        return ((weight * x).as_subclass(Doubled) + 1).sum()

    for _ in range(3):
        weight.grad = None
        loss(graphc.tensor([3.0, 4.0])).backward()
        assert weight.grad.tolist() == [6.0, 8.0]


def test_a_module_with_such_a_parameter() -> None:
    class Net(graphc.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = graphc.nn.Parameter(doubled(1.0, 2.0))

        def forward(self, x: Any) -> Any:
            return (x + self.weight).sum()

    net = Net()
    compiled = graphc.compile(net)
    optimizer = graphc.optim.SGD(net.parameters(), 0.25)
    for _ in range(3):
        optimizer.zero_grad()
        expected = net(graphc.ones(2))
        found = compiled(graphc.ones(2))
        assert type(found) is Doubled and found.tolist() == expected.tolist()
        found.backward()
        assert net.weight.grad.tolist() == [2.0, 2.0]
        optimizer.step()
    assert net.weight.tolist() == [-0.5, 0.5]


def test_a_mode_sees_what_a_compiled_function_does() -> None:
    seen: list[Any] = []

    class Log(graphc.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    @graphc.compile
    def step(x: Any) -> Any:
        return graphc.exp(x) * 2

    x = graphc.zeros(2)
    step(x), step(x)
    with Log():
        found = step(x)
    assert found.tolist() == [2.0, 2.0]
    assert seen == [graphc.exp, graphc.Tensor.mul]
    assert step(x).tolist() == [2.0, 2.0] and len(seen) == 2


def test_a_mode_inside_a_compiled_function() -> None:
    class Twice(graphc.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is graphc.exp else found

    @graphc.compile
    def step(x: Any) -> Any:
        y = x + 1
        with Twice():
            y = graphc.exp(y * 0)
        return y + 1

    for _ in range(4):
        assert step(graphc.ones(2)).tolist() == [3.0, 3.0]
    assert graphc.exp(graphc.zeros(1)).tolist() == [1.0]
