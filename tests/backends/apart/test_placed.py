"""Where tensors are that a program makes, moves, stores and indexes, and with what strides: eager
mode and compiled, against PyTorch's rules (in its words, where it raises)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn

HERE = "apart"
MADE: dict[str, Callable[[Any], Any]] = {
    # modules that a function makes are on the CPU, and take their numbers from its generator
    "a layer": lambda x: (x * 2, *nn.Embedding(5, 3).parameters()),
    "buffers": lambda x: (x * 2, *nn.BatchNorm1d(3).state_dict().values()),
    "layers": lambda x: [x + 1, *nn.LSTM(3, 2).parameters(), torch.randn(4)],
    "layers that move": lambda x: [x + 1, *nn.Linear(3, 2).to(x.device).parameters()],
    "unique": lambda x: x.round().unique(return_inverse=True, return_counts=True),
    "counts": lambda x: (torch.bincount(x[0].abs().long()), x.mode(1)[1], torch.histc(x, 4)),
    "positions on the host": lambda x: x[torch.tensor([2, 0])] + x[:, torch.tensor([0, 1])].sum(),
    "a mask on the host": lambda x: x[:, torch.tensor([True, False, True])] * x[:2].sum(),
    "logspace": lambda x: torch.logspace(0, 2, 5, device=x.device) + torch.logspace(0, 1, 5).sum(),
}


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_what_a_function_makes(name: str, always: bool) -> None:
    def in_segments(x: Any) -> Any:
        return MADE[name](x + 1) if x.sum() > 1e6 else MADE[name](x)

    torch.manual_seed(5)
    x = torch.randn(4, 3)
    where = [t.device.type for t in parts(MADE[name](x.to(HERE)))]
    for function in (MADE[name], in_segments):
        compiled = torch.compile(function)
        compiled.always_compiled = always
        for seed in range(3):
            torch.manual_seed(seed)
            want = parts(MADE[name](x))
            torch.manual_seed(seed)
            found = parts(compiled(x.to(HERE)))
            assert [t.device.type for t in found] == where
            for have, wanted in zip(found, want, strict=True):
                torch.testing.assert_close(have.detach().cpu(), wanted.detach())


LAYOUTS: list[Callable[[Any], Any]] = [
    lambda x: x.t() * 2, lambda x: x.t() + x[0, 0], lambda x: x.t()[:, ::2].exp(),
    lambda x: x.t().to("cpu"), lambda x: x.cpu().t().to(x.device),
    lambda x: x.reshape(1, 3, 2, 2).to(memory_format=torch.channels_last).sigmoid() + x[0, 0],
    lambda x: x.reshape(1, 3, 2, 2).to(memory_format=torch.channels_last).cpu(),
    lambda x: torch.where(x.t() > 0, x.t(), x.t()[:, :1]), lambda x: x.t().clone(),
    lambda x: x[:, None].expand(3, 2, 4).mul(2),
    lambda x: x.t() + torch.zeros(4, 1, device=x.device), lambda x: x.rot90(3),
    lambda x: x.t().sort(0)[1],
]


@pytest.mark.parametrize("device", [HERE, "meta"])
@pytest.mark.parametrize("number", range(len(LAYOUTS)))
def test_layouts(number: int, device: str) -> None:
    function, x = LAYOUTS[number], torch.arange(12.0).reshape(3, 4)
    want = function(x)
    if device == "meta" and (number in (3, 4, 6)):
        pytest.skip("copies out of it")
    for call in (function, torch.compile(function)):
        found = call(x.to(device))
        assert found.stride() == want.stride()
        if device != "meta":
            torch.testing.assert_close(found.cpu(), want)


MIXED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "embedding": (lambda x, y: F.embedding(torch.zeros(2, dtype=torch.int64), y), "at least two"),
    "index_select": (lambda x, y: y.index_select(0, torch.zeros(1, dtype=torch.int64)), "at least"),
    "index_add_": (lambda x, y: y.index_add_(0, torch.tensor([0]), x[:1]), "at least two devices"),
    "positions": (
        lambda x, y: x[y.long()], r"indices should be either on cpu or on the same device .*\(cpu\)"
    ),
    "out": (lambda x, y: torch.add(x, 1, out=y), "at least two devices"),
    "set_": (lambda x, y: y.set_(x), 'device "apart:0" to a storage on different device "cpu"'),
    "nonzero": (lambda x, y: x.nonzero() + y.long()[:1, :2], "two devices, apart:0 and cpu!"),
    "fftfreq": (lambda x, y: torch.fft.fftfreq(4) + y[0], "at least two devices, apart:0 and cpu"),
    "module": (lambda x, y: nn.BatchNorm1d(4)(y), "at least two devices"),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices(name: str) -> None:
    function, message = MIXED[name]
    for call in (function, torch.compile(function)):
        with pytest.raises(RuntimeError, match=message):
            call(torch.ones(3, 4), torch.ones(3, 4, device=HERE))


def test_types_name_their_device() -> None:
    x = torch.ones(2, device=HERE)
    assert x.type() == "torch.apart.FloatTensor" and torch.ones(2).type() == "torch.FloatTensor"
    assert torch.ones(2, device="meta").long().type() == "torch.meta.LongTensor"
    assert x.type("torch.FloatTensor").device.type == "cpu" == x.type(torch.LongTensor).device.type
    there = torch.ones(2).type("torch.apart.HalfTensor")
    assert there.device.type == HERE and there.dtype is torch.float16
    assert x.type(torch.int32).device.type == HERE
    assert isinstance(torch.ones(2), torch.FloatTensor) and not isinstance(x, torch.FloatTensor)
    for wrong in ("torch.cuda.FloatTensor", "torch.apart.Tensor", "FloatTensor", "a.b.FloatTensor"):
        with pytest.raises(ValueError, match="invalid type"):
            x.type(wrong)


def test_storages_and_dlpack() -> None:
    x = torch.arange(4.0).to(HERE)
    assert x.untyped_storage().device == x.device and not x.untyped_storage().is_cuda
    assert x.__dlpack_device__() == (12, 0) and torch.ones(2).__dlpack_device__() == (1, 0)
    twin = torch.from_dlpack(x)
    twin[0] = 7
    assert x.tolist() == [7, 1, 2, 3]
    with pytest.raises(BufferError, match="Cannot pack tensors on apart:0"):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(x.clone().requires_grad_())
    with pytest.raises(ValueError, match="Unknown device type meta"):
        torch.from_dlpack(torch.ones(2, device="meta"))
    assert x.set_().device.type == HERE and x.shape == (0,)


def test_meta_tensors_have_memory_of_their_own() -> None:
    x, y = torch.ones(3, 4, device="meta"), torch.ones(3, 4, device="meta")
    assert x.add_(y).mul_(x).shape == (3, 4)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[:2].add_(x[1:])


@pytest.mark.parametrize("mode", ["eager", "forward", "whole"])
@pytest.mark.parametrize("device", [HERE, "meta"])
def test_gradients_lie_as_their_leaves(device: str, mode: str) -> None:
    if device == "meta" and mode != "eager":
        pytest.skip("nothing is compiled there")
    x = torch.arange(12.0).reshape(3, 4)
    leaf = nn.Parameter(x.to(device).t())

    def loss() -> Any:
        return leaf.square().sum()

    def step() -> None:
        function().backward()

    function = torch.compile(loss) if mode == "forward" else loss
    run = torch.compile(step) if mode == "whole" else step
    for times in (2, 4, 6):
        run()
        assert leaf.grad is not None
        assert leaf.grad.stride() == (1, 4)
        if device == HERE:
            np.testing.assert_array_equal(leaf.grad.cpu().numpy(), x.t().numpy() * times)
