"""Nodes of the tape as users see them: names, what a custom Function's node knows, hooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")


def _relu(m: Any) -> Any:
    class MyReLU(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, slope: float) -> Any:
            ctx.save_for_backward(x)
            ctx.slope = slope
            return m.where(x > 0, x, x * slope)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return m.where(x > 0, g, g * ctx.slope), None

    return MyReLU


def test_node_of_a_function() -> None:
    found = []
    for m in (torch, graphc):
        cls = _relu(m)
        x = m.tensor([1.0, -2.0], requires_grad=True)
        y = cls.apply(x, 0.5)
        node = y.grad_fn
        assert node.saved_tensors[0] is x and node._forward_cls is cls
        with pytest.raises(AttributeError, match="nothing"):
            node.nothing  # noqa: B018
        found.append((
            type(node).__name__, node.name(), repr(y), str(node).split(" object")[0].split(".")[-1],
            node.needs_input_grad, node.slope, type(cls.apply(x, 2.0).grad_fn) is type(node),
            node.next_functions[0][0].name(), isinstance(node, m.autograd.graph.Node),
        ))
    assert [str(v).lstrip("<") for v in found[1]] == [str(v).lstrip("<") for v in found[0]]


def _lists(values: Any) -> Any:
    return [None if v is None else v.tolist() for v in values]


def _hooked(m: Any, log: list[Any], scale: float | None) -> tuple[Any, Any]:
    """A leaf whose accumulator, and which itself, has every kind of hook."""
    leaf = m.tensor([1.0, 2.0], requires_grad=True)
    node = (leaf * 1).grad_fn.next_functions[0][0]
    node.register_hook(lambda given, got: log.append(("after", _lists(given), _lists(got))))
    node.register_prehook(lambda got: log.append(("before", _lists(got))))
    if scale is not None:
        node.register_prehook(lambda got: (got[0] * scale,))
    leaf.register_hook(lambda g: log.append(("tensor", g.tolist())))
    leaf.register_post_accumulate_grad_hook(lambda t: log.append(("grad", t.grad.tolist())))
    return leaf, node


@pytest.mark.parametrize("scale", [None, 10.0])
@pytest.mark.parametrize("compiled", ["", "forward", "step"])
def test_hooks_where_gradients_arrive(compiled: str, scale: float | None) -> None:
    """They see what arrives in this pass, not the sum in `.grad`; in PyTorch's order."""
    logs = []
    for m in (torch, graphc):
        log: list[Any] = []
        leaf, node = _hooked(m, log, scale)

        def forward(x: Any) -> Any:
            return (x * 3 + x * x).sum()

        def step(x: Any) -> None:
            (x * 3 + x * x).sum().backward()

        if m is graphc and compiled:
            forward, step = graphc.compile(forward), graphc.compile(step)
        for _ in range(3):
            if compiled == "step":
                step(leaf)
            else:
                forward(leaf).backward()
        assert node.variable is leaf
        logs.append((log, leaf.grad.tolist()))
    assert logs[1] == logs[0]


@pytest.mark.parametrize("make", [
    lambda m, x: x * 2, lambda m, x: x * x, lambda m, x: x.exp(), lambda m, x: x.sort()[0],
    lambda m, x: x.mean(), lambda m, x: x.sum(), lambda m, x: m.nn.functional.mse_loss(x, x * 0),
    lambda m, x: m.addmm(m.ones(2, 2), x.view(2, 1), x.view(1, 2)), lambda m, x: x + 1,
])
@pytest.mark.parametrize("learns", [False, True])
def test_a_node_is_called(make: Any, learns: bool) -> None:
    """The gradients of one operation: one, or a tuple; with a history where there is one."""
    found = []
    for m in (torch, graphc):
        x = m.tensor([1.0, -2.0], requires_grad=True)
        y = make(m, x)
        with m.set_grad_enabled(learns):
            given = y.grad_fn(m.ones_like(y) * 3)
        given = given if isinstance(given, tuple) else (given,)
        real = [each for each in given if each is not None]
        found.append([each.requires_grad for each in real])
        found.append(m.cat([each.detach().reshape(-1) for each in real]).numpy())
    assert found[0] == found[2]
    np.testing.assert_allclose(found[1], found[3], rtol=1e-6)


def test_the_node_of_a_leaf_is_called() -> None:
    for m in (torch, graphc):
        x = m.tensor([1.0, -2.0], requires_grad=True)
        node = (x * x).grad_fn.next_functions[0][0]
        assert node(m.ones(2)) == () and node(m.ones(2)) == () and x.grad.tolist() == [2, 2]
        for wrong in ((), (m.ones(2), m.ones(2)), (3,)):
            with pytest.raises(TypeError):
                (x * x).grad_fn(*wrong)
