"""torch.compile(options={"winograd": ...}): right within its bound, only where it is asked for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.config import override
from graphc.ir.passes.winograd import bound_of
from graphc.nn import functional as F

TRUE = {"winograd": True}


def tiles(compiled: Any, *args: Any) -> list[str]:
    """The F(...) of each convolution as explain() tells them, or why there is none."""
    text = str(torch.explain(compiled, *args))
    return re.findall(r"^convolution.*?: (F\(.*?\)|directly: .*)", text, re.MULTILINE)


def bounds(compiled: Any, *args: Any) -> list[float]:
    found = re.findall(r"off by at most (\S+) of", str(torch.explain(compiled, *args)))
    return [float(each) for each in found]


def within(got: Any, x: Any, w: Any, bound: float, bias: Any = None) -> None:
    """Within a bound of the convolution in float64, and not to its last bit."""
    want = F.conv2d(x.double(), w.double(), None if bias is None else bias.double(), padding=1)
    error = (got.double() - want).abs().amax(dim=(0, 2, 3))
    scale = x.abs().max().double() * w.double().abs().sum(dim=(1, 2, 3))
    assert bool((error <= bound * scale).all()) and error.max().item() > 0


def test_inference_is_within_its_bound() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(40, 33, 3, padding=1, bias=False).eval()
    compiled = torch.compile(conv, options=TRUE)
    with torch.no_grad():
        for shape in ((1, 40, 41, 38), (8, 40, 41, 38)):  # the second is of any number
            x = torch.randn(shape)
            within(compiled(x), x, conv.weight, bound_of(4, 3, 40))
        last = torch.randn(2, 40, 41, 38).contiguous(memory_format=torch.channels_last)
        within(compiled(last), last, conv.weight, bound_of(4, 3, 40))
        assert compiled(torch.randn(0, 40, 41, 38)).shape == (0, 33, 41, 38)
        assert tiles(compiled, x) == ["F(4x4, 3x3)"]
        assert bounds(compiled, x) == [pytest.approx(bound_of(4, 3, 40), rel=0.1)]


def test_numbers_that_cancel_are_within_the_bound() -> None:
    """Images and filters whose products are large, and whose sums are small."""
    rng = np.random.default_rng(3)
    conv = nn.Conv2d(64, 64, 3, padding="same", bias=False).eval()
    image = rng.choice((-1e3, 1e3), (1, 64, 40, 40)) + rng.random((1, 64, 40, 40))
    x = torch.tensor(image.astype(np.float32))
    signs = np.where(np.indices((3, 3)).sum(0) % 2, -1.0, 1.0) * rng.choice((-1, 1), (64, 64, 1, 1))
    with torch.no_grad():
        conv.weight.copy_(torch.tensor(signs.astype(np.float32)))
        for limit, tile in ((True, 4), (2 * bound_of(2, 3, 64), 2)):
            compiled = torch.compile(conv, options={"winograd": limit})
            within(compiled(x), x, conv.weight, bound_of(tile, 3, 64))
            assert tiles(compiled, x) == [f"F({tile}x{tile}, 3x3)"]


def test_halves_and_doubles_stay() -> None:
    conv, x = nn.Conv2d(64, 64, 3, padding=1).eval(), torch.randn(1, 64, 40, 40)
    compiled, plain = torch.compile(conv, options=TRUE), torch.compile(conv)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(x), plain(x))
        (told,) = tiles(compiled, x)
        assert "bf16" in told and "only float32" in told
    double = torch.compile(conv.double(), options=TRUE)
    with torch.no_grad():
        assert torch.equal(double(x.double()), torch.compile(conv)(x.double()))
        assert "it is of f64" in tiles(double, x.double())[0]


def test_every_call_is_checked_with_its_errors() -> None:
    conv, x = nn.Conv2d(64, 64, 3, padding=1).eval(), torch.randn(1, 64, 40, 40)
    with override(check=3), torch.no_grad():
        compiled = torch.compile(conv, options=TRUE)
        got = compiled(x)
    within(got, x, conv.weight, bound_of(4, 3, 64), bias=conv.bias)


def test_a_bound_over_the_limit_stays_direct() -> None:
    conv, x = nn.Conv2d(32, 32, 3, padding=1).eval(), torch.randn(1, 32, 40, 40)
    exact = torch.compile(conv, options={"winograd": 1e-6})
    plain = torch.compile(conv)
    with torch.no_grad():
        assert torch.equal(exact(x), plain(x))
        (told,) = tiles(exact, x)
        assert "may be off by" in told and "1.0e-06 is allowed" in told
        assert tiles(plain, x) == []


class Block(nn.Module):
    """What a residual network repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(80, 68, 3, padding=1), nn.BatchNorm2d(68)
        self.second = nn.Conv2d(68, 80, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.norm(self.first(x)))) + x)


