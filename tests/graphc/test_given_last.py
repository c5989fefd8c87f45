"""Arguments whose channels are last, convolved as they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import backends
from tests.nn.both import close

TILING = backends.get(backends.DEFAULT).machine.tiling
PAIRS = TILING is not None and "bf16" in TILING.steps


class Case(NamedTuple):
    """A convolution: of images (batch, channels, lines, columns), weights (outputs, window)."""

    image: tuple[int, int, int, int]
    outputs: int
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1

    def made(self, t: Any, dtype: str) -> tuple[Any, Any]:
        """An image with its channels last, and weights."""
        rng = np.random.default_rng(0)
        shapes = self.image, (self.outputs, self.image[1] // self.groups, *self.window)
        x, w = (
            t.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(getattr(t, dtype))
            for shape in shapes
        )
        return x.contiguous(memory_format=t.channels_last), w

    def call(self, t: Any, x: Any, w: Any) -> Any:
        return t.nn.functional.conv2d(
            x, w, None, self.stride, self.padding, self.dilation, self.groups
        )


CASES = [
    Case((3, 16, 14, 15), 32),
    Case((1, 18, 40, 37), 21),  # no whole registers
    Case((3, 24, 33, 29), 40, stride=2),
    Case((2, 12, 30, 31), 16, (5, 4), stride=2, padding=3),  # windows beside the image
    Case((2, 32, 28, 28), 24, (1, 1), padding=0),
    Case((2, 16, 21, 22), 16, padding=2, dilation=2),
    Case((1, 3, 64, 63), 16, (7, 7), stride=2, padding=3),  # few channels
    Case((2, 64, 17, 18), 64, groups=64),
]


def compiled(case: Case) -> Any:
    return graphc.compile(lambda x, w: case.call(graphc, x, w))


def is_last(function: Any, *args: Any) -> bool:
    """Whether kernels convolve images whose channels are last."""
    return "conv_last" in graphc.explain(function, *args).kernels_text


@pytest.fixture
def threads() -> Iterator[None]:
    before = graphc.get_num_threads()
    yield
    graphc.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_torchs_for_any_threads(case: Case, dtype: str) -> None:
    function, (x, w) = compiled(case), case.made(graphc, dtype)
    wanted = case.call(torch, *case.made(torch, dtype))
    bits = set()
    for count in (1, 3):
        graphc.set_num_threads(count)
        found = function(x, w)
        assert found.stride() == wanted.stride()
        close(found.float(), wanted.float(), 1e-4 if dtype == "float32" else 2e-2)
        bits.add(found.float().numpy().tobytes())
    assert len(bits) == 1
    if TILING is not None and (dtype == "float32" or (PAIRS and case.groups == 1)):
        assert is_last(function, x, w)


def test_weights_may_have_their_channels_last_too() -> None:
    case = CASES[0]
    x, w = case.made(graphc, "float32")
    found = compiled(case)(x, w.contiguous(memory_format=graphc.channels_last))
    np.testing.assert_array_equal(found.numpy(), compiled(case)(x, w).numpy())


@pytest.mark.skipif(TILING is None, reason="no tiles")
def test_what_follows_has_its_channels_last() -> None:
    """Nothing is turned around between convolutions, nor at either end."""
    def net(t: Any, x: Any, v: Any, w: Any) -> Any:
        F = t.nn.functional
        hidden = F.relu(F.conv2d(x, v, None, 1, 1))
        return F.conv2d(F.max_pool2d(hidden, 2), w, None, 2, 1) * 0.5

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((3, 16, 32, 32), (32, 16, 3, 3),
                                                                  (16, 32, 3, 3))]
    function, last = graphc.compile(lambda *args: net(graphc, *args)), dict[Any, Any]()
    for t in (graphc, torch):
        x, v, w = map(t.from_numpy, arrays)
        last[t] = x.contiguous(memory_format=t.channels_last), v, w
    found, wanted = function(*last[graphc]), net(torch, *last[torch])
    assert found.stride() == wanted.stride()
    close(found, wanted, 1e-4)
    text = graphc.explain(function, *last[graphc]).kernels_text
    assert text.count("conv_last batch") == 2 and text.count("\nkernel") == 5  # two of weights


@pytest.mark.skipif(TILING is None, reason="no tiles")
def test_which_stay() -> None:
    """Those of groups, or of many weights for few pixels; and images in torch's own order."""
    for case in (Case((2, 16, 20, 20), 16, groups=4), Case((1, 256, 6, 6), 256)):
        function, (x, w) = compiled(case), case.made(graphc, "float32")
        close(function(x, w), case.call(torch, *case.made(torch, "float32")), 1e-4)
        assert not is_last(function, x, w)
    x, w = CASES[0].made(graphc, "float32")
    assert not is_last(compiled(CASES[0]), x.contiguous(), w)


def test_gradients_are_torchs() -> None:
    """There images lie channel after channel."""
    case, slopes = CASES[2], dict[Any, Any]()
    for t in (graphc, torch):
        x, w = (each.requires_grad_() for each in case.made(t, "float32"))
        function = compiled(case) if t is graphc else lambda x, w: case.call(torch, x, w)
        function(x, w).square().sum().backward()
        slopes[t] = x.grad, w.grad
    for mine, its in zip(slopes[graphc], slopes[torch], strict=True):
        assert mine.stride() == its.stride()
        close(mine, its, 1e-3)


def test_an_infinite_weight_beside_the_image_gives_no_nan() -> None:
    case = Case((2, 16, 14, 14), 16)
    x, w = case.made(graphc, "float32")
    plain = compiled(case)(x, w).numpy()
    w[3, :, 0] = float("inf")  # the first line of the window: the first line of the image has none
    found = compiled(case)(x, w).numpy()
    np.testing.assert_array_equal(found[:, 3, 0], plain[:, 3, 0])
    assert not np.isfinite(found[:, 3, 1:]).any()


def test_batches_of_any_size_share_code() -> None:
    function = compiled(CASES[0])
    for batch in (3, 1, 5, 7):
        case = CASES[0]._replace(image=(batch, *CASES[0].image[1:]))
        close(function(*case.made(graphc, "float32")),
              case.call(torch, *case.made(torch, "float32")), 1e-4)
