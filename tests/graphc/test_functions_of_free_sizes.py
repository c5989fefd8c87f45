"""Functions along dims of free sizes: one exported program, and one more compiled version, for any.

PyTorch exports them, too; where a function takes a size as it is, each size would be compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc.export import Dim, export


def _written(x: Any) -> Any:
    product = x @ x.T
    product.diagonal().mul_(0.5)
    return product


CASES: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: x.median(0)[0],
    "median of all": lambda x: x.median(),
    "its places": lambda x: x.median(0)[1],
    "median of integers": lambda x: (x * 10).long().median(0)[0],
    "median along another dim": lambda x: x.median(1)[0],
    "nanmedian": lambda x: x.nanmedian(0)[0],
    "diagonal": lambda x: (x @ x.T).diagonal(),
    "diagonal beside": lambda x: (x @ x.T).diagonal(1) + (x @ x.T).diagonal(-1),
    "diagonal of a batch": lambda x: (x[None] @ x.T[None]).diagonal(dim1=-2, dim2=-1),
    "diagonal that is written": _written,
    "trace": lambda x: (x @ x.T).trace(),
    "diagonal by einsum": lambda x: torch.einsum("ii->i", x @ x.T),
    "windows": lambda x: x.unfold(0, 2, 1).sum(1),
    "windows apart": lambda x: x.unfold(0, 3, 2) * 2,
    "padded to a length": lambda x: F.pad(x, (0, 0, 0, 20 - x.shape[0]), value=-1.0),
    "padded before and behind": lambda x: F.pad(x, (1, 2, x.shape[0], 3)),
    "padded to a multiple": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 4)),
    "padded integers": lambda x: F.pad(x.argmax(1), (0, 20 - x.shape[0]), value=-100),
    "means of windows": lambda x: F.adaptive_avg_pool1d(x.T[None], 3),
    "means of windows of two dims": lambda x: F.adaptive_avg_pool2d(x[None, None], (3, 2)),
    "padded bools": lambda x: F.pad(x > 0, (0, 0, 20 - x.shape[0], 0)),
}


def _example(size: int, hole: bool = False) -> Any:
    x = torch.arange(size * 3.0).view(size, 3).sin()
    if hole:
        x[1, 1] = float("nan")
    return x


@pytest.mark.parametrize("name", CASES)
def test_an_exported_program_takes_any_size(name: str) -> None:
    program = export(CASES[name], (_example(5),), dynamic_shapes=({0: Dim("n", min=3, max=20)},))
    for size in (3, 4, 8, 9, 20):
        for x in (_example(size), _example(size, hole="median" in name)):
            want = CASES[name](x)
            have = program(x)
            assert have.dtype is want.dtype
            assert torch.allclose(have, want, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_the_second_version_is_for_any_size(name: str) -> None:
    compiled = torch.compile(CASES[name])
    for size in (5, 4, 9, 20, 3, 8):
        gradients = []
        for call in (CASES[name], compiled):
            x = _example(size).requires_grad_()
            result = call(x)
            if result.requires_grad:
                result.cos().sum().backward()
            gradients.append((result.detach(), x.grad))
        (want, expected), (have, found) = gradients
        assert torch.allclose(have, want, atol=1e-5)
        assert (found is None) is (expected is None)
        assert found is None or torch.allclose(found, expected, atol=1e-5)
    assert compiled.compile_count == 2
