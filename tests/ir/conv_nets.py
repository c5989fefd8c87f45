"""Random convolutional networks: one to three spatial dims, groups, dilation, strides, transposed
convolutions, residuals, concats, pooling, batch norm, and what users put between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dim import product
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType


class ConvMaker:
    """Grows a network on values [N, C, *S], one random layer at a time."""

    def __init__(self, seed: int, dtype: dtypes.DType) -> None:
        self.rng = random.Random(seed)
        self.dtype = dtype
        self.builder = Builder()
        self.spatial = self.rng.choice([1, 2, 2, 2, 3])
        batch: Any = self.rng.choice([1, 2, 3])
        if seed % 4 == 0:
            batch = self.builder.env.new("batch", 2)
        size = {1: 11, 2: 7, 3: 5}[self.spatial]
        sizes = [self.rng.randint(size - 1, size + 1) for _ in range(self.spatial)]
        self.values = [self.input((batch, self.rng.choice([1, 3, 4, 8]), *sizes))]

    def input(self, shape: tuple[Any, ...]) -> Expr:
        return Expr(self.builder, self.builder.input(TensorType(self.dtype, shape)))

    def ints(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.rng.randint(low, high) for _ in range(self.spatial))

    def pick(self) -> Expr:
        return self.rng.choice(self.values[-3:])

    def like(self, x: Expr) -> Expr:
        """Another value of x's shape, or x itself."""
        return self.rng.choice([v for v in self.values if v.shape == x.shape])

    def grow(self, count: int) -> Graph:
        while count:
            x = self.pick()
            y = self.rng.choice(_LAYERS)(self, x)
            if y is not None and product(y.shape) is not None and 0 not in y.shape:
                self.values.append(y)
                count -= 1
        outputs = [self.values[-1], self.rng.choice(self.values[1:])]
        outputs.append(ops.sum(self.values[-2], dims=(0, 2), keepdim=False))
        return self.builder.build([v.node for v in outputs])


def _groups(m: ConvMaker, channels: int) -> int:
    return m.rng.choice([g for g in (1, 1, 2, 4, channels) if channels % g == 0])


def _conv(m: ConvMaker, x: Expr) -> Expr | None:
    channels = x.shape[1]
    groups = _groups(m, channels)
    window, dilation, low, high = m.ints(1, 3), m.ints(1, 2), m.ints(0, 2), m.ints(0, 2)
    if any(
        (k - 1) * d + 1 > n + a + b
        for k, d, n, a, b in zip(window, dilation, x.shape[2:], low, high, strict=True)
    ):
        return None
    w = m.input((groups * m.rng.choice([1, 2, 4]), channels // groups, *window))
    y: Expr = ops.conv(
        x, w, stride=m.ints(1, 2), pad_low=low, pad_high=high, dilation=dilation, groups=groups
    )
    return y


def _transposed(m: ConvMaker, x: Expr) -> Expr | None:
    channels, groups = x.shape[1], _groups(m, x.shape[1])
    window, stride = m.ints(1, 3), m.ints(1, 2)
    sizes = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, window, strict=True)]
    per_group = m.rng.choice([1, 2, 4])
    if max(sizes) > 12:
        return None
    none = (0,) * m.spatial
    w = m.input((channels, per_group, *window))
    y: Expr = ops.conv_input_grad(
        x, w, input_shape=(x.shape[0], groups * per_group, *sizes), stride=stride, pad_low=none,
        pad_high=none, dilation=(1,) * m.spatial, groups=groups,
    )
    return y


def _bias(m: ConvMaker, x: Expr) -> Expr:
    bias = ops.reshape(m.input((x.shape[1],)), shape=(1, x.shape[1], *(1,) * m.spatial))
    y: Expr = x + bias
    return ops.relu(y) if m.rng.random() < 0.5 else y


def _residual(m: ConvMaker, x: Expr) -> Expr:
    y: Expr = x * 0.5 + m.like(x)
    return y


def _pointwise(m: ConvMaker, x: Expr) -> Expr:
    y: Expr = m.rng.choice([ops.tanh, ops.relu, ops.sigmoid, ops.square])(x)
    return y


def _concat(m: ConvMaker, x: Expr) -> Expr:
    y: Expr = ops.concat(x, m.like(x), x, dim=m.rng.choice([1, 1, 2]))
    return y


