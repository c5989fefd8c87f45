"""Convolutions of halves whose weights are constants multiply pairs of channels, laid out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.backends.llvm.target import host_target

Model = Any
TILING = host_target().machine.tiling
pytestmark = pytest.mark.skipif(
    TILING is None or "bf16" not in TILING.steps,
    reason="this CPU multiplies no pairs of bfloat16",
)

MODELS: dict[str, tuple[Callable[[], Model], tuple[int, ...]]] = {
    "a bias, an image of three channels": (
        lambda: nn.Sequential(nn.Conv2d(3, 20, 5, 2, 2), nn.ReLU(), nn.Conv2d(20, 70, 3)),
        (2, 3, 19, 17),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 66, 1, bias=False), nn.BatchNorm2d(66),
        ),
        (1, 4, 9, 11),
    ),
    "an odd number of channels": (
        lambda: nn.Sequential(nn.Conv2d(16, 33, 3), nn.Conv2d(33, 32, 3, dilation=2)),
        (1, 16, 13, 12),
    ),
    "each channel by itself": (
        lambda: nn.Sequential(
            nn.Conv2d(8, 32, 3), nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.Conv2d(32, 64, 1), nn.Conv2d(64, 64, 3, groups=64, bias=False),
            nn.Conv2d(64, 64, 3, groups=4),
        ),
        (2, 8, 12, 10),
    ),
    "lines": (lambda: nn.Sequential(nn.Conv1d(6, 80, 7), nn.Conv1d(80, 40, 3, 2)), (3, 6, 40)),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(2, 90, 3, padding=1)), (1, 2, 6, 5, 7)),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_as_eager_mode(name: str, either_pairs: str) -> None:
    make, shape = MODELS[name]
    autocast = name in ("norms", "an odd number of channels")
    torch.manual_seed(0)
    m, x = make().eval(), torch.randn(shape)
    exact = m(x)
    if not autocast:
        m, x = m.bfloat16(), x.bfloat16()

    def run(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return m(x)

    compiled = torch.compile(run)
    for batch in (shape[0], 5):
        x = torch.cat([x] * 5)[:batch]
        got, want = compiled(x), run(x)
        assert got.dtype is want.dtype is torch.bfloat16
        torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(compiled(x[:1]).float(), exact[:1], rtol=5e-2, atol=5e-2)
    text = torch.explain(compiled, x).kernels_text
    assert "conv_last" in text
    assert ("(channel // 2)" in text) == (either_pairs == "quick")  # words of two channels


@torch.no_grad()
def test_what_is_written_to_weights_is_seen() -> None:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(16, 64, 3), nn.Conv2d(64, 8, 3)).bfloat16()
    compiled, x = torch.compile(lambda x: m(x)), torch.randn(1, 16, 9, 9).bfloat16()
    first = compiled(x)
    m[0].weight.mul_(2)
    torch.testing.assert_close(compiled(x), m(x), rtol=2e-2, atol=2e-2)
    m.load_state_dict({name: value * 2 for name, value in m.state_dict().items()})
    got = compiled(x)
    torch.testing.assert_close(got, m(x), rtol=2e-2, atol=2e-2)
    assert (got - first).abs().max() > 0.5


@torch.no_grad()
def test_what_is_not_finite_stays_where_it_is() -> None:
    """The fourth channel, which an image of three gets, is multiplied by zeros of its own."""
    torch.manual_seed(0)
    m, x = nn.Conv2d(3, 64, 3, padding=1).bfloat16(), torch.randn(2, 3, 12, 12).bfloat16()
    x[0, 2, 5, 5], x[1, 0, 0, 0] = float("inf"), float("nan")
    m.weight[3, 1, 1, 1] = float("inf")
    compiled = torch.compile(lambda x: m(x))
    got, want = compiled(x), m(x)
    assert got.isfinite().sum() > 0.8 * got.numel()
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2, equal_nan=True)


@torch.no_grad()
def test_an_image_that_begins_at_an_odd_place() -> None:
    m, memory = nn.Conv2d(4, 64, 3).bfloat16(), torch.randn(1 + 2 * 4 * 8 * 8).bfloat16()
    x = memory[1:].view(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    y = memory[1:].view(2, 8, 8, 4).permute(0, 3, 1, 2)
    compiled = torch.compile(lambda x: m(x))
    for image in (x, y):
        torch.testing.assert_close(compiled(image), m(image), rtol=2e-2, atol=2e-2)
