"""Memory without gaps, but with its dims in another order, is read and written where it lies, and
by native calls like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine.version import shortcut
from graphc.nn import functional as F

pytestmark = pytest.mark.usefixtures("only_the_cpu")


def _last(*shape: int) -> Any:
    return torch.rand(*shape).contiguous(memory_format=torch.channels_last)


def _inputs(compiled: Any) -> list[tuple[Any, ...]]:
    """The shapes that the code reads."""
    return [node.tensor_type.shape for node in compiled.newest.engine.built.graph.inputs]


def _steps(x: Any) -> list[int]:
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def _kernels(compiled: Any, *args: Any) -> int:
    return len(list(torch.explain(compiled, *args).parts[0].built.program.steps))


def test_a_transposed_matrix_is_multiplied_where_it_lies() -> None:
    compiled = torch.compile(lambda a, b: a @ b)
    a, b = torch.rand(40, 30).t(), torch.rand(40, 50)
    found = compiled(a, b)
    assert np.allclose(found.numpy(), a.numpy() @ b.numpy(), rtol=1e-4)
    assert sorted(_inputs(compiled)) == [(40, 30), (40, 50)]
    assert _kernels(compiled, a, b) == 1


def test_what_is_written_is_written_where_it_lies() -> None:
    def step(p: Any, g: Any) -> None:
        p.sub_(g * 0.5)

    compiled = torch.compile(step)
    p, g = _last(2, 3, 4, 5), _last(2, 3, 4, 5)
    wanted = p.numpy() - g.numpy() * np.float32(0.5)
    compiled(p, g)
    assert (p.numpy() == wanted).all()
    assert _inputs(compiled) == [(2, 4, 5, 3)] * 2
    assert _kernels(compiled, p, g) == 1


@pytest.mark.parametrize(("channels", "groups"), [(96, 96), (16, 1)])
def test_small_weights_are_no_reason_to_copy_an_image(channels: int, groups: int) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(channels, channels, 3, groups=groups)
    x = _last(2, channels, 9, 9)
    compiled = torch.compile(layer)
    with torch.no_grad():
        found, wanted = compiled(x), layer(x.contiguous())
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert np.allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
        assert _kernels(compiled, x) == 1


@pytest.mark.skipif(
    shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
)
@pytest.mark.usefixtures("nothing_before")
def test_native_code_asks_for_the_order() -> None:
    compiled = torch.compile(lambda x: x * 2)
    for shape in ((2, 3, 4, 5), (2, 3, 4, 1)):
        x = _last(*shape)
        for _ in range(4):
            found = compiled(x)
        version = compiled.newest
        before = version.native_calls.value + version.python_calls
        plain, other = torch.rand(*shape), torch.rand(*shape[::-1]).permute(3, 2, 1, 0)
        for each in (plain, other, x.detach(), x):
            found = compiled(each)
            assert (found.numpy() == each.numpy() * 2).all()
            assert _steps(found) == _steps(each * 2)
        assert version.native_calls.value + version.python_calls == before + 2
        assert version.native_calls.value >= 2


@pytest.mark.parametrize(("function", "copied"), [
    (lambda x: x.softmax(-1), True),
    (lambda x: F.layer_norm(x, (30,)), True),
    (lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1), True),
    (lambda x: x.softmax(0), False),
    (lambda x: x.sum(-1), False),
], ids=["softmax", "layer_norm", "by_hand", "innermost", "once"])
def test_what_walks_across_memory_gets_a_copy(
    function: Callable[[Any], Any], copied: bool
) -> None:
    torch.manual_seed(0)
    compiled, x = torch.compile(function), torch.rand(30, 40).t()
    found = compiled(x)
    assert np.allclose(found.numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)
    assert _inputs(compiled) == [(40, 30) if copied else (30, 40)]


def test_named_sizes() -> None:
    compiled = torch.compile(lambda x: (x.relu() * 2).sum(-1), dynamic=True)
    for n in (4, 5, 6, 9):
        x = _last(n, 3, n + 1, 7)
        assert np.allclose(compiled(x).numpy(), (x.numpy() * 2).sum(-1), rtol=1e-5)
    assert compiled.newest.origin.number == 1


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "order"), [
    ((33, 100, 15), (0, 2, 1)), ((33, 100, 15), (1, 0, 2)), ((40, 30), (1, 0)),
    ((2, 9, 70), (1, 0, 2)),
])
def test_the_first_of_equals_is_that_of_the_tensor(
    name: str, shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """Not of its memory."""
    numbers = np.random.default_rng(0).integers(0, 4, shape).astype(np.float32).transpose(order)
    functions: list[Callable[[Any], Any]] = [
        lambda x: getattr(x, name)(), lambda x: getattr(x.reshape(x.shape[0], -1), name)(1),
        lambda x: getattr(x.flatten(0, 1), name)(0),
    ]
    wanted = [
        getattr(numbers, name)(), getattr(numbers.reshape(len(numbers), -1), name)(1),
        getattr(numbers.reshape(-1, *numbers.shape[2:]), name)(0),
    ]
    x = torch.from_numpy(numbers)
    assert not x.is_contiguous()
    for function, want in zip(functions, wanted, strict=True):
        assert (torch.compile(function)(x).numpy() == want).all()
