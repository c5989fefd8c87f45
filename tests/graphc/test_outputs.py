"""What a compiled call hands out is the caller's: later calls write somewhere else."""

from __future__ import annotations

import copy
import gc
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
import graphc.nn.functional as F
from tests.reference import torch

RNG = np.random.default_rng(6)


def floats(*shape: int) -> graphc.Tensor:
    return graphc.from_numpy(RNG.standard_normal(shape).astype("float32"))


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 5), nn.LogSoftmax(1),
    )


# --- outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 3000])
def test_a_hundred_outputs_are_all_kept(size: int) -> None:
    run = graphc.compile(lambda x, k: (x * k, (x + k).sum(), x[: size // 2 + 1] - k))
    x = floats(size)
    kept = [run(x, float(k)) for k in range(100)]
    for k, (product, total, difference) in enumerate(kept):
        a = x.numpy()
        np.testing.assert_allclose(product.numpy(), a * k, rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), (a + k).sum(), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(difference.numpy(), a[: size // 2 + 1] - k, rtol=1e-6)
    places = {t.data_ptr() for results in kept for t in results}
    assert len(places) == 300


def test_losses_of_a_training_loop_are_kept() -> None:
    net = nn.Linear(8, 3)
    optimizer = graphc.optim.SGD(net.parameters(), lr=0.1)
    x, y = floats(16, 8), graphc.from_numpy(RNG.integers(0, 3, 16))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss, out.detach()

    twin = copy.deepcopy(net)
    run = graphc.compile(step)
    kept = [run(x, y) for _ in range(100)]
    for loss, out in kept:
        want = F.cross_entropy(twin(x), y)
        np.testing.assert_allclose(out.numpy(), twin(x).detach().numpy(), rtol=2e-4, atol=1e-5)
        assert loss.item() == pytest.approx(want.item(), rel=2e-4)
        twin.zero_grad()
        want.backward()
        with graphc.no_grad():
            for p in twin.parameters():
                p.sub_(0.1 * p.grad)


def test_views_and_aliases_outlive_their_tensor() -> None:
    run = graphc.compile(lambda x: x * 2)
    aliases: list[Any] = []
    for k in range(50):
        y = run(graphc.full((64, 3), float(k)))
        aliases.append((k, y[1:].t(), y.numpy()[::2], memoryview(y.numpy()), y.detach()[0, 0]))
        del y
        gc.collect(0)
    for k, view, array, memory, element in aliases:
        assert view.numpy().ravel().tolist() == [2.0 * k] * 189
        assert array.ravel().tolist() == [2.0 * k] * 96
        assert memory.tolist() == [[2.0 * k] * 3] * 64
        assert element.item() == 2.0 * k


def test_a_block_is_used_again_when_its_last_alias_is_gone() -> None:
    run = graphc.compile(lambda x: x + 1)
    x = graphc.zeros(100_003)  # a size of its own
    y = run(x)
    place, view = y.data_ptr(), y[5:]
    del y
    held = [run(x) for _ in range(3)]
    assert place not in {t.data_ptr() for t in held}
    del view
    assert run(x).data_ptr() == place


def test_writing_to_an_output_touches_nothing_else() -> None:
    weight = graphc.ones(5)
    run = graphc.compile(lambda x: (x + 0, weight * 1, graphc.full((3,), 7.0), x.reshape(1, 5)))
    x = graphc.zeros(5)
    for _ in range(3):
        same, scaled, constant, _ = run(x)
        for t in (same, scaled, constant):
            t.add_(100)
    assert x.tolist() == [0.0] * 5 and weight.tolist() == [1.0] * 5
    assert run(x)[2].tolist() == [7.0] * 3


def test_two_outputs_of_one_value_are_what_eager_makes_them() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        return y, y, y + 0, y.view(-1)

    for run in (function, graphc.compile(function)):
        first, again, other, view = run(graphc.ones(2, 2))
        assert first is again
        first.add_(1)
        assert other.tolist() == [[2.0, 2.0]] * 2
        assert view.tolist() == [3.0] * 4


def test_gradients_handed_out_are_kept() -> None:
    net = nn.Linear(6, 4)
    run = graphc.compile(net)
    kept, wanted = [], []
    for _ in range(20):
        x = floats(9, 6)
        net.zero_grad()
        run(x).square().sum().backward()
        kept.append([p.grad for p in net.parameters()])
        wanted.append(
            [g.numpy().copy() for g in graphc.autograd.grad(
                net(x).square().sum(), list(net.parameters()))]
        )
    for have, want in zip(kept, wanted, strict=True):
        for a, b in zip(have, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-3, atol=1e-4)


def test_gradients_of_a_step_that_are_kept_by_the_user() -> None:
    """`.grad` belongs to whoever took it: a later step writes elsewhere."""
    net = nn.Linear(3, 2)

    def step(x: Any) -> None:
        net.zero_grad()
        net(x).sum().backward()

    run = graphc.compile(step)
    kept = []
    for k in range(10):
        run(graphc.full((1, 3), float(k)))
        kept.append(net.weight.grad)
    assert [g[0, 0].item() for g in kept] == [float(k) for k in range(10)]


# --- values saved for a later backward -------------------------------------------------------


def gradients(net: nn.Module) -> list[np.ndarray]:
    return [p.grad.numpy().copy() for p in net.parameters()]


def test_forwards_and_backwards_interleaved() -> None:
    net = model()
    net.eval()
    run = graphc.compile(net)
    inputs = [floats(6, 1, 8, 8) for _ in range(4)]
    labels = graphc.from_numpy(RNG.integers(0, 5, 6))
    expected = []
    for x in inputs:
        net.zero_grad()
        F.nll_loss(net(x), labels).backward()
        expected.append(gradients(net))
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        losses = [F.nll_loss(run(x), labels) for x in inputs]
        for _ in range(3):  # these would fill memory that was given back too early
            run(floats(6, 1, 8, 8))
        for number in order:
            net.zero_grad()
            losses[number].backward()
            for a, b in zip(gradients(net), expected[number], strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)


def test_two_forwards_then_two_backwards_accumulate() -> None:
    net = model()
    twin = copy.deepcopy(net)
    run = graphc.compile(net)
    x, y = floats(6, 1, 8, 8), floats(6, 1, 8, 8)
    for function, owner in ((run, net), (twin, twin)):
        first, second = function(x).square().sum(), function(y).square().sum()
        first.backward()
        second.backward()
        assert owner[1].num_batches_tracked.item() == 2
    for a, b in zip(gradients(net), gradients(twin), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_backward_of_a_sum_of_two_calls() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
    run = graphc.compile(net)
    x = floats(4, 5)
    for function in (run, net):
        net.zero_grad()
        (function(function(x)) + function(x)).sum().backward()
        if function is run:
            have = gradients(net)
    for a, b in zip(have, gradients(net), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_input_changed_behind_autograds_back_is_the_users_affair_and_no_crash() -> None:
    """NumPy writes count no version: the indices of an embedding are checked in its backward."""
    table = nn.Embedding(10, 4)
    run = graphc.compile(table)
    i = graphc.arange(8)
    out = run(i)
    memory = i.numpy()
    for bad in (10, -11, 1 << 40, -(1 << 62)):
        memory[3] = bad
        with pytest.raises(IndexError, match="is out of bounds for dimension 0 with size 10"):
            out.sum().backward(retain_graph=True)
        assert table.weight.grad is None
    memory[3] = 9
    out.sum().backward()
    assert table.weight.grad.sum(1).tolist() == [4.0] * 3 + [0.0] + [4.0] * 4 + [0.0, 4.0]


def _write(package: Any, net: Any, x: Any) -> None:
    with package.no_grad():
        net[0].weight.add_(1)


def _write_data(package: Any, net: Any, x: Any) -> None:
    net[0].weight.data.add_(1)


def _step(package: Any, net: Any, x: Any) -> None:
    for p in net.parameters():
        p.grad = package.ones_like(p)
    package.optim.SGD(net.parameters(), lr=0.1).step()


def _write_input(package: Any, net: Any, x: Any) -> None:
    x.mul_(2)


@pytest.mark.parametrize("change", [_write, _write_data, _step, _write_input])
def test_writes_between_forward_and_backward_raise_as_in_torch(change: Any) -> None:
    """The first layer's weight is read for the gradient of its input, if that is wanted."""
    raised = []
    for package, compiled in ((torch, False), (graphc, False), (graphc, True)):
        net = package.nn.Sequential(
            package.nn.Linear(3, 3), package.nn.Tanh(), package.nn.Linear(3, 2)
        )
        run = graphc.compile(net) if compiled else net
        source = package.ones(2, 3, requires_grad=True)
        x = source * 1
        loss = run(x).sum()
        change(package, net, x)
        try:
            loss.backward()
            raised.append("")
        except RuntimeError as error:
            raised.append("inplace" if "inplace operation" in str(error) else str(error))
    assert raised[0] == raised[1] == raised[2]


def test_a_saved_output_that_is_changed_raises() -> None:
    run = graphc.compile(lambda x: x.exp())
    x = graphc.ones(3, requires_grad=True)
    y = run(x)
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


def test_a_backward_inside_the_next_call_sees_its_own_values() -> None:
    """A compiled step between forward and backward of a compiled model."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    other = nn.Linear(4, 1)
    optimizer = graphc.optim.SGD(other.parameters(), lr=0.1)
    run = graphc.compile(net)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = other(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = graphc.compile(step)
    x = floats(7, 4)
    net(x).sum().backward()
    want = gradients(net)
    for _ in range(3):
        net.zero_grad()
        loss = run(x).sum()
        for _ in range(4):
            compiled(floats(7, 4))
        loss.backward()
        for a, b in zip(gradients(net), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
