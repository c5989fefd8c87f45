"""Large gradients of a whole step are written where those before them lie, unless somebody sees
those, or the call may still fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn
from graphc.backends.host.allocator import address_of
from graphc.engine.version import gradients_left


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients_left, "OVERWRITTEN", 1)


def made() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(7, 24), nn.Flatten(), nn.Linear(48, 32), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return net, optimizer, step


def batches() -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    while True:
        yield (torch.from_numpy(rng.integers(0, 7, (6, 2))),
               torch.from_numpy(rng.integers(0, 5, 6)))


def places(net: Any) -> list[int]:
    return [
        address_of(p.grad._graphc_array) for p in net.parameters()
    ]  # data_ptr() would count as a look


def state(net: Any) -> list[np.ndarray]:
    return [x for p in net.parameters() for x in (p.detach().numpy().copy(), p.grad.numpy().copy())]


def same(net: Any, other: Any) -> None:
    for one, two in zip(state(net), state(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6)


def compiled_and_eager() -> tuple[Any, Any, Any, Any, Any]:
    """Both after some steps, and the batches to come."""
    net, _, step = made()
    plain, _, eager = made()
    run = torch.compile(step)
    coming = batches()
    for _ in range(6):
        given = next(coming)
        run(*given)
        eager(*given)
    return net, run, plain, eager, coming


def test_no_second_set_of_gradients() -> None:
    net, run, plain, eager, coming = compiled_and_eager()
    before = places(net)
    for _ in range(4):
        given = next(coming)
        assert abs(run(*given).item() - eager(*given).item()) < 1e-5
        # the head's weight is made beside the logits' gradient, by a step that checks targets
        assert [a == b for a, b in zip(places(net), before, strict=True)].count(False) <= 1
    same(net, plain)
    assert torch.explain(run, *given).memory["gradients of the call before"] <= 4 * 5 * 32


def _a_tensor(net: Any) -> Any:
    return net[2].weight.grad


def _a_view(net: Any) -> Any:
    return net[2].weight.grad[1:, ::2]


def _an_array(net: Any) -> Any:
    return net[2].weight.grad.numpy()


def _its_data(net: Any) -> Any:
    return net[2].weight.grad.data


def _a_memoryview(net: Any) -> Any:
    return memoryview(net[2].weight.grad.numpy())


@pytest.mark.parametrize("look", [_a_tensor, _a_view, _an_array, _its_data, _a_memoryview])
def test_what_somebody_sees_stays(look: Callable[[Any], Any]) -> None:
    net, run, plain, eager, coming = compiled_and_eager()
    seen = look(net)
    was = np.array(seen, copy=True)
    given = next(coming)
    run(*given)
    eager(*given)
    assert np.asarray(seen).tobytes() == was.tobytes()
    same(net, plain)


def test_gradients_of_other_kinds() -> None:
    """What a user has put there, or nothing."""
    net, run, plain, eager, coming = compiled_and_eager()
    user = np.ones(48 * 32 + 1, np.float32)
    for change in (
        lambda p: setattr(p, "grad", None),
        lambda p: setattr(p, "grad", torch.zeros_like(p).t().contiguous().t()),
        lambda p: setattr(p, "grad", torch.from_numpy(user[1:].reshape(32, 48))),
        lambda p: setattr(p, "grad", torch.zeros(1).expand(32, 48)),
    ):
        change(net[2].weight)
        given = next(coming)
        run(*given)
        eager(*given)
        same(net, plain)
    assert (user == 1).all()


def test_a_call_that_fails_leaves_them_as_they_were() -> None:
    net, run, plain, eager, coming = compiled_and_eager()
    x, y = next(coming)
    for wrong in ((x + 7, y), (x, y + 5)):
        with pytest.raises(IndexError):
            run(*wrong)
        with pytest.raises(IndexError):
            eager(*wrong)
        assert [p.grad is None for p in net.parameters()] == [
            p.grad is None for p in plain.parameters()]
    for _ in range(3):
        given = next(coming)
        run(*given)
        eager(*given)
    same(net, plain)


def test_a_step_that_may_fail_behind_its_gradients_does_not_write_to_them() -> None:
    """The forward comes first, and zero_grad last: eager mode would leave the gradients."""
    torch.manual_seed(0)
    w = torch.randn(32, 48, requires_grad=True)
    table = torch.randn(9, 4)

    def step(x: Any, i: Any) -> Any:
        w.grad = None
        (w * x).square().sum().backward()
        return F.embedding(i, table).sum() + w.grad.sum()

    run = torch.compile(step)
    for _ in range(5):
        run(torch.ones(48), torch.tensor([1, 2]))
    was, place = w.grad.numpy().copy(), w.grad.data_ptr()
    held = w.grad
    with pytest.raises(IndexError):
        run(torch.full((48,), 3.0), torch.tensor([1, 9]))
    assert held.data_ptr() == place and held.numpy().tobytes() == was.tobytes()


def test_sizes_that_change() -> None:
    net, _, step = made()
    plain, _, eager = made()
    run = torch.compile(step)
    rng = np.random.default_rng(1)
    for count in (6, 6, 6, 3, 9, 6, 1, 3, 3, 3):
        given = (torch.from_numpy(rng.integers(0, 7, (count, 2))),
                 torch.from_numpy(rng.integers(0, 5, count)))
        run(*given)
        eager(*given)
        same(net, plain)
