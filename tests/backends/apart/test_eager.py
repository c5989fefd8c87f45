"""Eager mode on a device that the host cannot look into, against the same lines on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.ir.device_array import DeviceArray

HERE = "apart"


def both(function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """One function on the CPU's tensors and on copies of them on the device."""
    torch.manual_seed(0)
    inputs = [torch.randn(*shape) for shape in shapes]
    want = function(*[x.clone() for x in inputs])
    got = function(*[x.to(HERE) for x in inputs])
    for a, b in zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]:
        assert str(b.device) == f"{HERE}:0" and isinstance(b._graphc_array, DeviceArray)
        assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
        np.testing.assert_allclose(b.cpu().numpy(), a.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [
    lambda x: x * 2 + 1, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x.reshape(-1)[5:],
    lambda x: x.t().reshape(2, 6), lambda x: x.unsqueeze(1).expand(3, 2, 4).sum(1),
    lambda x: x.t() @ x, lambda x: x.softmax(1), lambda x: x.lgamma(), lambda x: x.sort(1)[0],
    lambda x: x[[2, 0]], lambda x: x[x > 0], lambda x: x.diagonal(), lambda x: x.unfold(1, 2, 1),
    lambda x: torch.cat([x, torch.zeros_like(x)]), lambda x: torch.where(x > 0, x, 0.0),
    lambda x: x.view(torch.int32), lambda x: x.diag_embed(),
    lambda x: torch.tensor(3.0) * x, lambda x: x.as_strided((2, 2), (1, 2), 3),
], ids=lambda f: "")
def test_values_and_layout(function: Callable[..., Any]) -> None:
    both(function, (3, 4))


def test_in_place_writes_are_seen_through_views() -> None:
    def write(x: Any) -> Any:
        row, columns = x[0], x.t()
        row.mul_(10)
        columns[1:3].add_(1)
        x[:, 0] = 7
        x[1] = torch.arange(4, dtype=torch.float32)  # the host's values, as torch allows
        x[2].copy_(torch.ones(4))
        x.t_()
        return x, row, columns

    both(lambda x: write(x.clone()), (3, 4))


def test_gradients_stay_on_the_device() -> None:
    def step(w: Any, x: Any) -> Any:
        w.requires_grad_()
        v = w.clone()
        v[0] = x.sum(0)
        ((x @ v).relu() ** 2).mean().backward()
        first = w.grad.clone()
        (w.sum() * 2).backward()
        (again,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
        (second,) = torch.autograd.grad(again.sum(), w)
        return first, w.grad, second

    both(step, (4, 4), (5, 4))


def test_copies_between_devices_have_a_history() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x.to(HERE, non_blocking=True)
    assert y.grad_fn.name() == "ToCopyBackward0"
    (y.cpu() * 3 + (y * y).cpu()).sum().backward()
    assert x.grad.tolist() == [5, 5, 5] and x.grad.device.type == "cpu"
    assert y.to(HERE) is y and y.to(f"{HERE}:0") is y and x.cpu() is x


def test_what_only_one_device_can_do_is_an_error() -> None:
    x, y = torch.ones(3), torch.ones(3, device=HERE)
    message = "Expected all tensors to be on the same device, but found at least two devices, "
    for function, names in (
        (lambda: x + y, f"{HERE}:0 and cpu!"), (lambda: y + x, f"{HERE}:0 and cpu!"),
        (lambda: torch.cat([y, x]), f"{HERE}:0 and cpu!"),
        (lambda: y.add_(x), f"{HERE}:0 and cpu!"),
    ):
        with pytest.raises(RuntimeError, match=message + names):
            function()
    with pytest.raises(TypeError, match=f"can't convert {HERE}:0 device type tensor to numpy"):
        y.numpy()
    with pytest.raises(TypeError, match=f"can't convert {HERE}:0 device type tensor to numpy"):
        np.asarray(y)
    assert torch.from_numpy(y.numpy(force=True)).tolist() == [1, 1, 1]
    assert y.to("cpu", torch.float64).dtype is torch.float64


def test_what_there_is_not_of_this_device() -> None:
    with pytest.raises(TypeError, match="no float64"):
        torch.ones(3, dtype=torch.float64, device="apart")
    with pytest.raises(RuntimeError, match="there is no such device"):
        torch.ones(3, device="apart:1")


def test_a_check_appears_when_the_host_waits() -> None:
    x = torch.arange(4.0).to(HERE)
    bad = x[torch.tensor([1, 9], device=HERE)]  # queued
    with pytest.raises(IndexError, match="9 is out of bounds"):
        bad.cpu()
    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_what_is_queued_behind_a_failure_writes_nothing() -> None:
    layer = nn.Embedding(4, 3).to(HERE)
    before, seen = layer.weight.tolist(), torch.zeros(2, device=HERE)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.tensor([1, 7], device=HERE)).sum().backward()
    optimizer.step()
    seen.add_(1)
    with pytest.raises(IndexError, match="7 is out of bounds"):
        torch.accelerator.synchronize()
    assert layer.weight.tolist() == before and seen.tolist() == [0, 0]
    assert (seen + 3).tolist() == [3, 3]


def test_printing_and_numbers() -> None:
    x = torch.arange(3.0, device=HERE)
    assert repr(x) == f"tensor([0., 1., 2.], device='{HERE}:0')"
    assert x.device == torch.device(HERE, 0) and x.sum().item() == 3 and bool(x[1])
    assert x.get_device() == 0 and not x.is_cpu
    with torch.device(HERE):
        assert torch.ones(2).device.type == HERE == torch.tensor([1]).device.type
    assert torch.ones(2).device.type == "cpu"


def test_each_device_has_its_random_state() -> None:
    torch.manual_seed(3)
    on_cpu = torch.randn(5)
    there = torch.randn(5, device=HERE)
    again = torch.randn(5)
    torch.manual_seed(3)
    assert torch.equal(torch.randn(5, device=HERE).cpu(), there.cpu())
    assert torch.equal(there.cpu(), on_cpu)  # from one seed
    assert torch.equal(torch.randn(5), on_cpu) and torch.equal(torch.randn(5), again)
    mine = torch.Generator(HERE).manual_seed(3)
    assert torch.equal(torch.randn(5, generator=mine, device=HERE).cpu(), on_cpu)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.randn(5, generator=mine)
    assert nn.functional.dropout(there, 0.5).device.type == HERE
