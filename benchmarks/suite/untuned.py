"""Ten more shapes of each family, drawn once by a seed: nothing may be tuned on them."""

from __future__ import annotations

from typing import Any

import inference
import kernels
import numpy as np
import training
from workloads import Workload

_rng = np.random.default_rng(20261123)


def _between(low: int, high: int) -> int:
    """Evenly in the logarithm."""
    return int(np.exp(_rng.uniform(np.log(low), np.log(high))))


def _ten(draw: Any) -> list[Workload]:
    rows: dict[str, Workload] = {}
    while len(rows) < 10:
        row = draw()
        rows.setdefault(row.name, row)
    return list(rows.values())


def _row_kernel() -> Workload:
    kind = _rng.choice(["softmax", "layer_norm", "row", "column"])
    rows, columns = _between(16, 8192), _between(32, 4096)
    if kind in ("row", "column"):
        return kernels.sums(int(kind == "row"), rows, columns, untuned=True)
    make = kernels.softmax if kind == "softmax" else kernels.layer_norm
    return make(rows, columns, untuned=True)


def _convolution() -> Workload:
    size, channels = _between(7, 96), 8 * _between(1, 40)
    depthwise = _rng.random() < 0.2
    return kernels.convolution(
        _between(1, 16), channels, size, channels if depthwise else 8 * _between(1, 40),
        int(_rng.choice([1, 3, 3, 5])), int(_rng.choice([1, 1, 2])),
        channels if depthwise else 1, untuned=True,
    )


ROWS = [
    *_ten(lambda: kernels.matmul(
        _between(1, 1500), _between(16, 3000), _between(16, 3000), untuned=True)),
    *_ten(_row_kernel),
    *_ten(_convolution),
    *_ten(lambda: kernels.attention(
        _between(1, 8), _between(1, 16), _between(16, 1024), int(_rng.choice([32, 64, 80, 128])),
        untuned=True)),
    *_ten(lambda: kernels.pointwise(_between(500, 1 << 23), untuned=True)),
    *_ten(lambda: training.mlp(
        _between(4, 512), [_between(20, 1500) for _ in range(_between(2, 6))], untuned=True)),
    *_ten(lambda: inference.mlp(
        _between(1, 512), [_between(20, 1500) for _ in range(_between(2, 6))], untuned=True)),
]
