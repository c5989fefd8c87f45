"""Views of what is not row-major: their steps, against the general rule and against torch's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import views
from graphc.ir.dim import DimEnv


def shapes_of(count: int, rank: int) -> list[tuple[int, ...]]:
    """All shapes of so many numbers, with up to `rank` dims."""
    found: list[tuple[int, ...]] = []
    for dims in range(rank + 1):
        sizes = [n for n in range(1, count + 1) if count % n == 0]
        found += [s for s in itertools.product(sizes, repeat=dims) if math.prod(s) == count]
    return found


MEMORY = np.arange(2 * 3 * 4 * 2, dtype=np.float32).reshape(2, 3, 4, 2)
SOURCES = [
    MEMORY[..., 0], MEMORY[..., :1], MEMORY.transpose(1, 0, 2, 3)[..., 1], MEMORY[:, ::2],
    MEMORY[:1, :, :, :1], MEMORY[::-1][:, :, ::2], np.broadcast_to(MEMORY[0, :, 0, :1], (2, 3, 2)),
    MEMORY[:, :, :1, 0], MEMORY.T[:1], MEMORY[1:, 1:, ::3, 1], MEMORY[:, 0, 1:3],
    np.broadcast_to(MEMORY[0, 0, 0, 0], (3, 2)),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda a: f"{a.shape}")
def test_a_reshape_of_strided_memory_has_the_general_rules_steps(source: np.ndarray) -> None:
    steps = tuple([s // 4 for s in source.strides])
    seen = {True: 0, False: 0}
    for shape in shapes_of(source.size, 4):
        wanted = views.reshape_strides(source.shape, steps, shape, DimEnv())
        found = views.ARRAYS["reshape"](source, {"shape": shape})
        seen[found is None] += 1
        if wanted is None or found is None:
            assert wanted is None and found is None
        else:
            assert tuple([s // 4 for s in found.strides]) == wanted and found.shape == shape
            assert np.array_equal(found, source.reshape(shape))
            assert np.may_share_memory(found, source)
    assert seen[False]


def test_reshapes_are_torchs() -> None:
    reference = pytest.importorskip("torch")

    def outcomes(engine: Any) -> list[Any]:
        x = engine.arange(48.0).reshape(2, 3, 4, 2)
        found: list[Any] = []
        repeated = x[:, :1].expand(2, 5, 4, 2)
        for y in (x[..., 0], x.transpose(0, 1), x[:, ::2], x[:1, :, :, :1], repeated):
            for shape in ((-1,), (2, -1), (-1, 2), (1, -1, 1), (2, 2, -1)):
                try:
                    z = y.view(shape)
                except RuntimeError:
                    z = None
                if z is not None:
                    found.append((z.tolist(), z.stride(), z.storage_offset(), z._base is not None))
                try:
                    z = y.reshape(shape)
                except RuntimeError:
                    continue
                z.add_(1) if y.stride(1) else None
                found += [z.tolist(), z.stride(), y.tolist(), x.tolist()]
        return found

    assert outcomes(torch) == outcomes(reference)


def _strided_views(engine: Any, x: Any) -> list[Any]:
    line = x.reshape(-1)[:3]
    return [
        x.diagonal(), x.diagonal(1), x.diagonal(-1, dim1=1, dim2=0), engine.diagonal(x, 1),
        x.unfold(1, 2, 1), x.unfold(0, 2, 2), x.unfold(dimension=1, size=3, step=1),
        x.unfold(0, 2, 1).diagonal(0, 0, 2), x.diagonal()[1:], *engine.meshgrid(
            line, x[0], indexing="ij"
        ), *engine.meshgrid(x[1], line, indexing="xy"),
    ]


@pytest.mark.usefixtures("only_the_cpu")
def test_diagonals_windows_and_grids_again_are_torchs() -> None:
    """Recalled from the second call on: places in memory, histories, writes to the base."""
    reference = pytest.importorskip("torch")

    def outcomes(engine: Any) -> list[Any]:
        found: list[Any] = []
        for again in range(4):
            base = engine.arange(30.0, dtype=engine.float32 if again else engine.float64)
            for x in (base.reshape(5, 6), base.reshape(6, 5).t(), base.reshape(5, 6)[:, ::2]):
                for y in _strided_views(engine, x):
                    found.append((y.tolist(), y.stride(), y.storage_offset(), y._is_view()))
                x.diagonal().add_(100)
                found.append(base.tolist())
            leaf = base.reshape(5, 6).clone().requires_grad_()
            for i in range(13):
                y = _strided_views(engine, leaf * 1)[i]
                (slope,) = engine.autograd.grad((y * y).sum(), leaf)
                found.append((slope.tolist(), y.grad_fn.name()))
            with engine.no_grad():
                leaf.diagonal().mul_(2)
            found.append((leaf.tolist(), leaf._version))
            z = leaf * 1
            z.diagonal(1).fill_(0)
            (slope,) = engine.autograd.grad(z.sum(), leaf)
            found.append(slope.tolist())
        return found

    assert outcomes(torch) == outcomes(reference)
    x = torch.rand(3, 3)
    for _ in range(3):
        assert x.diagonal()._graphc_storage is x._graphc_storage
        with pytest.raises(RuntimeError):
            x.unfold(0, 4, 1)
        with pytest.raises(RuntimeError):
            x.diagonal(0, 1, 1)