def _step(block: Any, run: Any, x: Any) -> list[Any]:
    block.zero_grad()
    image = x.detach().clone().requires_grad_()
    run(image).square().mean().backward()
    return [image.grad, *(each.grad.clone() for each in block.parameters())]


def test_a_step_of_training_has_torchs_gradients() -> None:
    torch.manual_seed(1)
    block, x = Block(), torch.randn(2, 80, 26, 27)
    compiled = torch.compile(block, options=TRUE)
    got = _step(block, compiled, x)
    wide = Block().double()
    wide.load_state_dict({k: v.double() if v.dtype.is_floating_point else v
                          for k, v in Block.state_dict(block).items()})
    for a, b in zip(got, _step(wide, wide, x.double()), strict=True):
        error = (a.double() - b).abs().max().item()
        assert error <= 2e-4 * max(b.abs().max().item(), 1e-3)
    told = tiles(compiled, x.clone().requires_grad_())
    assert told.count("F(4x4, 3x3)") == 4  # both, forward and for the image
    bits = []
    for threads in (1, 3):
        with override(threads=threads):
            bits.append(_step(block, compiled, x))
    assert all(torch.equal(a, b) for a, b in zip(*bits, strict=True))


def test_a_weight_that_is_written_to_is_transformed_again() -> None:
    conv = nn.Conv2d(32, 32, 3, padding=1, bias=False).eval()
    compiled, x = torch.compile(conv, options=TRUE), torch.randn(1, 32, 40, 40)
    with torch.no_grad():
        before = compiled(x)
        conv.weight.mul_(2)
        assert torch.equal(compiled(x), before * 2)


def test_infinity_and_nan_stay_in_their_tiles() -> None:
    conv = nn.Conv2d(32, 32, 3, padding=1, bias=False).eval()
    x = torch.randn(1, 32, 40, 40)
    x[0, 3, 21, 21] = float("inf")
    with torch.no_grad():
        got = torch.compile(conv, options=TRUE)(x).isfinite()
        assert not got[0, :, 20:23, 20:23].any()
        assert got[0, :, :16].all() and got[0, :, 28:].all()


def test_what_is_kept_is_kept_by_the_limit(tmp_path: Any) -> None:
    def convolved(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=1)

    x, w = torch.randn(1, 64, 40, 40), torch.randn(64, 64, 3, 3)
    with override(cache_dir=tmp_path):
        plain = torch.compile(convolved)(x, w)
        found = torch.compile(convolved, options=TRUE)(x, w)
        within(found, x, w, bound_of(4, 3, 64))
        assert not torch.equal(found, plain)
        assert torch.equal(torch.compile(convolved)(x, w), plain)
        with override(winograd=0.01):
            assert torch.equal(torch.compile(convolved)(x, w), found)
            off = torch.compile(convolved, options={"winograd": False})
            assert torch.equal(off(x, w), plain)


def test_tiles_that_do_not_fit_a_limit_are_given_up() -> None:
    def convolved(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=1).relu().sum()

    x, w = torch.randn(1, 64, 160, 160), torch.randn(64, 64, 3, 3)
    plain, tiled = torch.compile(convolved), torch.compile(convolved, options=TRUE)
    peaks = [torch.explain(each, x, w).memory.peak for each in (plain, tiled)]
    assert peaks[0] < peaks[1]
    small, large = (
        torch.compile(convolved, options=TRUE, max_memory=int(1.02 * peak)) for peak in peaks
    )
    assert torch.equal(small(x, w), plain(x, w)) and tiles(small, x, w) == []
    assert torch.equal(large(x, w), tiled(x, w)) and tiles(large, x, w) == ["F(4x4, 3x3)"]


@pytest.mark.parametrize(("value", "error", "told"), [
    ("yes", TypeError, "winograd='yes'"), (None, TypeError, "got NoneType"),
    (-0.1, ValueError, "between 0 and 1"), (1.5, ValueError, "between 0 and 1"),
    (float("nan"), ValueError, "between 0 and 1"),
])
def test_another_value_is_refused(value: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        torch.compile(lambda x: x, options={"winograd": value})
