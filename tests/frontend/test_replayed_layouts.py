"""Replayed functions on memory that lies otherwise than that of their first call, and on tensors
with a history: what they give is what a first call gives."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc.engine import eager_rows
from graphc.frontend import replayed
from graphc.nn import functional as F

PLACES, TARGET = torch.tensor([[1, 0, 2, 3]] * 4), torch.tensor([1, 0, 3, 2])
SIGNS, BLANKS = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([[2, 0, -1, 1]] * 4)
GRID = torch.linspace(-1.2, 1.1, 24).reshape(1, 3, 4, 2)


def image(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda x: function(x[None, None], *args, **options)


CALLS: dict[str, Callable[[Any], Any]] = {
    "leaky_relu": F.leaky_relu, "softplus": F.softplus, "glu": F.glu, "normalize": F.normalize,
    "prelu": lambda x: F.prelu(x, x[0]), "softmin": lambda x: F.softmin(x, 1),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 2), "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "avg_pool2d": image(F.avg_pool2d, 3, 1, 1), "ceil": image(F.avg_pool2d, 3, ceil_mode=True),
    "adaptive_avg": image(F.adaptive_avg_pool2d, 3), "all": image(F.adaptive_avg_pool2d, 1),
    "adaptive_max": image(F.adaptive_max_pool2d, 3), "one": image(F.adaptive_max_pool2d, 1),
    "unfold": image(F.unfold, 2), "unfold all": image(F.unfold, 1),
    "nearest": image(F.interpolate, scale_factor=2), "same": image(F.interpolate, size=4),
    "bilinear": image(F.interpolate, size=(3, 7), mode="bilinear"),
    "bicubic": image(F.interpolate, size=(3, 7), mode="bicubic"),
    "smooth": image(F.interpolate, size=(2, 3), mode="bilinear", antialias=True),
    "area": image(F.interpolate, size=(2, 3), mode="area"),
    **{
        f"grid {mode} {edge}": image(
            F.grid_sample, GRID, mode=mode, padding_mode=edge, align_corners=edge == "border")
        for mode in ("bilinear", "nearest", "bicubic")
        for edge in ("zeros", "border", "reflection")
    },
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0)),
    "distance": lambda x: F.pairwise_distance(x, x.flip(0)),
    "hinge": lambda x: F.hinge_embedding_loss(x, SIGNS),
    "ranking": lambda x: F.margin_ranking_loss(x, x.flip(0), SIGNS),
    "soft margin": lambda x: F.soft_margin_loss(x, SIGNS.expand(4, 4)),
    "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1), swap=True),
    "multi margin": lambda x: F.multi_margin_loss(x, TARGET),
    "multilabel": lambda x: F.multilabel_margin_loss(x, BLANKS),
    "poisson": lambda x: F.poisson_nll_loss(x, x.detach()),
    "group_norm": lambda x: F.group_norm(x[None], 2), "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "lrn": image(F.local_response_norm, 3),
    "tril": torch.tril, "triu": lambda x: x.triu(1), "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll(1), "roll nowhere": lambda x: x.roll(4, 1),
    "gather": lambda x: x.gather(1, PLACES), "scatter": lambda x: x.scatter(0, PLACES, 2.0),
    "scatter_add": lambda x: x.scatter_add(1, PLACES, x),
    "scatter_reduce": lambda x: x.scatter_reduce(1, PLACES, x, "mean", include_self=False),
    "take_along_dim": lambda x: torch.take_along_dim(x, PLACES[:1], 1),
    "logcumsumexp": lambda x: x.logcumsumexp(1), "cumsum": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(1), "diff": lambda x: x.diff(dim=0), "none": lambda x: x.diff(4),
    "trapezoid": torch.trapezoid, "sort": lambda x: x.sort(0), "topk": lambda x: x.topk(2),
    "argsort": torch.argsort, "mv": lambda x: x.mv(x[0]), "outer": lambda x: x[0].outer(x[1]),
    "kron": lambda x: x.kron(x[:2]), "trace": torch.trace, "cdist": lambda x: torch.cdist(x, x, 1),
    "addmm": lambda x: torch.addmm(x[0], x, x, alpha=2), "any": lambda x: x.any(1),
    "einsum": lambda x: torch.einsum("ij,jk->ki", x, x),
    "turned": lambda x: torch.einsum("ij->ji", x),
    "diagonal": lambda x: torch.einsum("ii->i", x), "count": torch.count_nonzero,
    "var_mean": lambda x: torch.var_mean(x, 1), "logsumexp": lambda x: x.logsumexp((0, 1)),
    "nanmean": lambda x: x.nanmean(0),
}
SOURCES = {
    "rows": lambda: torch.rand(4, 4), "turned": lambda: torch.rand(4, 4).t(),
    "steps": lambda: torch.rand(8, 8)[::2, ::2], "repeated": lambda: torch.rand(1, 4).expand(4, 4),
}


def facts(call: Callable[[Any], Any], x: Any) -> list[Any]:
    """Of results: values, how they lie, whose memory it is, and the gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call(x)
    found: list[Any] = [type(result)]
    for part in result if isinstance(result, tuple) else [result]:
        found += [part.dtype, part.shape, part.stride(), part.detach().numpy().tobytes()]
        found += [part.data_ptr() == x.data_ptr(), part._base is None, type(part.grad_fn).__name__]
    first = result[0] if isinstance(result, tuple) else result
    if first.requires_grad:
        (gradient,) = torch.autograd.grad(first.square().sum(), x)
        found.append(gradient.numpy().tobytes())
    return found


