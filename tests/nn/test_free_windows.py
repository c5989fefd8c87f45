"""Convolutions in compiled code of any size, their weights' sizes among them: the version is for
those of its weights, natively, and images keep theirs open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphc
import graphc.nn.functional as F

# no size of an image is one of its window's: equal ones count as one
CASES: list[tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
    ("conv1d", {"padding": 1}, (2, 4, 9), (6, 4, 3)),
    ("conv2d", {"padding": (2, 1)}, (7, 4, 9, 12), (6, 4, 3, 5)),
    ("conv2d", {"groups": 2, "stride": 2}, (7, 4, 9, 12), (6, 2, 3, 3)),
    ("conv3d", {}, (4, 2, 5, 6, 7), (3, 2, 2, 3, 2)),
    ("conv_transpose2d", {"stride": 2}, (8, 4, 5, 6), (4, 3, 3, 2)),
]


def _random(shape: tuple[int, ...], seed: int) -> graphc.Tensor:
    return graphc.randn(shape, generator=graphc.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "options", "image", "window"), CASES)
def test_sizes_of_weights_are_known(
    name: str, options: dict[str, Any], image: tuple[int, ...], window: tuple[int, ...]
) -> None:
    def convolved(package: Any) -> Callable[..., Any]:
        function = getattr(package, name)
        return lambda x, weight: function(x, weight, **options)

    compiled = graphc.compile(convolved(F), dynamic=True)
    x, weight = _random(image, 0), _random(window, 1)
    assert "NumPy runs" not in str(graphc.explain(compiled, x, weight))
    for sizes, filters in ((image, window), ((image[0] + 2, image[1], *(
        size + 3 for size in image[2:]
    )), window), (image, (*window[:-1], window[-1] + 1))):
        x, weight = _random(sizes, 2), _random(filters, 3)
        wanted = convolved(torch.nn.functional)(*(torch.tensor(t.numpy()) for t in (x, weight)))
        torch.testing.assert_close(torch.tensor(compiled(x, weight).numpy()), wanted)
    assert len(compiled.versions()) == 2


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, weight = _random((8, 3, 40, 28), 0), _random((16, 3, 3, 5), 1)
    compiled = graphc.compile(lambda x, weight: F.conv2d(x, weight, padding=(2, 1)), dynamic=True)
    threads, found = graphc.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            graphc.set_num_threads(count)
            found.append(compiled(x, weight))
    finally:
        graphc.set_num_threads(threads)
    assert all(graphc.equal(found[0], other) for other in found[1:])
