"""cat() and stack() of few numbers, one call of NumPy's and one node each: what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.functions.few_joined import Joined
from tests.reference import torch

pytestmark = pytest.mark.usefixtures("only_the_cpu")

JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "stack": lambda t, xs: t.stack(xs), "stack -1": lambda t, xs: t.stack(xs, -1),
    "stack dim=1": lambda t, xs: t.stack(xs, dim=1),
    "stack tuple": lambda t, xs: t.stack(tuple(xs)),
    "cat": lambda t, xs: t.cat(xs), "cat -1": lambda t, xs: t.cat(xs, -1),
    "cat dim=1": lambda t, xs: t.cat(xs, dim=1), "cat axis": lambda t, xs: t.cat(xs, axis=0),
}
MAKES: dict[str, Callable[[Any], Any]] = {
    "leaves": lambda t: [t.full((2, 3), i + 0.5, requires_grad=True) for i in range(5)],
    "some": lambda t: [t.full((2, 3), i + 0.5, requires_grad=i % 2 == 0) for i in range(5)],
    "of operators": lambda t: [
        x * 2 for x in t.arange(30.0).reshape(5, 2, 3).requires_grad_().unbind()
    ],
    "twice": lambda t: [t.full((2, 3), 0.5, requires_grad=True)] * 3,
    "turned": lambda t: [t.arange(6.0).reshape(3, 2).requires_grad_().t() * 1 for _ in range(2)],
    "doubles": lambda t: [t.ones(2, 3, dtype=t.float64, requires_grad=True) for _ in range(2)],
    "no history": lambda t: [t.arange(6).reshape(2, 3) + i for i in range(3)],
}


def told(t: Any, join: Any, make: Any) -> list[Any]:
    """Values, names, gradients of first and second order."""
    xs = make(t)
    joined = join(t, xs)
    found = [joined.detach().numpy().tolist(), str(joined.dtype).split(".")[-1], joined.stride()]
    if not joined.requires_grad:
        return [*found, joined.grad_fn]
    found += [joined.grad_fn.name(), type(joined.grad_fn).__name__, joined.is_leaf]
    for edge, _ in joined.grad_fn.next_functions:
        found.append(edge is None or edge.name())
    asked = [x for x in xs if x.requires_grad]
    cost = (joined ** 3 * t.arange(float(joined.numel())).reshape(joined.shape)).sum()
    first = t.autograd.grad(cost, asked, create_graph=True)
    found += [g.tolist() for g in first]
    found += [g.tolist() for g in t.autograd.grad(sum((g**2).sum() for g in first), asked)]
    join(t, xs).sum().backward()
    return found + [None if x.grad is None else x.grad.tolist() for x in xs if x.is_leaf]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("join", JOINS)
def test_as_in_torch(join: str, make: str) -> None:
    ours = told(graphc, JOINS[join], MAKES[make])
    assert ours == told(torch, JOINS[join], MAKES[make])


def test_numbers_without_dimensions() -> None:
    for t in (torch, graphc):
        xs = [t.tensor(float(i), requires_grad=True) for i in range(50)]
        (t.stack(xs) * t.arange(50.0)).sum().backward()
        assert [x.grad.item() for x in xs] == list(range(50))
        assert all(x.grad.shape == () for x in xs)
        with pytest.raises(RuntimeError, match="zero-dimensional"):
            t.cat(xs)


def test_it_is_one_node_of_memory_of_its_own() -> None:
    xs = [graphc.zeros(3, requires_grad=True) for _ in range(4)]
    joined = graphc.stack(xs)
    assert isinstance(joined.grad_fn, Joined) and joined._base is None
    xs[0].data.add_(1)
    assert joined.sum().item() == 0 and joined._version == 0
    with graphc.no_grad():
        assert graphc.stack(xs).grad_fn is None
    with graphc.inference_mode():
        assert graphc.cat(xs).is_inference()
    gradient = graphc.arange(12.0).reshape(4, 3)
    joined.backward(gradient)
    xs[0].grad.add_(100)  # it is not the gradient's memory
    assert gradient[0].tolist() == [0, 1, 2]
    assert xs[3].grad.tolist() == [9, 10, 11]


def test_hooks() -> None:
    seen: list[Any] = []
    xs = [graphc.ones(2, requires_grad=True) for _ in range(3)]
    joined = graphc.cat([x * 2 for x in xs])
    joined.register_hook(lambda g: seen.append(g.tolist()))
    joined.grad_fn.register_hook(lambda into, out: seen.append(len(into)))
    (joined * 3).sum().backward()
    assert seen == [[3.0] * 6, 3] and xs[2].grad.tolist() == [6, 6]


@pytest.mark.parametrize("call", [
    lambda t: t.stack([t.ones(2), t.ones(3)]), lambda t: t.stack([]), lambda t: t.cat([]),
    lambda t: t.stack([t.ones(2)], 2), lambda t: t.cat([t.ones(2), t.ones(2, 1)]),
    lambda t: t.stack(t.ones(2)), lambda t: t.cat([t.ones(2), 1]),
])
def test_refused_as_in_torch(call: Any) -> None:
    for t in (torch, graphc):
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
            call(t)


def test_other_dtypes_and_sizes_are_promoted() -> None:
    for xs in ([1, 2.5], [True, 2], [1.5, np.float64(2)]):
        ours, theirs = ([t.tensor([x]) for x in xs] for t in (graphc, torch))
        assert str(graphc.cat(ours).dtype)[6:] in str(torch.cat(theirs).dtype)
        assert graphc.cat(ours).tolist() == torch.cat(theirs).tolist()
    assert graphc.cat([graphc.ones(2), graphc.ones(0), graphc.zeros(1)]).tolist() == [1, 1, 0]
