"""Images with their channels last: the strides, values and gradients of what they come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.nn.both import close


def F(t: Any) -> Any:
    return t.nn.functional


def kernel(t: Any, x: Any, outputs: int = 4, last: bool = False) -> Any:
    w = t.linspace(-1, 1, outputs * x.shape[1] * 4, dtype=x.dtype)
    w = w.reshape(outputs, x.shape[1], 2, 2)
    return w.contiguous(memory_format=t.channels_last) if last else w


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "conv2d": lambda t, x: F(t).conv2d(x, kernel(t, x), t.ones(4)),
    "conv2d of a weight": lambda t, x: F(t).conv2d(x.contiguous(), kernel(t, x, last=True)),
    "conv2d strided": lambda t, x: F(t).conv2d(x, kernel(t, x), stride=2, padding=1, dilation=2),
    "conv_transpose2d": lambda t, x: F(t).conv_transpose2d(x, kernel(t, x).transpose(0, 1)),
    "max_pool2d": lambda t, x: F(t).max_pool2d(x, 3, 2, 1, return_indices=True),
    "avg_pool2d": lambda t, x: F(t).avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda t, x: F(t).adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_avg_pool2d to one": lambda t, x: F(t).adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda t, x: F(t).adaptive_max_pool2d(x, (3, 2), return_indices=True),
    "nearest": lambda t, x: F(t).interpolate(x, scale_factor=2),
    "bilinear": lambda t, x: F(t).interpolate(x, size=(7, 3), mode="bilinear"),
    "smooth": lambda t, x: F(t).interpolate(x, size=(2, 2), mode="bilinear", antialias=True),
    "batch_norm": lambda t, x: F(t).batch_norm(x, None, None, training=True),
    "batch_norm in eval": lambda t, x: F(t).batch_norm(
        x, x[0, :, 0, 0].detach(), x[0, :, 0, 1].detach().abs() + 1),
    "group_norm": lambda t, x: F(t).group_norm(x, 1),
    "pad": lambda t, x: F(t).pad(x, (1, 2, 0, 1), value=3.0),
    "pad of channels": lambda t, x: F(t).pad(x, (0, 0, 0, 0, 1, 2)),
    "reflect": lambda t, x: F(t).pad(x, (1, 1, 1, 1), mode="reflect"),
    "replicate": lambda t, x: F(t).pad(x, (1, 1, 1, 1), mode="replicate"),
    "circular": lambda t, x: F(t).pad(x, (1, 1, 1, 1), mode="circular"),
    "cat": lambda t, x: t.cat([x, x * 2], 1),
    "cat of lines": lambda t, x: t.cat([x, x * 2], 3),
    "cat of both": lambda t, x: t.cat([x, x.contiguous()], 1),
    "stack": lambda t, x: t.stack([x, x * 2]),
    "stack of channels": lambda t, x: t.stack([x, x * 2], 2),
    "roll": lambda t, x: x.roll(1, 1),
    "tril": lambda t, x: x.tril(),
    "logsigmoid": lambda t, x: F(t).logsigmoid(x),
    "rrelu": lambda t, x: F(t).rrelu(x),
    "pixel_unshuffle": lambda t, x: F(t).pixel_unshuffle(x[..., :4, :4], 2),
    "relu and add": lambda t, x: F(t).relu(F(t).conv2d(x, kernel(t, x, x.shape[1]))) + 1,
    "to": lambda t, x: x.to(memory_format=t.channels_last),
    "double": lambda t, x: x.double().to(memory_format=t.channels_last),
    "clone": lambda t, x: x.clone(memory_format=t.channels_last),
    "contiguous": lambda t, x: x.contiguous(),
}


def rows(t: Any) -> Any:
    values = np.random.default_rng(1).standard_normal((2, 4, 5, 6)).astype(np.float32)
    return t.from_numpy(values)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": rows,
    "last": lambda t: rows(t).contiguous(memory_format=t.channels_last),
    "gaps": lambda t: rows(t).contiguous(memory_format=t.channels_last)[:, ::2],
    "turned": lambda t: rows(t).transpose(2, 3),
    "one image": lambda t: rows(t)[:1].contiguous(memory_format=t.channels_last),
}


def results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def run(t: Any, call: Callable[[Any, Any], Any], layout: str) -> tuple[list[Any], Any]:
    leaf = LAYOUTS[layout](t).detach().requires_grad_()
    found = results(call(t, leaf * 1))
    sums = [(part * part).sum() for part in found if part.requires_grad]
    sums[0].backward()
    return found, leaf.grad


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_results_lie_as_torchs(name: str, layout: str) -> None:
    ours, slope = run(graphc, CALLS[name], layout)
    wanted, right = run(torch, CALLS[name], layout)
    for mine, its in zip(ours, wanted, strict=True):
        assert mine.stride() == its.stride()
        close(mine.detach(), its.detach(), 1e-4)
    close(slope, right, 1e-3)


@pytest.mark.parametrize("layout", ["last", "gaps"])
def test_compiled_results_lie_as_torchs(layout: str) -> None:
    """All of them in one graph, and in segments."""
    names = [name for name in CALLS if name != "adaptive_avg_pool2d to one"]

    def every(t: Any, x: Any) -> list[Any]:
        return [part for name in names for part in results(CALLS[name](t, x))]

    def asking(t: Any, x: Any) -> list[Any]:
        found = every(t, x)
        assert float(found[0].sum()) != 0.5
        return [part * 1 for part in found]

    for function in (every, asking):
        wanted = function(torch, LAYOUTS[layout](torch))
        compiled = graphc.compile(lambda x, f=function: f(graphc, x))
        for _ in range(2):
            for mine, its in zip(compiled(LAYOUTS[layout](graphc)), wanted, strict=True):
                assert mine.stride() == its.stride()
                close(mine, its, 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("call", [
    lambda t, x: F(t).conv3d(x, t.ones(4, x.shape[1], 2, 2, 2, dtype=x.dtype)),
    lambda t, x: F(t).max_pool3d(x, 2),
    lambda t, x: F(t).adaptive_avg_pool3d(x, 2),
    lambda t, x: F(t).adaptive_avg_pool3d(x, 1),
    lambda t, x: F(t).interpolate(x, scale_factor=2),
    lambda t, x: F(t).pad(x, (1, 1, 1, 1, 1, 1)),
    lambda t, x: F(t).batch_norm(x, None, None, training=True),
    lambda t, x: t.cat([x, x], 1),
])
def test_volumes_lie_as_torchs(call: Any, dtype: str) -> None:
    def made(t: Any, dtype: str = dtype) -> Any:
        values = t.arange(2 * 3 * 64).reshape(2, 3, 4, 4, 4).to(getattr(t, dtype))
        return call(t, values.contiguous(memory_format=t.channels_last_3d))

    ours, wanted = made(graphc), made(torch)
    right = wanted.stride()
    if dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        right = made(torch, "float32").stride()  # there torch convolves in a row-major loop
    assert ours.stride() == right
    close(ours.float(), wanted.float(), 1e-2)


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize("call", [
    lambda t, x: F(t).max_pool2d(x, 3, 2, 1),
    lambda t, x: F(t).max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    lambda t, x: F(t).max_pool2d(x, (2, 4), (3, 1), (1, 2), (1, 2), return_indices=True),
    lambda t, x: F(t).avg_pool2d(x * 1.0, 3, 1, 1, count_include_pad=False),
])
def test_windows_over_a_border(call: Any, dtype: str, layout: str) -> None:
    """What is outside of an image is nothing: NaN goes on, and -inf wins where there is no more."""
    def made(t: Any) -> Any:
        x = (t.arange(2 * 20 * 7 * 6) % 37 - 18).reshape(2, 20, 7, 6).to(getattr(t, dtype))
        if x.is_floating_point():
            x = t.where(x == 3, float("nan"), t.where(x < -3, float("-inf"), x))
        return x.contiguous(memory_format=getattr(t, layout))

    wanted = call(torch, made(torch))
    for ours in (call(graphc, made(graphc)),
                 graphc.compile(lambda x: call(graphc, x))(made(graphc))):
        pairs = zip(ours, wanted, strict=True) if isinstance(wanted, tuple) else [(ours, wanted)]
        for one, other in pairs:
            np.testing.assert_allclose(one.double().numpy(), other.double().numpy(), 1e-2)


def test_a_gray_image_may_have_its_channel_last() -> None:
    """Its strides alone say so."""
    for t in (graphc, torch):
        x = t.arange(40.0).reshape(2, 1, 5, 4)
        assert x.contiguous(memory_format=t.channels_last).stride() == (20, 20, 4, 1)
        x = x.to(memory_format=t.channels_last)
        assert x.stride() == (20, 1, 4, 1)
        assert F(t).conv2d(x, kernel(t, x)).stride() == (48, 1, 12, 4)


def test_parts_of_broadcast_complex_numbers_do_not_meet() -> None:
    real, imag = [[-0.0], [1.0]], [float("inf"), float("nan"), 2.0]
    ours, wanted = (t.complex(t.tensor(real), t.tensor(imag)) for t in (graphc, torch))
    np.testing.assert_array_equal(ours.real.numpy(), wanted.real.numpy())
    np.testing.assert_array_equal(np.signbit(ours.real.numpy()), np.signbit(wanted.real.numpy()))
    np.testing.assert_array_equal(ours.imag.numpy(), wanted.imag.numpy())


LARGE = "conv2d conv_transpose2d max_pool2d avg_pool2d batch_norm pad cat bilinear".split()


@pytest.mark.parametrize("name", [name for name in CALLS if name.split()[0] in LARGE])
@pytest.mark.parametrize("channels", [3, 16])
def test_many_numbers_lie_as_torchs(name: str, channels: int) -> None:
    """Where eager mode runs kernels."""
    values = np.random.default_rng(2).standard_normal((8, channels, 33, 40)).astype(np.float32)

    def made(t: Any) -> tuple[list[Any], Any]:
        leaf = t.from_numpy(values).contiguous(memory_format=t.channels_last).requires_grad_()
        found = results(CALLS[name](t, leaf))
        (found[0] * values[0, 0, 0, 0]).sin().sum().backward()
        return found, leaf.grad

    (ours, slope), (wanted, right) = made(graphc), made(torch)
    for mine, its in zip(ours, wanted, strict=True):
        assert mine.stride() == its.stride()
        close(mine.detach(), its.detach(), 1e-4)
    close(slope, right, 1e-3)


def test_depthwise_convolutions_of_many_numbers_lie_as_torchs() -> None:
    def made(t: Any) -> Any:
        x = t.linspace(-1, 1, 4 * 32 * 400).reshape(4, 32, 20, 20)
        w = t.linspace(-1, 1, 32 * 9).reshape(32, 1, 3, 3)
        x = x.contiguous(memory_format=t.channels_last)
        wide = w.repeat(1, 8, 1, 1)
        return F(t).conv2d(x, w, padding=1, groups=32), F(t).conv2d(x, wide, groups=4)

    for mine, its in zip(made(graphc), made(torch), strict=True):
        assert mine.stride() == its.stride()
        close(mine, its, 1e-4)