def _pool(m: ConvMaker, x: Expr) -> Expr | None:
    window, stride = m.ints(2, 3), m.ints(1, 3)
    if any(n < k for n, k in zip(x.shape[2:], window, strict=True)):
        return None
    pads = tuple(m.rng.randint(0, (k - 1) // 2 + (k == 2)) for k in window)
    attrs = {
        "window": window, "stride": stride, "pad_low": pads, "pad_high": pads,
        "dilation": (1,) * m.spatial,
    }
    if m.rng.random() < 0.5:
        y: Expr = ops.window_sum(x, **attrs)
        return y
    values, indices = ops.max_pool(x, **attrs)
    if m.rng.random() < 0.5:
        return values * 1.0 + ops.cast(indices, dtype=m.dtype)  # indices that users see
    return values * 1.0


def _norm(m: ConvMaker, x: Expr) -> Expr | None:
    if product((x.shape[0], *x.shape[2:])) in (0, 1):
        return None
    weights = [m.input((x.shape[1],)) for _ in range(2)]
    y, mean, _ = ops.batch_norm(x, *weights, eps=1e-1)
    if m.rng.random() < 0.5:
        m.values.append(y * ops.reshape(mean, shape=(1, x.shape[1], *(1,) * m.spatial)))
    return y * 1.0


def _norm_eval(m: ConvMaker, x: Expr) -> Expr:
    shape = (1, x.shape[1], *(1,) * m.spatial)
    mean, deviation = (ops.reshape(m.input((x.shape[1],)), shape=shape) for _ in range(2))
    y: Expr = (x - mean) * ops.rsqrt(ops.square(deviation) + 0.5)
    return y


def _slice(m: ConvMaker, x: Expr) -> Expr:
    dim = m.rng.randrange(1, 2 + m.spatial)
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[dim] = min(1, x.shape[dim] - 1)
    y: Expr = ops.slice(
        x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape)
    )
    if m.rng.random() < 0.5:
        part = ops.tanh(y)
        return ops.slice_update(
            x, part, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape)
        ) * 1.0
    return y * 1.0


def _pad(m: ConvMaker, x: Expr) -> Expr:
    none = (0,) * len(x.shape)
    y: Expr = ops.pad(
        x, low=(0, 0, *m.ints(0, 1)), high=(0, 1, *m.ints(0, 1)), interior=none, value=0.5
    )
    return ops.flip(y, dims=(m.rng.randrange(1, len(x.shape)),))


def _attend(m: ConvMaker, x: Expr) -> Expr:
    """Squeeze and excitation: a scale of each channel by its mean."""
    dims = tuple(range(2, len(x.shape)))
    keep = m.rng.random() < 0.5
    total = ops.sum(x, dims=dims, keepdim=keep)
    if not keep:
        total = ops.reshape(total, shape=(*x.shape[:2], *(1,) * m.spatial))
    y: Expr = x * ops.sigmoid(total * 0.1)
    return y


def _user_last(m: ConvMaker, x: Expr) -> Expr:
    """A layer that works on the channels, which the user's code has put last."""
    rank = len(x.shape)
    y = ops.permute(x, dims=(0, *range(2, rank), 1))
    y = y - ops.amax(y, dims=(rank - 1,), keepdim=True)
    return ops.permute(y, dims=(0, rank - 1, *range(1, rank - 1))) + m.like(x)


def _grouped_norm(m: ConvMaker, x: Expr) -> Expr | None:
    """Channels taken apart: a layout that does not fit."""
    if x.shape[1] % 2:
        return None
    parts = ops.reshape(x, shape=(x.shape[0], 2, x.shape[1] // 2, *x.shape[2:]))
    parts = parts - ops.sum(parts, dims=(2,), keepdim=True) * 0.25
    y: Expr = ops.reshape(parts, shape=x.shape)
    return y


def _shuffled(m: ConvMaker, x: Expr) -> Expr:
    """Positions in one dim, a step over them, and back."""
    flat = ops.reshape(x, shape=(*x.shape[:2], product(x.shape[2:])))
    y: Expr = ops.reshape(ops.tanh(flat * 0.5), shape=x.shape)
    return y


_LAYERS: tuple[Callable[[ConvMaker, Expr], Expr | None], ...] = (
    _conv, _conv, _conv, _conv, _transposed, _bias, _residual, _pointwise, _concat, _pool, _pool,
    _norm, _norm_eval, _slice, _pad, _attend, _user_last, _grouped_norm, _shuffled,
)
