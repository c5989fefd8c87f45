"""`.grad` lies in memory as its leaf: PyTorch's gradient layout contract."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

Made = tuple[list[Any], Callable[[], Any]]


def convolution(m: Any) -> Made:
    weight = (m.arange(216.0) / 50).reshape(6, 4, 3, 3).sin()
    weight = m.nn.Parameter(weight.contiguous(memory_format=m.channels_last))
    x = m.arange(512.0).reshape(2, 4, 8, 8).cos().contiguous(memory_format=m.channels_last)
    return [weight], lambda: m.nn.functional.conv2d(x, weight).square().mean()


def transposed(m: Any) -> Made:
    weight = m.nn.Parameter((m.arange(12.0) / 5).reshape(3, 4).t())
    bias = m.nn.Parameter(m.ones(3))
    x = m.arange(8.0).reshape(2, 4).cos()
    return [weight, bias], lambda: (x @ weight + bias).square().sum()


def gaps(m: Any) -> Made:
    base = (m.arange(48.0) / 7).reshape(6, 8)
    weight = base[:, ::2].t().detach().requires_grad_()
    return [weight], lambda: (weight * weight).sum() * 0.1


def permuted(m: Any) -> Made:
    weight = m.nn.Parameter((m.arange(24.0) / 7).reshape(2, 3, 4).permute(1, 2, 0))
    return [weight], lambda: weight.exp().sum() * 0.1 + weight[1].sum()


MODELS = {f.__name__: f for f in (convolution, transposed, gaps, permuted)}
MODES = ("eager", "forward", "whole")


def seen(leaves: list[Any]) -> list[Any]:
    return [
        (tuple(w.grad.stride()), np.array(w.grad.detach().tolist()), np.array(w.detach().tolist()))
        for w in leaves
    ]


def same(ours: list[Any], theirs: list[Any]) -> None:
    for (strides, grad, value), (strides_, grad_, value_) in zip(ours, theirs, strict=True):
        assert strides == strides_
        np.testing.assert_allclose(grad, grad_, 1e-4, 1e-5)
        np.testing.assert_allclose(value, value_, 1e-4, 1e-5)


def steps(m: Any, model: str, mode: str, around: Callable[..., Any]) -> list[Any]:
    leaves, loss = MODELS[model](m)
    if mode == "forward" and m is graphc:
        loss = graphc.compile(loss)
    step = around(m, leaves, loss)
    if mode == "whole" and m is graphc:
        step = graphc.compile(step)
    found = []
    for _ in range(5):
        step()
        found += seen(leaves)
    return found


def accumulating(m: Any, leaves: list[Any], loss: Any) -> Any:
    return lambda: loss().backward()


def zeroed(m: Any, leaves: list[Any], loss: Any) -> Any:
    def step() -> None:
        for w in leaves:
            if w.grad is not None:
                w.grad.zero_()
        loss().backward()

    return step


def renewed(m: Any, leaves: list[Any], loss: Any) -> Any:
    def step() -> None:
        for w in leaves:
            w.grad = None
        loss().backward()

    return step


def optimised(make: Any, to_none: bool, clipped: bool = False) -> Any:
    def around(m: Any, leaves: list[Any], loss: Any) -> Any:
        optimizer = make(m.optim, leaves)

        def step() -> None:
            optimizer.zero_grad(set_to_none=to_none)
            loss().backward()
            if clipped:
                m.nn.utils.clip_grad_norm_(leaves, 0.5)
            optimizer.step()

        return step

    return around


AROUND = {
    "accumulating": accumulating, "zeroed": zeroed, "renewed": renewed,
    "sgd": optimised(lambda o, p: o.SGD(p, 1e-3, momentum=0.9), True),
    "sgd-zeros": optimised(lambda o, p: o.SGD(p, 1e-3, momentum=0.9, weight_decay=0.1), False),
    "adam-foreach": optimised(lambda o, p: o.Adam(p, 1e-3, foreach=True), True),
    "adamw-fused": optimised(lambda o, p: o.AdamW(p, 1e-3, fused=True), True),
    "adamw": optimised(lambda o, p: o.AdamW(p, 1e-3), True),
    "rmsprop": optimised(lambda o, p: o.RMSprop(p, 1e-3, foreach=False), False),
    "clipped": optimised(lambda o, p: o.SGD(p, 1e-2), True, True),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("model", MODELS)
def test_strides_values_and_steps(model: str, around: str, mode: str) -> None:
    ours = steps(graphc, model, mode, AROUND[around])
    if model == "gaps" and around == "adamw-fused":  # PyTorch 2.13 takes such memory for flat
        around = "adamw"
    same(ours, steps(torch, model, "eager", AROUND[around]))


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("mode", ["eager", "forward"])
@pytest.mark.parametrize("model", MODELS)
def test_create_graph(model: str, mode: str) -> None:
    def run(m: Any) -> list[Any]:
        leaves, loss = MODELS[model](m)
        if mode == "forward" and m is graphc:
            loss = graphc.compile(loss)
        loss().backward(create_graph=True)
        first = seen(leaves)
        total = sum(w.grad.square().sum() for w in leaves)
        found = m.autograd.grad(total, leaves[0])[0]
        loss().backward()
        return [*first, *seen(leaves), ((), np.array(found.tolist()), np.array(0))]

    same(run(graphc), run(torch))


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
@pytest.mark.parametrize("mode", MODES)
def test_hooks_and_given_gradients(mode: str) -> None:
    def run(m: Any) -> list[Any]:
        leaves, loss = transposed(m)
        noted: list[Any] = []
        leaves[0].register_post_accumulate_grad_hook(lambda w: noted.append(tuple(w.grad.stride())))
        leaves[0].register_hook(lambda g: g * 2)
        if mode == "forward" and m is graphc:
            loss = graphc.compile(loss)

        def step() -> None:
            loss().backward()

        if mode == "whole" and m is graphc:
            step = graphc.compile(step)
        found = []
        for _ in range(2):
            step()
            found += seen(leaves)
        leaves[0].grad = m.ones(4, 3)  # the user's stays as it lies
        for _ in range(2):
            step()
            found += seen(leaves)
        return [*found, (tuple(noted), np.array(0), np.array(0))]

    same(run(graphc), run(torch))


def test_gradients_of_whole_steps_take_turns() -> None:
    leaves, loss = convolution(graphc)
    w = leaves[0]

    @graphc.compile
    def step() -> None:
        w.grad = None
        loss().backward()

    for _ in range(8):
        step()
    places = set()
    for _ in range(8):
        step()
        places.add(w.grad.data_ptr())
    assert len(places) <= 2
    assert w.grad.stride() == w.stride()
