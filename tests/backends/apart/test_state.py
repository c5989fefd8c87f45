"""Modules, optimizers, files, copies and autograd's other ways in, on the device."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config, nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 2))


def devices(tensors: Any) -> set[str]:
    return {str(tensor.device) for tensor in tensors}


def written(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_a_module_moves_with_its_state() -> None:
    layers = model().to("apart")
    assert devices([*layers.parameters(), *layers.buffers()]) == {"apart:0"}
    want = model()
    x = torch.randn(5, 3)
    layers.eval(), want.eval()
    torch.testing.assert_close(layers(x.to("apart")), want(x).to("apart"))
    layers.load_state_dict(want.state_dict())
    assert devices(layers.parameters()) == {"apart:0"}
    twin = copy.deepcopy(layers)
    assert devices(twin.parameters()) == {"apart:0"}
    with torch.no_grad():
        twin[0].weight.zero_()
    torch.testing.assert_close(layers.cpu()[0].weight, want[0].weight)


@pytest.mark.parametrize(("saved", "where", "found"), [
    ("apart", None, "apart:0"), ("apart", "cpu", "cpu"), ("cpu", "apart", "apart:0"),
    ("apart", {"apart:0": "cpu"}, "cpu"), ("apart", lambda storage, place: storage, "cpu"),
    ("apart", lambda storage, place: None, "apart:0"), ("cpu", None, "cpu"),
    ("apart", "meta", "meta"),
])
def test_files(saved: str, where: Any, found: str) -> None:
    layers = model()
    state = torch.load(written(layers.to(saved).state_dict()), map_location=where)
    assert devices(state.values()) == {found}
    if found != "meta":
        torch.testing.assert_close(state["0.weight"].cpu(), model()[0].weight.detach())
    shared = torch.zeros(6).to(saved)
    first, second = torch.load(written([shared, shared[2:]]), map_location=where)
    assert first.device.type != "meta" or second.shape == (4,)
    if found != "meta":
        first[3] = 9
        assert second.tolist() == [0, 9, 0, 0]
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        torch.load(written(shared), map_location="cuda")


def test_pickles() -> None:
    x = torch.arange(6.0).to("apart").reshape(2, 3).t()
    again = pickle.loads(pickle.dumps(x))
    assert again.stride() == x.stride()
    torch.testing.assert_close(again, x)


def test_an_optimizers_state_follows_its_parameters() -> None:
    layer = nn.Linear(3, 2).to("apart")
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(4, 3, device="apart")).sum().backward()
    optimizer.step()
    state = torch.load(written(optimizer.state_dict()), map_location="cpu")
    optimizer.load_state_dict(state)
    moments = [each["exp_avg"] for each in optimizer.state.values()]
    assert devices(moments) == {"apart:0"}


def test_hooks_see_tensors_of_the_device() -> None:
    seen: list[Any] = []
    layer = nn.Linear(3, 2).to("apart")
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    layer.register_full_backward_hook(lambda module, given, out: seen.append(out[0]))
    layer.weight.register_hook(lambda g: seen.append(g) or g * 2)
    layer.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    layer(torch.ones(4, 3, device="apart", requires_grad=True)).sum().backward()
    assert len(seen) == 4 and devices(seen) == {"apart:0"}
    assert layer.weight.grad.tolist() == [[8] * 3] * 2
    with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
        layer.bias.grad = torch.zeros(2)


def test_lazy_modules_find_their_shape_where_they_are() -> None:
    layers = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to("apart")
    layers(torch.ones(4, 2, device="apart"))
    assert devices([*layers.parameters(), *layers.buffers()]) == {"apart:0"}


def test_gradients_on_several_devices_are_clipped_together() -> None:
    norms = []
    for device in ("cpu", "apart"):
        torch.manual_seed(0)
        first, second = nn.Linear(3, 4), nn.Linear(4, 2).to(device)
        second(first(torch.ones(2, 3)).to(device)).square().mean().backward()
        grads = [p.grad for p in (*first.parameters(), *second.parameters())]
        total = nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)
        assert total.device.type == "cpu"
        norms.append([total.item(), *[g.norm().item() for g in grads]])
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-4)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


@pytest.mark.parametrize("function", [
    Doubled.apply, lambda x: torch.func.vmap(lambda row: (row * 2).sum())(x),
    lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
    lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin(), x, use_reentrant=False),
    lambda x: torch.func.jacrev(lambda y: (y**2).sum(0))(x),
], ids=lambda f: "")
def test_transforms(function: Callable[[Any], Any]) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    results = []
    for device in ("cpu", "apart"):
        given = x.clone().to(device).requires_grad_()
        out = function(given)
        out.sum().backward()
        results.append((out.detach(), given.grad))
    for have, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(have, want.to("apart"))


@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_of_attention_by_a_counter(compiled: bool) -> None:
    """The choice that the CPU makes."""
    def step(*given: Any) -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(*given, dropout_p=0.4)
        return out, *torch.autograd.grad((out**2).sum(), given)

    found = []
    with config.override(random="counter"):
        given = [torch.randn(2, 7, 4) for _ in range(3)]
        for place in ("cpu", "apart"):
            torch.manual_seed(5)
            there = [x.to(place).requires_grad_() for x in given]
            function = torch.compile(step) if compiled else step
            found.append([x.detach().cpu().numpy() for x in function(*there)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_threads_share_the_queue() -> None:
    found: list[float] = []

    def work(start: float) -> None:
        x = torch.full((3,), start, device="apart")
        for _ in range(40):
            x = x * 0.5 + 1
        found.append(x.sum().item())

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, [6.0] * 4, rtol=1e-5)


def test_memory_is_given_back() -> None:
    from .conftest import BACKEND

    memory = BACKEND.memory
    memory.synchronise()
    before = len(memory._bytes)
    x = torch.ones(1000, device="apart")
    view = x[10:]
    del x
    memory.synchronise()
    assert len(memory._bytes) == before + 1 and view.sum().item() == 990
    del view
    memory.synchronise()
    assert len(memory._bytes) <= before + 2  # constants of one number stay
