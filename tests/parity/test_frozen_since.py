"""Leaves that no longer require a gradient when it arrives get none, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def slopes(t: Any, compiled: bool) -> list[Any]:
    wrap = t.compile if compiled else lambda function: function
    a, b = (t.ones(3, requires_grad=True) for _ in range(2))
    product = wrap(lambda a, b: (a * b * 2).sum())
    seen: list[Any] = []
    y = product(a, b)
    a.requires_grad_(False)
    y.backward()
    seen += [a.grad, b.grad]
    a.requires_grad_(True)
    y = product(a, b)
    a.requires_grad_(False).requires_grad_(True)
    y.backward()
    seen += [a.grad, b.grad]
    model = t.nn.Linear(2, 2)
    y = wrap(lambda x: model(x).sum())(t.ones(1, 2, requires_grad=True))
    model.requires_grad_(False)
    y.backward()
    seen += [p.grad for p in model.parameters()]
    hooked = t.ones(3, requires_grad=True)
    hooked.register_hook(lambda g: seen.append(g.sum()))
    hooked.register_post_accumulate_grad_hook(seen.append)
    y = (hooked * 2).sum()
    hooked.detach_()
    y.backward()
    whole = t.ones(3, requires_grad=True)

    def step(w: Any) -> None:
        y = (w * 2).sum()
        w.requires_grad_(False)
        y.backward()

    wrap(step)(whole)
    seen += [hooked.grad, whole.grad, whole.requires_grad]
    return [x.tolist() if hasattr(x, "tolist") else x for x in seen]


@pytest.mark.parametrize("compiled", [False, True])
def test_frozen_between_forward_and_backward(compiled: bool) -> None:
    assert slopes(graphc, compiled) == slopes(torch, False)
