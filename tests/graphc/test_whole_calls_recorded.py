"""Calls that native code makes but for the history of their results, which Python makes."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.engine.version import shortcut
from graphc.frontend.storage import readers

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu", "nothing_before"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


def _made(function: Callable[..., Any], *args: Any) -> Any:
    """Compiled, and called until native code makes the calls."""
    compiled = torch.compile(function)
    for _ in range(4):
        compiled(*args)
    assert _native(compiled) > 0
    return compiled


def _native(compiled: Any) -> int:
    return int(_of(compiled).newest.native_calls.value)


def _of(compiled: Any) -> Any:
    return compiled._compiled_function if isinstance(compiled, nn.Module) else compiled


def _grads(*tensors: Any) -> list[Any]:
    found = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    return found


@pytest.mark.parametrize("function", [
    lambda x, w: (x @ w).tanh(),
    lambda x, w: [(x @ w).sum(), x * 2, w.exp()],
    lambda x, w: ((x @ w).relu(), (x - 1, x.detach() * 3), 7),
    lambda x, w: {"a": x @ w, "b": w.sum(0)},
])
def test_gradients(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    x, w = torch.rand(3, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    compiled = _made(function, x, w)

    def passes(result: Any) -> list[Any]:
        parts = [part for part in torch.utils._pytree.tree_leaves(result)
                 if isinstance(part, torch.Tensor)]
        for part in parts:
            if part.requires_grad:
                part.square().sum().backward(retain_graph=True)
        facts = [(p.requires_grad, p.is_leaf, p._version, p.shape, p.dtype) for p in parts]
        return [*parts, *_grads(x, w), facts]

    for _ in range(3):
        count = _native(compiled)
        found, wanted = passes(compiled(x, w)), passes(function(x, w))
        assert _native(compiled) == count + 1
        assert found.pop() == wanted.pop()
        for mine, other in zip(found, wanted, strict=True):
            assert (mine is None) is (other is None)
            assert mine is None or torch.allclose(mine, other, atol=1e-6)
        with torch.no_grad():
            x.add_(0.5)
            w.mul_(0.75)


def test_a_module_of_which_modes_and_state_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    x = torch.rand(5, 4)
    compiled = _made(model, x)
    for change in (
        lambda: None, lambda: model[2].weight.data.mul_(2), lambda: model[0].requires_grad_(False),
        lambda: setattr(model[0], "bias", nn.Parameter(torch.rand(3))),
    ):
        change()
        for _ in range(3):
            result, wanted = compiled(x), model(x)
            assert torch.allclose(result, wanted, atol=1e-6)
            result.sum().backward()
            found = _grads(*model.parameters())
            wanted.sum().backward()
            for mine, other in zip(found, _grads(*model.parameters()), strict=True):
                assert (mine is None) is (other is None)
                assert mine is None or torch.allclose(mine, other, atol=1e-6)
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    seen: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(1), t)[1], lambda t: t):
        compiled(x)
    assert seen


def test_numbers_among_the_arguments() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    compiled = torch.compile(lambda x, scale: x * x * scale)
    for i in range(8):
        result = compiled(x, i / 2)
        result.sum().backward()
        assert result.tolist() == [i / 2, 2.0 * i] and _grads(x)[0].tolist() == [1.0 * i, 2.0 * i]
    count = _native(compiled)
    late, early = compiled(x, 3.0), compiled(x, 5.0)  # each has its own number
    assert _native(compiled) == count + 2
    late.sum().backward()
    assert _grads(x)[0].tolist() == [6, 12]
    early.sum().backward()
    assert _grads(x)[0].tolist() == [10, 20]
    with pytest.raises(TypeError):
        compiled(x, None)


def test_what_is_written_before_the_backward_is_an_error() -> None:
    x, w = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    compiled = _made(lambda x, w: (x * w).exp(), x, w)
    result, other = compiled(x, w), compiled(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    last = compiled(x, w)
    last.sum().backward()
    assert torch.allclose(x.grad, (x * w).exp() * w)
    with pytest.raises(RuntimeError, match="second time"):
        last.backward(torch.ones(4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other.sum().backward()


def test_memory_goes_with_the_results() -> None:
    x, w = torch.rand(64, requires_grad=True), torch.rand(64, requires_grad=True)
    compiled = _made(lambda x, w: ((x * w).exp(), x - w), x, w)
    gc.collect()
    before = [sys.getrefcount(each) for each in (x, w, x._graphc_array, w._graphc_array)]
    pending = len(readers)
    for _ in range(50):
        compiled(x, w)
    results = compiled(x, w)
    gone = [weakref.ref(part) for each in results for part in (each, each._graphc_array)]
    gone.append(weakref.ref(results[0].grad_fn))
    del results
    assert [each() for each in gone] == [None] * 5
    assert len(readers) == pending
    after = [sys.getrefcount(each) for each in (x, w, x._graphc_array, w._graphc_array)]
    assert after == before


def test_an_error_of_native_code() -> None:
    x, good = torch.rand(5, requires_grad=True), torch.tensor([1, 4])
    compiled = _made(lambda x, i: x[i].exp(), x, good)
    for _ in range(2):
        with pytest.raises(IndexError, match="5"):
            compiled(x, torch.tensor([1, 5]))
        count = _native(compiled)
        compiled(x, good).sum().backward()
        assert _native(compiled) == count + 1
        wanted = torch.zeros(5)
        wanted[good] = x.detach()[good].exp()
        assert torch.allclose(_grads(x)[0], wanted)


def test_threads() -> None:
    w = torch.rand(1 << 12, requires_grad=True)
    compiled = _made(lambda x, w: (x * w).sin() * w, torch.rand(1 << 12), w)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = torch.full((1 << 12,), float(seed))
        (wanted,) = torch.autograd.grad(((x * w).sin() * w).sum(), w)
        for i in range(30):
            (found,) = torch.autograd.grad(compiled(x, w).sum(), w)
            if not torch.allclose(found, wanted, atol=1e-5):
                wrong.append((seed, i))

    count = _native(compiled)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and _native(compiled) > count
