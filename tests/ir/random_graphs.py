"""Random graphs over the operators that fusion handles, for differential tests."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import product
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType

_UNARY = ("neg", "abs", "relu", "tanh", "sigmoid", "square", "sin", "floor")
_BINARY = ("add", "sub", "mul", "maximum", "minimum")


class Maker:
    """Grows a graph one random operator at a time."""

    def __init__(self, seed: int, symbolic: bool = False) -> None:
        self.rng = random.Random(seed)
        self.builder = Builder()
        self.values: list[Expr] = []
        self.mutated: dict[int, int] = {}
        sizes: list[Any] = [self.rng.choice([1, 2, 3, 4, 5, 8]) for _ in range(3)]
        if symbolic:
            sizes[0] = self.builder.env.new("s0", 6)
        self.sizes = sizes
        if symbolic:
            self.values.append(self.input(dtypes.f32, (sizes[0], sizes[1])))
        for _ in range(self.rng.randint(1, 4)):
            dtype = self.rng.choices(
                [dtypes.f32, dtypes.bf16, dtypes.f64, dtypes.i64], [8, 1, 1, 1]
            )[0]
            self.values.append(self.input(dtype, self.shape()))

    def input(self, dtype: dtypes.DType, shape: tuple[Any, ...]) -> Expr:
        return Expr(self.builder, self.builder.input(TensorType(dtype, shape)))

    def shape(self) -> tuple[Any, ...]:
        rank = self.rng.choice([1, 2, 2, 3, 3])
        return tuple(self.rng.choice([*self.sizes, self.sizes[0]]) for _ in range(rank))

    def pick(self) -> Expr:
        return self.rng.choice(self.values[-8:])

    def floats(self) -> Expr:
        found = [v for v in self.values if v.dtype.is_float]
        return self.rng.choice(found[-8:]) if found else ops.cast(self.pick(), dtype=dtypes.f32)

    def grow(self, count: int) -> None:
        for _ in range(count):
            step = self.rng.choice(_STEPS)
            made = step(self)
            if made is None:
                continue
            for value in made if isinstance(made, tuple) else (made,):
                size = product(value.shape)
                if not isinstance(size, int) or size <= 4096:
                    self.values.append(value)

    def graph(self) -> Graph:
        used = self.values[len(self.builder.inputs):] or self.values
        count = min(len(used), self.rng.randint(1, 4))
        outputs = [v.node for v in self.rng.sample(used, count)]
        outputs.append(used[-1].node)
        if self.rng.random() < 0.2:
            outputs.append(self.rng.choice(self.builder.inputs))
        for i, node in enumerate(outputs):
            for j, source in enumerate(self.builder.inputs):
                free = j not in self.mutated.values() and i not in self.mutated
                if free and source.type == node.type and self.rng.random() < 0.5:
                    self.mutated[i] = j
        return self.builder.build(outputs)

    def arrays(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        result = []
        for node in self.builder.inputs:
            shape = tuple(self.builder.env.hint(s) for s in node.shape)
            if node.dtype.is_float:
                result.append(rng.uniform(-2, 2, shape).astype(node.dtype.numpy))
            else:
                result.append(rng.integers(-3, 4, shape).astype(node.dtype.numpy))
        return result


def _unary(m: Maker) -> Any:
    name = m.rng.choice(_UNARY)
    x = m.pick()
    if not x.dtype.is_float and name in ("tanh", "sigmoid", "sin"):
        name = "neg"
    return x if x.dtype is dtypes.bool_ else getattr(ops, name)(x)


def _fit(m: Maker, x: Expr, like: Expr) -> Expr:
    """x, cast and sliced or reshaped so that it broadcasts with `like`."""
    if x.dtype is not like.dtype:
        x = ops.cast(x, dtype=like.dtype)
    a, b = x.shape, like.shape
    for i, j in zip(reversed(range(len(a))), reversed(range(len(b))), strict=False):
        if a[i] != b[j] and a[i] != 1 and b[j] != 1:
            dims = (i,)
            x = ops.amax(x, dims=dims, keepdim=True)
            a = x.shape
    return x


def _binary(m: Maker) -> Any:
    like = m.pick()
    if like.dtype is dtypes.bool_:
        return ops.logical_not(like)
    x = _fit(m, m.pick(), like)
    pair = (x, like) if m.rng.random() < 0.5 else (like, x)
    if m.rng.random() < 0.15:
        return ops.where(ops.gt(*pair), *pair)
    return getattr(ops, m.rng.choice(_BINARY))(*pair)


def _scalar(m: Maker) -> Any:
    x = m.floats()
    return x * m.rng.choice([0.5, 2.0, -1.0]) + m.rng.choice([0.0, 1.0])


def _reduce(m: Maker) -> Any:
    x = m.pick()
    if x.dtype is dtypes.bool_:
        x = ops.cast(x, dtype=dtypes.f32)
    rank = len(x.shape)
    dims = tuple(sorted(m.rng.sample(range(rank), m.rng.randint(0, rank))))
    keep = m.rng.random() < 0.6
    if m.rng.random() < 0.1 and rank:
        return ops.argmax(x, dim=m.rng.randrange(rank), keepdim=keep)
    return getattr(ops, m.rng.choice(["sum", "amax", "amin"]))(x, dims=dims, keepdim=keep)


def _softmax(m: Maker) -> Any:
    x = m.floats()
    if not x.shape:
        return x
    dim = m.rng.randrange(len(x.shape))
    e = ops.exp(x - ops.amax(x, dims=(dim,), keepdim=True))
    return e / ops.sum(e, dims=(dim,), keepdim=True)


def _normalise(m: Maker) -> Any:
    x = m.floats()
    rank = len(x.shape)
    dims = tuple(sorted(m.rng.sample(range(rank), m.rng.randint(min(1, rank), rank))))
    c = x - ops.sum(x, dims=dims, keepdim=True) * 0.25
    return c * ops.rsqrt(ops.sum(c * c, dims=dims, keepdim=True) + 1.0)


def _move(m: Maker) -> Any:
    x = m.pick()
    rank, shape = len(x.shape), x.shape
    kind = m.rng.choice(["permute", "reshape", "expand", "slice", "flip", "pad", "concat"])
    if rank == 0:
        return ops.expand(x, shape=(m.sizes[0],))
    if kind == "permute":
        return ops.permute(x, dims=tuple(m.rng.sample(range(rank), rank)))
    if kind == "reshape":
        if rank > 1 and m.rng.random() < 0.6:
            return ops.reshape(x, shape=(shape[0] * shape[1], *shape[2:]))
        return ops.reshape(x, shape=(*shape[:1], 1, *shape[1:]))
    if kind == "expand":
        return ops.expand(x, shape=(m.rng.choice([2, 3]), *shape))
    if kind == "slice":
        starts = tuple(m.rng.randint(0, 1) if isinstance(s, int) and s > 1 else 0 for s in shape)
        steps = tuple(m.rng.choice([1, 1, 2]) if isinstance(s, int) else 1 for s in shape)
        return ops.slice(x, starts=starts, stops=shape, steps=steps)
    if kind == "flip":
        return ops.flip(x, dims=(m.rng.randrange(rank),))
    if kind == "pad":
        low = tuple(m.rng.randint(0, 1) for _ in shape)
        high = tuple(m.rng.randint(0, 1) for _ in shape)
        value = True if x.dtype is dtypes.bool_ else 1 if x.dtype.is_integer else 1.5
        return ops.pad(x, low=low, high=high, interior=(0,) * rank, value=value)
    return ops.concat(x, *(x for _ in range(m.rng.randint(1, 3))), dim=m.rng.randrange(rank))


def _dot(m: Maker) -> Any:
    x = m.floats()
    if not x.shape:
        return None
    last = len(x.shape) - 1
    w = m.input(x.dtype, (m.rng.choice([2, 3, 7]), x.shape[last]))
    if m.rng.random() < 0.3 and len(x.shape) > 2:
        return ops.dot_general(
            x, ops.exp(x * 0.1), batch_a=(0,), batch_b=(0,), contract_a=(last,), contract_b=(last,)
        )
    y = ops.dot_general(x, w, batch_a=(), batch_b=(), contract_a=(last,), contract_b=(1,))
    if m.rng.random() < 0.3:
        rank = len(y.shape)
        return ops.permute(y, dims=(*range(rank - 2), rank - 1, rank - 2)) if rank > 1 else y
    return y


def _create(m: Maker) -> Any:
    x = m.pick()
    if not x.shape:
        return None
    dtype = m.rng.choice([dtypes.f32, dtypes.i64])
    return ops.iota.like(x, shape=x.shape, dim=m.rng.randrange(len(x.shape)), dtype=dtype)


def _index(m: Maker) -> Any:
    x = m.pick()
    if not x.shape:
        return None
    dim = m.rng.randrange(len(x.shape))
    steps = ops.iota.like(x, shape=(m.rng.choice([2, 5]),), dim=0, dtype=dtypes.i64)
    limit = x.shape[dim]
    size = ops.full.like(x, shape=(), value=limit, dtype=dtypes.i64)
    return ops.index(x, ops.remainder(steps * 3 + 1, size), dim=dim)


def _scatter(m: Maker) -> Any:
    x = m.pick()
    if not x.shape or x.dtype is dtypes.bool_:
        return None
    ids = ops.iota.like(x, shape=(4,), dim=0, dtype=dtypes.i64)
    limit = ops.full.like(x, shape=(), value=x.shape[0], dtype=dtypes.i64)
    ids = ops.remainder(ids * 2, limit)
    accumulate = m.rng.random() < 0.7
    row = ops.amax(x, dims=(0,), keepdim=True)
    return ops.index_put(x, row, ids, dim=0, accumulate=accumulate)


def _cumulative(m: Maker) -> Any:
    x = m.pick()
    if not x.shape or x.dtype is dtypes.bool_:
        return None
    return getattr(ops, m.rng.choice(["cumsum", "cummax"]))(x, dim=m.rng.randrange(len(x.shape)))


def _pool(m: Maker) -> Any:
    x = m.floats()
    if len(x.shape) < 2 or not isinstance(x.shape[-1], int) or x.shape[-1] < 2:
        return None
    return ops.max_pool(x, window=(2,), stride=(1,), pad_low=(1,), pad_high=(0,), dilation=(1,))


def _sort(m: Maker) -> Any:
    x = m.pick()
    return ops.sort(x, dim=0, descending=False, stable=True) if x.shape else None


_STEPS = (
    _unary, _unary, _binary, _binary, _binary, _scalar, _reduce, _reduce, _softmax, _normalise,
    _move, _move, _dot, _create, _index, _scatter, _cumulative, _pool, _sort,
)


def random_graph(seed: int, size: int = 14, symbolic: bool = False) -> Maker:
    """A Maker that has grown `size` operators."""
    maker = Maker(seed, symbolic)
    maker.grow(size)
    return maker
