"""interpolate() where sizes are free: one program for all of them, with eager mode's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc.export import Dim, export

MODES: dict[str, Callable[[Any], Any]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest to a half": lambda x: F.interpolate(x, scale_factor=(0.5, 1.5)),
    "nearest exact": lambda x: F.interpolate(x, scale_factor=3, mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=(2, 0.75), mode="bilinear"),
    "aligned": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "recomputed": lambda x: F.interpolate(
        x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True
    ),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "to a number": lambda x: F.interpolate(x, size=5, mode="bilinear"),
    "by a size": lambda x: F.interpolate(x, size=(x.shape[3], x.shape[2] + 1), mode="bilinear"),
    "halves": lambda x: F.interpolate(x.half(), scale_factor=2, mode="bilinear"),
    "float64": lambda x: F.interpolate(x.double(), scale_factor=2, mode="bicubic"),
    "bytes": lambda x: F.interpolate((x * 9).to(torch.uint8), scale_factor=2),
    "upsampled": torch.nn.Upsample(scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("mode", MODES)
def test_free_sizes(mode: str) -> None:
    model = MODES[mode]
    free = ({0: None, 2: Dim("h", min=2, max=40), 3: Dim("w", min=2, max=40)},)
    program = export(model, (torch.rand(2, 3, 6, 8),), dynamic_shapes=free)
    for size in ((6, 8), (2, 2), (7, 3), (33, 40)):
        x = torch.rand(2, 3, *size)
        found, wanted = program(x), model(x)
        assert found.shape == wanted.shape and found.dtype is wanted.dtype
        within = 1e-3 if mode == "halves" else 2e-6 if wanted.dtype.is_floating_point else 0
        np.testing.assert_allclose(
            found.double().numpy(), wanted.double().numpy(), atol=within, rtol=within
        )


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradients_of_one_version(mode: str) -> None:
    model = MODES[mode]
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for size in ((6, 8), (4, 12), (9, 5)):
        x = torch.rand(1, 2, *size, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for value, function in ((x, compiled), (y, model)):
            function(value).square().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-5, rtol=1e-5)
    assert compiled.compile_count == 1


def test_a_factor_that_is_no_simple_fraction_fixes_the_size() -> None:
    with pytest.raises(torch.export.ExportError, match="takes 3, computed of the free size 'w'"):
        export(lambda x: F.interpolate(x, scale_factor=0.3), (torch.rand(1, 1, 10),),
               dynamic_shapes=({2: Dim("w", min=4)},), check=False)