@pytest.mark.parametrize("name", CALLS)
def test_memory_that_lies_otherwise(name: str) -> None:
    call = CALLS[name]
    torch.manual_seed(0)
    sources = {source: make() for source, make in SOURCES.items()}
    for (one, x), (other, y) in itertools.product(sources.items(), repeat=2):
        for trained in (False, True):
            x, y = (each.detach().requires_grad_(trained) for each in (x, y))
            replayed._known.clear()
            right = facts(call, y)
            replayed._known.clear()
            facts(call, x)
            assert facts(call, y) == right, (one, other, trained)


IMAGES: dict[str, Callable[[Any], Any]] = {
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "average": lambda x: F.adaptive_avg_pool2d(x, 3), "mean": lambda x: F.adaptive_avg_pool2d(x, 1),
    "largest": lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
    "group_norm": lambda x: F.group_norm(x, 1), "triu": torch.triu, "max_pool2d": lambda x:
    F.max_pool2d(x, 2), "avg_pool2d": lambda x: F.avg_pool2d(x, 2), "roll": lambda x: x.roll(1, 2),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", IMAGES)
def test_images_with_their_channels_last(name: str, channels: int) -> None:
    x = torch.rand(2, channels, 4, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    if channels == 1:
        last = x.permute(0, 2, 3, 1).clone().permute(0, 3, 1, 2)
    for one, other in itertools.permutations([x, last]):
        replayed._known.clear()
        right = facts(IMAGES[name], other)
        replayed._known.clear()
        facts(IMAGES[name], one)
        assert facts(IMAGES[name], other) == right


def test_grids_of_no_image_and_of_one_pixel() -> None:
    nothing = F.grid_sample(torch.zeros(0, 3, 5, 7), torch.zeros(0, 4, 6, 2), align_corners=True)
    assert nothing.shape == (0, 3, 4, 6)
    grid = torch.zeros(1, 2, 2, 2, requires_grad=True)
    pixel = torch.ones(1, 1, 1, 1)
    found = F.grid_sample(pixel, grid, padding_mode="reflection", align_corners=True)
    found.sum().backward()
    assert found.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]] and not grid.grad.any()


@pytest.mark.parametrize("size", [6, 300])
def test_gray_images_keep_their_strides_in_native_code(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    x = torch.rand(1, 1, size, size)
    last = torch.rand(1, size, size, 1).permute(0, 3, 1, 2)
    for _ in range(4):
        assert F.max_pool2d(x, 2).stride() == (size * size // 4, size * size // 4, size // 2, 1)
        assert F.max_pool2d(last, 2).stride() == (size * size // 4, 1, size // 2, 1)
