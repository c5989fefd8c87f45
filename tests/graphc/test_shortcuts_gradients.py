"""Shortcuts that leave gradients: those that nobody else holds take turns in the same memory."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.engine.version import shortcut

# calls on another device than the CPU take the long way
pytestmark = [
    pytest.mark.usefixtures("only_the_cpu"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


class Trained:
    """A step that leaves gradients, and how it is in eager mode."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(5, 3)
        self.calls = 0
        self.compiled = torch.compile(self.step)

    def step(self, x: Any) -> Any:
        for p in self.model.parameters():
            p.grad = None
        loss = self.model(x).exp().sum()
        loss.backward()
        return loss

    def call(self) -> tuple[Any, Any]:
        """A compiled step; the weight's gradient, and what it has to be."""
        self.calls += 1
        x = torch.full((2, 5), self.calls / 10)
        self.compiled(x)
        found = self.model.weight.grad
        w, b = (p.detach().clone().requires_grad_() for p in self.model.parameters())
        (x @ w.t() + b).exp().sum().backward()
        return found, w.grad


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_gradients_that_nobody_holds_take_turns() -> None:
    trained, places = Trained(), list[int]()
    for _ in range(12):
        found, expected = trained.call()
        same(found, expected)
        places.append(found.data_ptr())
        del found
    assert len(set(places[-8:])) == 2


def kept(grad: Any) -> Any:
    return grad


def kept_array(grad: Any) -> Any:
    return grad.numpy()


def kept_part(grad: Any) -> Any:
    return grad[1:, 2]


def kept_memory(grad: Any) -> Any:
    return memoryview(grad.numpy())


def kept_data(grad: Any) -> Any:
    return grad.data


def kept_storage(grad: Any) -> Any:
    return grad.untyped_storage()


def kept_capsule(grad: Any) -> Any:
    return np.from_dlpack(grad)


@pytest.mark.parametrize(
    "keep", [kept, kept_array, kept_part, kept_memory, kept_data, kept_storage, kept_capsule]
)
def test_gradients_that_are_held(keep: Any) -> None:
    trained, held_ones = Trained(), list[Any]()
    for i in range(20):
        found, expected = trained.call()
        same(found, expected)
        if i % 3 == 2 or 9 < i < 14:
            held_ones.append((keep(found), np.array(_elements(keep(found)))))
        del found
    for one, before in held_ones:
        assert np.array_equal(_elements(one), before)


def _elements(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return np.array(value) if not hasattr(value, "tolist") else np.array(value.tolist())


def test_gradients_with_something_on_them() -> None:
    trained = Trained()
    for i in range(16):
        found, expected = trained.call()
        same(found, expected)
        assert found._version == 0 and not hasattr(found, "note") and not found.requires_grad
        if i % 4 == 1:
            found.note = i
        if i % 4 == 2:
            found.mul_(2)
        if i % 4 == 3:
            found.requires_grad_()
        del found


def test_a_gradient_that_something_refers_to_weakly() -> None:
    trained = Trained()
    for _ in range(8):
        found, _ = trained.call()
        reference = weakref.ref(found)
        del found
        trained.call()
        trained.call()
        again = reference()
        assert again is None or again is not trained.model.weight.grad


def test_gradients_of_a_call_that_fails() -> None:
    w = torch.ones(3, requires_grad=True)

    def step(i: Any) -> Any:
        w.grad = None
        loss = (w * 2)[i].sum()
        loss.backward()
        return loss

    compiled = torch.compile(step)
    for _ in range(6):
        compiled(torch.tensor([0, 1]))
        assert w.grad.tolist() == [2, 2, 0]
        with pytest.raises(IndexError):
            compiled(torch.tensor([0, 9]))
        assert w.grad is None
    w.grad = torch.full((3,), 5.0)

    def late(i: Any) -> Any:
        taken = torch.arange(3.0)[i]
        w.grad = None
        (w * 3).sum().backward()
        return taken

    compiled = torch.compile(late)
    for _ in range(6):
        compiled(torch.tensor([1]))
        before = w.grad
        values = before.tolist()
        with pytest.raises(IndexError):
            compiled(torch.tensor([5]))
        assert w.grad is before and before.tolist() == values
        del before


def test_gradients_of_threads() -> None:
    trained = Trained()
    for _ in range(4):
        trained.call()
    seen, stop = list[Any](), threading.Event()

    def watch() -> None:
        while not stop.is_set():
            grad = trained.model.weight.grad
            if grad is not None:
                first = grad.clone()
                time.sleep(0)
                seen.append(torch.equal(first, grad))

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(300):
        trained.compiled(torch.full((2, 5), 0.3))
    stop.set()
    thread.join()
    assert all(seen)


def test_a_loss_whose_history_is_used_up() -> None:
    trained = Trained()
    x = torch.ones(2, 5)
    losses = [trained.compiled(x) for _ in range(8)]
    (taken,) = trained.compiled._versions.shortcuts
    assert taken.results is not None and taken.results[0].spent is not None
    eager = trained.step(x)
    for loss in losses:
        assert loss.requires_grad and not loss.is_leaf
        assert loss.grad_fn.name() == eager.grad_fn.name()
        node, leaves = loss.grad_fn, set()
        waiting = [node]
        while waiting:
            node = waiting.pop()
            leaves |= {node.variable} if hasattr(node, "variable") else set()
            waiting += [each for each, _ in node.next_functions if each is not None]
        assert leaves == set(trained.model.parameters())
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()


@pytest.mark.parametrize("divided", [False, True])
def test_gradients_are_handed_over_wherever_attributes_lie(divided: bool) -> None:
    trained = Trained()
    for p in trained.model.parameters():
        assert not divided or vars(p)
    for _ in range(10):
        found, expected = trained.call()
        same(found, expected)
    weight = trained.model.weight
    assert weight.__dict__["_grad"] is weight.grad and weight.grad is found
    weight.grad = None
    found, expected = trained.call()
    same(found, expected)
    other = weight.grad = torch.zeros(3, 5)
    found, expected = trained.call()
    same(found, expected)
    assert not other.any() and vars(weight)["_grad"] is found
