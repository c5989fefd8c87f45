"""One recipe per operator: picks operands and attributes that suit it, and applies it.

Recipes of structured operators are in recipes_model.py. An operator without a recipe needs a
reason in OPTED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.doubt.case import Style
from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv, Size, product
from graphc.ir.dtypes import FLOATS, INTEGERS, DType
from graphc.ir.graph import Expr
from graphc.ir.op import REGISTRY, Op, OpError
from graphc.ir.types import TensorType
from tests.fuzz.maker import Maker, Refused, is_symbolic

Recipe = Callable[[Maker], Any]
RECIPES: dict[str, Recipe] = {}
NUMBERS = (*INTEGERS, *FLOATS)

OPTED_OUT = {
    "input": "every graph has inputs; the maker adds them",
    "get": "taken from every operator with several results",
    "fusion": "made by passes/fuse/ alone, in every graph compiled here",
}


def recipe(*names: str) -> Callable[[Callable[[Maker, str], Any]], Callable[[Maker, str], Any]]:
    """Register a function as the recipe of some operators."""

    def register(function: Callable[[Maker, str], Any]) -> Callable[[Maker, str], Any]:
        for name in names:
            assert name in REGISTRY and name not in RECIPES, name
            RECIPES[name] = lambda m, name=name: function(m, name)
        return function

    return register


# --- elementwise -----------------------------------------------------------------------------


def _allowed(op: Op) -> frozenset[DType]:
    """The dtypes an elementwise operator takes, asked of its type rule."""
    found = set()
    for dtype in dtypes.ALL:
        types = (TensorType(dtype, ()),) * (op.arity or 1)
        if op.name == "where":
            types = (TensorType(dtypes.bool_, ()), *types[1:])
        try:
            op.infer(types, {}, DimEnv())
        except OpError:
            continue
        found.add(dtype)
    return frozenset(found)


_DOMAIN = {  # where the operator is defined; others take anything
    "log": (0.1, 1e4), "log2": (0.1, 1e4), "log10": (0.1, 1e4), "log1p": (-0.9, 1e4),
    "sqrt": (0.05, 1e6), "rsqrt": (0.1, 1e4), "asin": (-0.95, 0.95), "acos": (-0.95, 0.95),
    "atanh": (-0.95, 0.95), "acosh": (1.1, 1e3), "erfinv": (-0.95, 0.95), "exp": (-20.0, 8.0),
    "exp2": (-20.0, 10.0), "expm1": (-20.0, 8.0), "sinh": (-8.0, 8.0), "cosh": (-8.0, 8.0),
    "tan": (-1.4, 1.4), "lgamma": (0.2, 50.0), "digamma": (0.2, 50.0), "reciprocal": (0.1, 1e4),
    "square": (-50.0, 50.0),
}


def _unary(m: Maker, name: str) -> Any:
    op = REGISTRY[name]
    x = m.operand(_ALLOWED[name])
    if name in _DOMAIN:
        x = m.tame(x, *_DOMAIN[name])
    return op(x)


def _binary(m: Maker, name: str) -> Any:
    op = REGISTRY[name]
    x = m.operand(_ALLOWED[name])
    y = m.partner(x)
    if name == "pow":
        x, y = _powers(m, x, y)
    elif op.divides and x.dtype.kind == "int" and m.chance(0.1):
        x = m.fresh(x.dtype, x.shape, Style("extreme"), keep=False)
        return op(x, m.fresh(x.dtype, y.shape, Style("uniform", -1, -1), keep=False))
    elif op.divides or name == "div":
        return op(x, _divisor(m, x, y))
    elif name == "copysign":
        return op(x, ops.where(ops.ne(y, y), 1.0, y))  # a computed NaN may have either sign
    elif name.startswith("shift"):
        bits = x.dtype.bits
        ends = m.rng.choice(((-2, 3), (bits - 2, bits + 1), (-1, bits + 1)))
        y = m.shaped(x.dtype, y.shape, Style("uniform", *ends))
    return op(x, y) if m.chance(0.5) or name.startswith("shift") or name == "pow" else op(y, x)


def _powers(m: Maker, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    if x.dtype.is_float:
        if m.chance(0.3):
            y = Expr(m.builder, m.builder.const(m.rng.choice((2, 3, 0.5, -1, 0)), x.dtype))
        return m.tame(x, 0.1, 4.0), m.tame(y, -3.0, 3.0)
    low = -2 if x.dtype.is_signed else 0
    return x, m.shaped(x.dtype, y.shape, Style("uniform", low, 4))


def _divisor(m: Maker, x: Expr, y: Expr) -> Expr:
    """y without zeros, unless the graph may fail."""
    if x.dtype.is_float:
        return m.tame(y, 0.3, 1e4) if m.chance(0.8) else y
    if m.traits.failing and m.chance(0.6):
        return y
    if np.all(m.array(y)) and m.chance(0.3):
        return y
    if m.chance(0.5):
        return ops.where(ops.eq(y, 0), m.rng.choice((1, 2, 3)), y)
    low = -3 if x.dtype.is_signed and m.chance(0.5) else 1
    divisor = m.fresh(x.dtype, y.shape, Style("uniform", low, -1 if low < 0 else 5), keep=False)
    return divisor


for _name, _op in list(REGISTRY.items()):
    if _op.family == "unary":
        recipe(_name)(_unary)
    elif _op.family in ("binary", "compare"):
        recipe(_name)(_binary)
_ALLOWED = {n: _allowed(op) for n, op in REGISTRY.items() if op.elementwise and n != "cast"}


@recipe("where")
def _where(m: Maker, name: str) -> Any:
    x = m.operand()
    condition = m.operand((dtypes.bool_,)) if m.chance(0.5) else ops.lt(x, m.partner(x))
    if not _compatible(condition, x):
        condition = ops.ge(x, m.partner(x))
    return ops.where(condition, x, m.partner(x, grow=False))


def _compatible(a: Expr, b: Expr) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(x == y or x == 1 or y == 1 for x, y in pairs)


@recipe("clamp")
def _clamp(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS)
    low, high = m.partner(x, grow=False), m.partner(x, grow=False)
    if m.chance(0.6) or low.node is high.node:
        values = sorted(m.rng.sample(range(-2, 4) if x.dtype.is_signed else range(5), 2))
        low, high = (Expr(m.builder, m.builder.const(v, x.dtype)) for v in values)
    return ops.clamp(x, low, high)


@recipe("cast")
def _cast(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS) if m.traits.gradient else m.operand()
    others = [d for d in (dtypes.FLOATS if m.traits.gradient else dtypes.ALL) if d is not x.dtype]
    return ops.cast(x, dtype=m.dtype(others) if m.chance(0.5) else m.rng.choice(others))


# --- reductions, cumulative, sorting ---------------------------------------------------------


def _dims(m: Maker, x: Expr, least: int = 0) -> tuple[int, ...]:
    rank = len(x.shape)
    count = m.rng.randint(min(least, rank), rank)
    if m.chance(0.5):
        count = min(rank, 1)
    return tuple(sorted(m.rng.sample(range(rank), count)))


@recipe("sum", "prod", "amax", "amin")
def _reduce(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS)
    if name == "prod":
        x = m.tame(x, -2.0, 2.0)
    return REGISTRY[name](x, dims=_dims(m, x), keepdim=m.chance(0.5))


@recipe("any", "all")
def _logical(m: Maker, name: str) -> Any:
    x = m.operand() if m.chance(0.5) else m.operand((dtypes.bool_,))
    if x.dtype is not dtypes.bool_:
        x = ops.gt(x, m.partner(x, grow=False))
    return REGISTRY[name](x, dims=_dims(m, x), keepdim=m.chance(0.5))


@recipe("argmax", "argmin")
def _arg(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS, low=1)
    return REGISTRY[name](x, dim=m.rng.randrange(len(x.shape)), keepdim=m.chance(0.5))


@recipe("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS, low=1)
    if name == "cumprod":
        x = m.tame(x, -1.5, 1.5)
    return REGISTRY[name](x, dim=m.rng.randrange(len(x.shape)))


@recipe("sort")
def _sort(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    dim = m.rng.randrange(len(x.shape))
    return ops.sort(x, dim=dim, descending=m.chance(0.5), stable=True)


@recipe("topk")
def _topk(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    dim = m.rng.randrange(len(x.shape))
    size = x.shape[dim]
    k = m.rng.randint(0, min(size, 6)) if isinstance(size, int) else m.rng.choice((1, 2, size))
    return ops.topk(x, k=k, dim=dim, largest=m.chance(0.5))


# --- movement --------------------------------------------------------------------------------


@recipe("reshape")
def _reshape(m: Maker, name: str) -> Any:
    x = m.operand()
    shape = list(x.shape)
    for _ in range(m.rng.randint(1, 3)):
        kind = m.rng.choice(("merge", "split", "one", "drop"))
        at = m.rng.randrange(len(shape) + 1)
        if kind == "merge" and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split" and at < len(shape) and isinstance(shape[at], int):
            factors = [f for f in (2, 3, 4, 5, 7) if shape[at] and shape[at] % f == 0]
            if factors:
                f = m.rng.choice(factors)
                shape[at : at + 1] = [f, shape[at] // f] if m.chance(0.5) else [shape[at] // f, f]
        elif kind == "one" and len(shape) < 5:
            shape.insert(at, 1)
        elif kind == "drop" and 1 in shape:
            shape.remove(1)
    return ops.reshape(x, shape=tuple(shape))


@recipe("permute")
def _permute(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    rank = len(x.shape)
    return ops.permute(x, dims=tuple(m.rng.sample(range(rank), rank)))


@recipe("expand")
def _expand(m: Maker, name: str) -> Any:
    x = m.operand()
    shape = [m.rng.choice(m.sizes) if n == 1 else n for n in x.shape]
    if len(shape) < 4 and m.chance(0.6):
        shape.insert(0, m.rng.choice((1, 2, 3, *m.sizes)))
    return ops.expand(x, shape=tuple(shape))


def _region(m: Maker, shape: tuple[Size, ...]) -> dict[str, Any]:
    """Starts, stops and steps inside a shape."""
    starts, stops, steps = [], [], []
    for size in shape:
        if isinstance(size, int):
            start = m.rng.randint(0, size) if m.chance(0.5) else 0
            stop = m.rng.randint(start, size) if m.chance(0.5) else size
            if start == stop and m.chance(0.8):
                start, stop = 0, size
            step = m.rng.choice((1, 1, 1, 2, 3))
        else:
            start = m.rng.choice((0, 0, 1))
            stop = m.rng.choice((size, size, size - 1 if start == 0 else size))
            step = m.rng.choice((1, 1, 1, 2))
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


@recipe("slice")
def _slice(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    return ops.slice(x, **_region(m, x.shape))


@recipe("slice_update")
def _slice_update(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    region = _region(m, x.shape)
    return ops.slice_update(x, m.shaped(x.dtype, ops.slice(x, **region).shape), **region)


def _strides(m: Maker, x: Expr, overlap: bool) -> dict[str, Any]:
    total = m.elements(x.shape)
    if not total:
        raise Refused
    offset = m.rng.randrange(min(total, 4))
    room, size, stride = total - 1 - offset, [], []
    least = 1
    for _ in range(m.rng.randint(0, 3)):
        step = m.rng.randint(0 if overlap else least, max(least, 4) if overlap else least + 2)
        n = m.rng.randint(1, 5)
        while n > 1 and (n - 1) * step > room:
            n -= 1
        room -= (n - 1) * step
        least = max(least, least + (n - 1) * step)
        size.insert(0, n)
        stride.insert(0, step)
    return {"size": tuple(size), "stride": tuple(stride), "offset": offset}


@recipe("as_strided")
def _as_strided(m: Maker, name: str) -> Any:
    x = m.operand(low=1, test=m.static)
    return ops.as_strided(x, **_strides(m, x, overlap=True))


@recipe("as_strided_update")
def _as_strided_update(m: Maker, name: str) -> Any:
    x = m.operand(low=1, test=m.static)
    region = _strides(m, x, overlap=False)
    return ops.as_strided_update(x, m.shaped(x.dtype, region["size"]), **region)


@recipe("flip")
def _flip(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    return ops.flip(x, dims=_dims(m, x, least=1))


@recipe("pad")
def _pad(m: Maker, name: str) -> Any:
    x = m.operand()
    low, high = ([m.rng.choice((0, 0, 1, 2)) for _ in x.shape] for _ in range(2))
    interior = [m.rng.choice((0, 0, 0, 1, 2)) if isinstance(n, int) else 0 for n in x.shape]
    value: Any = m.rng.choice((0, 0, 1, 3))
    if x.dtype.is_float:
        value = m.rng.choice((0.0, 0.0, 1.5, -1.0))
    elif x.dtype is dtypes.bool_:
        value = bool(value)
    return ops.pad(x, low=tuple(low), high=tuple(high), interior=tuple(interior), value=value)


@recipe("concat")
def _concat(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    dim = m.rng.randrange(len(x.shape))
    parts = [x]
    for _ in range(m.rng.randint(0, 3)):
        others = [i for i in range(len(x.shape)) if i != dim]
        fit = [
            y for y in m.values if y.dtype is x.dtype and len(y.shape) == len(x.shape)
            and all(x.shape[i] == y.shape[i] for i in others)
        ]
        if m.chance(0.7):
            parts.append(m.rng.choice(fit))
        else:
            n = m.rng.choice((0, 1, 2, 3)) if m.chance(0.3) else x.shape[dim]
            parts.append(m.shaped(x.dtype, (*x.shape[:dim], n, *x.shape[dim + 1 :])))
    m.rng.shuffle(parts)
    return ops.concat(*parts, dim=dim)


# --- indexing --------------------------------------------------------------------------------


def _index_shape(m: Maker, x: Expr, dim: int) -> tuple[Size, ...]:
    """A shape of indices for gather and scatter."""
    shape = list(x.shape)
    for d, n in enumerate(shape):
        if d == dim:
            shape[d] = m.rng.choice((1, 2, 3, 5, n))
        elif isinstance(n, int) and n > 1 and m.chance(0.2):
            shape[d] = m.rng.randint(1, n)
    return tuple(shape)


@recipe("gather")
def _gather(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    dim = m.rng.randrange(len(x.shape))
    return ops.gather(x, m.indices(x.shape[dim], _index_shape(m, x, dim)), dim=dim)


@recipe("scatter")
def _scatter(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    reduce = m.rng.choice(("", "add", "add", "mul", "amax", "amin"))
    if x.dtype is dtypes.bool_:
        reduce = ""
    dim = m.rng.randrange(len(x.shape))
    shape = _index_shape(m, x, dim)
    if m.traits.gradient and not reduce:  # writing twice to one place has no gradient
        dim = len(shape) - 1
        if m.hint(shape[dim]) > m.hint(x.shape[dim]):
            raise Refused
        index = m.fresh(dtypes.i64, shape, Style("distinct", limit=x.shape[dim]), keep=False)
    else:
        index = m.indices(x.shape[dim], shape)
    return ops.scatter(x, index, m.shaped(x.dtype, shape), dim=dim, reduce=reduce)


def _positions(m: Maker, x: Expr) -> tuple[int, list[Expr]]:
    """A first dim and some index tensors for it and those behind it."""
    count = m.rng.choice((1, 1, 1, 2))
    count = min(count, len(x.shape))
    dim = m.rng.randint(0, len(x.shape) - count)
    shape = m.rng.choice(((), (1,), (3,), (5,), (2, 2), (m.rng.choice(m.sizes),)))
    indices = [m.indices(x.shape[dim], shape, wrap=True)]
    if count == 2:
        other = m.rng.choice((shape, (), shape[-1:], (2, *(1 for _ in shape))))
        indices.append(m.indices(x.shape[dim + 1], other, wrap=True))
    return dim, indices


@recipe("index")
def _index(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    dim, indices = _positions(m, x)
    return ops.index(x, *indices, dim=dim)


@recipe("index_put")
def _index_put(m: Maker, name: str) -> Any:
    x = m.operand(low=1)
    accumulate = x.dtype is not dtypes.bool_ and m.chance(0.6)
    if m.traits.gradient and not accumulate:
        size = x.shape[0]
        if not m.hint(size):
            raise Refused
        n = m.rng.randint(1, min(4, m.hint(size)))
        dim = 0
        indices = [m.fresh(dtypes.i64, (n,), Style("distinct", limit=size), keep=False)]
    else:
        dim, indices = _positions(m, x)
    shape = ops.index(x, *indices, dim=dim).shape
    cut = m.rng.choice((0, 0, len(shape), m.rng.randint(0, len(shape))))
    source = tuple(1 if m.chance(0.15) else n for n in shape[cut:])
    return ops.index_put(
        x, m.shaped(x.dtype, source), *indices, dim=dim, accumulate=accumulate
    )


# --- creation and random draws ---------------------------------------------------------------


@recipe("full")
def _full(m: Maker, name: str) -> Any:
    like = m.operand()
    dtype = m.dtype()
    value: Any = m.rng.choice((0, 1, 2, 3))
    if dtype is dtypes.bool_:
        value = bool(value % 2)
    elif dtype.is_float:
        value = m.rng.choice((0.0, 0.5, 1.0, -1.25))
    if dtype in (dtypes.i64, dtypes.f32, dtypes.f64) and m.chance(0.3):
        value = product(like.shape) if like.shape else m.rng.choice(m.sizes)
        value = float(value) if dtype.is_float and not is_symbolic(value) else value
    return ops.full.like(like, shape=m.shape(), value=value, dtype=dtype)


@recipe("iota")
def _iota(m: Maker, name: str) -> Any:
    like = m.operand()
    shape = m.shape(low=1)
    dim = m.rng.randrange(len(shape))
    dtype = m.dtype(NUMBERS)
    if m.hint(shape[dim]) > 100:
        dtype = m.dtype((dtypes.i32, dtypes.i64, dtypes.f32, dtypes.f64))
    return ops.iota.like(like, shape=shape, dim=dim, dtype=dtype)


@recipe("const")
def _const(m: Maker, name: str) -> Any:
    dtype = m.dtype()
    shape = m.rng.choice(((), (3,), tuple(n for n in m.shape() if isinstance(n, int))))
    array = np.random.default_rng(m.rng.randrange(1 << 30)).integers(-3, 4, shape)
    if dtype.kind == "uint":
        array = np.abs(array)
    return Expr(m.builder, m.builder.const(array, dtype))


@recipe("rng_uniform", "rng_normal", "rng_exponential", "rng_bernoulli", "rng_randint")
def _random(m: Maker, name: str) -> Any:
    attrs: dict[str, Any] = {"shape": m.shape()}
    if name == "rng_bernoulli":
        attrs |= {"p": m.rng.choice((0.0, 0.3, 1.0)), "dtype": m.dtype()}
    elif name == "rng_randint":
        attrs |= {"low": m.rng.choice((0, 2)), "high": m.rng.choice((3, 90))}
        attrs["dtype"] = m.dtype(NUMBERS)
    else:
        attrs["dtype"] = m.dtype(FLOATS)
    return REGISTRY[name](m.state(), **attrs)


@recipe("rng_permutation")
def _permutation(m: Maker, name: str) -> Any:
    return ops.rng_permutation(m.state(), n=m.rng.choice((0, 1, 5, *m.sizes)))
