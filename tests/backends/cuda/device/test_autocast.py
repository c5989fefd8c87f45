"""torch.autocast("cuda") on the device: the modes, custom Functions, GradScaler's waits. Which
function it does what to is in tests/backends/apart/test_autocast.py."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.cuda.backend import CudaBackend


def test_modes() -> None:
    x, w = torch.ones(2, 2, device="cuda"), torch.ones(2, 2)
    assert not torch.is_autocast_enabled() and not torch.is_autocast_enabled("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outer = torch.autocast("cuda")
    with outer:
        assert torch.is_autocast_enabled() and torch.get_autocast_dtype("cuda") is torch.float16
        assert not torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled()
        assert (x @ x).dtype is torch.float16 and (w @ w).dtype is torch.float32
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            assert torch.get_autocast_gpu_dtype() is torch.bfloat16
            assert not torch.is_autocast_cache_enabled()
            assert (x @ x).dtype is torch.bfloat16
            with torch.autocast("cuda", enabled=False):
                assert not torch.is_autocast_enabled("cuda")
                assert (x @ x).dtype is torch.float32
        assert torch.is_autocast_cache_enabled()
        assert (x @ x).dtype is torch.float16 and x.half().sum().dtype is torch.float32
    with torch.autocast("cpu"):
        assert (x @ x).dtype is torch.float32 and (w @ w).dtype is torch.bfloat16
    with pytest.warns(FutureWarning, match="torch.cuda.amp.autocast"):
        older = torch.cuda.amp.autocast()
    with older:
        assert (x @ x).dtype is torch.float16


@pytest.mark.parametrize("older", [False, True])
def test_custom_functions(older: bool) -> None:
    """cast_inputs casts what lies on the GPU, and turns autocast off; backward as forward."""
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        if older:
            forwards = torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
            backwards = torch.cuda.amp.custom_bwd
        else:
            forwards = torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            backwards = torch.amp.custom_bwd(device_type="cuda")

        class Product(torch.autograd.Function):
            @staticmethod
            @forwards
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                seen.append((a.dtype, b.dtype, torch.is_autocast_enabled("cuda")))
                ctx.save_for_backward(a)
                return a @ a * 2

            @staticmethod
            @backwards
            def backward(ctx: Any, g: Any) -> Any:
                seen.append((g.dtype, (g @ g).dtype, torch.is_autocast_enabled("cuda")))
                return g @ ctx.saved_tensors[0].t() * 4, None

    x = torch.ones(2, 2, device="cuda").half().requires_grad_()
    with torch.autocast("cuda"):
        out = Product.apply(x, torch.ones(2).half())
        assert out.dtype is torch.float32
    out.sum().backward()
    assert seen == [
        (torch.float32, torch.float16, False), (torch.float32, torch.float32, False)
    ]
    assert x.grad.dtype is torch.float16 and x.grad.tolist() == [[8, 8], [8, 8]]


def trained(device: str, kind: Any, compiled: bool) -> tuple[list[float], list[Any]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )
    data, target = torch.randn(8, 6), torch.randint(0, 3, (8,))
    model, data, target = model.to(device), data.to(device), target.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=kind):
            loss = torch.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step, fullgraph=True) if compiled else step
    losses = [run().item() for _ in range(3)]
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    return losses, [p.detach().cpu().numpy() for p in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_a_training_run(kind: Any) -> None:
    """Compiled and eager agree, with float32 too, as far as halves go."""
    full, found = trained("cpu", torch.bfloat16, False), trained("cuda", kind, True)
    eager = trained("cuda", kind, False)
    assert found[0][-1] < found[0][0]
    for other in (full, eager):
        np.testing.assert_allclose(found[0], other[0], rtol=3e-2)
        for a, b in zip(found[1], other[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=0.1, atol=1e-2)


def test_a_scaler_waits_once_a_step(cuda: CudaBackend) -> None:
    """However many gradients: what was found, and the scale, stay on the device."""
    count = 7
    weights = [torch.ones(3, device="cuda", requires_grad=True) for _ in range(count)]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    waits = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        loss = sum((w * factor).sum() for w in weights)
        scaler.scale(loss).backward()
        before = cuda.memory.driver.calls["wait"]
        scaler.step(optimizer)
        scaler.update()
        waits.append(cuda.memory.driver.calls["wait"] - before)
        assert scaler._scale.device.type == "cuda"
    assert waits == [1] * 4
    assert scaler.get_scale() == 8.0  # twice as large, then half of it
    assert [w.tolist() for w in weights] == [[-0.5] * 3] * count
