"""Recipes of contractions, windows, composites and control flow."""

from __future__ import annotations

import math
from typing import Any

from graphc.doubt.case import Style
from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv, Size
from graphc.ir.dtypes import FLOATS, DType
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.op import REGISTRY
from graphc.ir.types import TensorType
from tests.fuzz.maker import Maker, Refused
from tests.fuzz.recipes import NUMBERS, recipe

# --- contractions ----------------------------------------------------------------------------


@recipe("dot_general")
def _dot(m: Maker, name: str) -> Any:
    a = m.operand(NUMBERS, low=1, high=4)
    rank = len(a.shape)
    order = m.rng.sample(range(rank), rank)
    n_contract = m.rng.choice((1, 1, 1, 2, 0)) if rank > 1 else m.rng.choice((0, 1, 1))
    n_batch = m.rng.choice((0, 0, 1, 2))
    contract = order[:n_contract]
    batch = order[n_contract : n_contract + n_batch]
    roles: list[tuple[str, int]] = [("b", d) for d in batch] + [("c", d) for d in contract]
    roles += [("f", i) for i in range(m.rng.choice((0, 1, 1, 2)))]
    if m.chance(0.6):
        m.rng.shuffle(roles)
    free = [m.rng.choice((1, 2, 3, 7, *m.sizes)) for _ in range(3)]
    shape = tuple(free[i] if kind == "f" else a.shape[i] for kind, i in roles)
    if m.elements(a.shape) * m.elements(shape) > 3_000_000:
        raise Refused
    b = m.shaped(a.dtype, shape)
    place = {role: d for d, role in enumerate(roles)}
    return ops.dot_general(
        a, b, batch_a=tuple(batch), batch_b=tuple(place["b", d] for d in batch),
        contract_a=tuple(contract), contract_b=tuple(place["c", d] for d in contract),
    )


def _window(m: Maker, spatial: int, most: int = 3) -> dict[str, Any]:
    def each(*choices: int) -> tuple[int, ...]:
        return tuple(m.rng.choice(choices) for _ in range(spatial))

    return {
        "stride": each(1, 1, 2, 3), "pad_low": each(0, 1, 2), "pad_high": each(0, 1, 2),
        "dilation": each(1, 1, 2),
    }


def _conv_operands(m: Maker) -> tuple[DType, tuple[Size, ...], tuple[Size, ...], dict[str, Any]]:
    """A dtype, shapes of x and w, and attributes that fit."""
    spatial = m.rng.choice((1, 2, 2, 3))
    groups = m.rng.choice((1, 1, 1, 2, 3))
    channels, out = groups * m.rng.choice((1, 2, 3)), groups * m.rng.choice((1, 2, 5))
    plane = tuple(m.rng.randint(1, 9 if spatial < 3 else 5) for _ in range(spatial))
    if m.traits.big and spatial < 3:
        plane = (*plane[:-1], m.rng.randint(10, 40))
    batch = m.rng.choice(m.sizes) if m.chance(0.5) else m.rng.choice((1, 2, 3))
    if m.hint(batch) > 40:
        batch = 2
    attrs = _window(m, spatial)
    window = tuple(
        m.rng.randint(1, max(1, min(4, (n + low + high - 1) // d + 1)))
        for n, low, high, d in zip(
            plane, attrs["pad_low"], attrs["pad_high"], attrs["dilation"], strict=True
        )
    )
    dtype = m.dtype(FLOATS)
    attrs["groups"] = groups
    return dtype, (batch, channels, *plane), (out, channels // groups, *window), attrs


@recipe("conv")
def _conv(m: Maker, name: str) -> Any:
    dtype, x, w, attrs = _conv_operands(m)
    return ops.conv(m.shaped(dtype, x, _finite(m)), m.shaped(dtype, w, _finite(m)), **attrs)


@recipe("conv_last")
def _conv_last(m: Maker, name: str) -> Any:
    dtype, x, w, attrs = _conv_operands(m)
    (outputs, channels, *window), columns = w, m.rng.choice((1, 4, 16))
    group = m.rng.choice((1, 2)) if channels % 2 == 0 else 1  # type: ignore[operator]
    panels = -(-outputs // columns)  # type: ignore[operator]
    image = m.shaped(dtype, (x[0], *x[2:], x[1]), _finite(m))
    words = channels // group  # type: ignore[operator]
    weight = m.shaped(dtype, (panels, *window, words, columns * group), _finite(m))
    return ops.conv_last(image, weight, outputs=outputs, group=group, **attrs)


@recipe("conv_input_grad", "conv_weight_grad")
def _conv_grad(m: Maker, name: str) -> Any:
    dtype, x, w, attrs = _conv_operands(m)
    types = (TensorType(dtype, x), TensorType(dtype, w))
    result = REGISTRY["conv"].infer(types, attrs, m.builder.env)
    g = m.shaped(dtype, result.shape, _finite(m))  # type: ignore[union-attr]
    if name == "conv_input_grad":
        return ops.conv_input_grad(g, m.shaped(dtype, w, _finite(m)), input_shape=x, **attrs)
    return ops.conv_weight_grad(m.shaped(dtype, x, _finite(m)), g, weight_shape=w, **attrs)


@recipe("winograd_input", "winograd_filter", "winograd_output")
def _winograd(m: Maker, name: str) -> Any:
    dtype, tile, window = m.dtype(FLOATS), m.rng.choice((2, 4)), m.rng.choice((3, 5))
    size, channels = tile + window - 1, m.rng.choice((1, 2, 5, 17))
    if name == "winograd_filter":
        weight = m.shaped(dtype, (m.rng.choice((1, 3, 8)), channels, window, window), _finite(m))
        attrs = {"flip": m.chance(0.5), "columns": m.rng.choice((1, 4, 16))}
        return ops.winograd_filter(weight, tile=tile, **attrs)
    output = (m.rng.randint(1, 9), m.rng.randint(1, 9))
    batch = m.rng.choice((1, 2, *m.sizes))
    if m.hint(batch) > 20:
        batch = 2
    if name == "winograd_input":
        low = (m.rng.randint(0, window - 1), m.rng.randint(0, window - 1))
        image = m.shaped(
            dtype, (batch, m.rng.randint(1, 9), m.rng.randint(1, 9), channels), _finite(m)
        )
        return ops.winograd_input(image, tile=tile, window=window, pad_low=low, output=output)
    tiles = [-(-n // tile) for n in output]
    places = m.shaped(dtype, (size * size, batch, *tiles, channels), _finite(m))
    return ops.winograd_output(places, tile=tile, window=window, output=output)


def _finite(m: Maker) -> Style | None:
    """Whether padding meets an infinity, and makes NaN of it, is an engine's own choice."""
    return Style() if m.traits.special else None


# --- windows ---------------------------------------------------------------------------------


def _pooled(m: Maker, name: str) -> tuple[Expr, dict[str, Any]]:
    x = m.operand(NUMBERS, low=1)
    spatial = m.rng.randint(1, min(3, len(x.shape)))
    while not all(isinstance(n, int) for n in x.shape[-spatial:]):
        spatial -= 1
        if not spatial:
            raise Refused
    attrs = _window(m, spatial)
    window, lows, highs = [], [], []
    for n, low, high, d in zip(
        x.shape[-spatial:], attrs["pad_low"], attrs["pad_high"], attrs["dilation"], strict=True
    ):
        k = m.rng.randint(1, 3)
        reach = (k - 1) * d
        low, high = min(low, (reach + 1) // 2), min(high, reach)
        if int(n) < d:  # else a window's taps may all be padding
            low = high = 0
        if int(n) + low + high < reach + 1:  # type: ignore[call-overload]
            k, low, high = 1, 0, 0
        window.append(k)
        lows.append(low)
        highs.append(high)
    attrs |= {"window": tuple(window), "pad_low": tuple(lows), "pad_high": tuple(highs)}
    if m.chance(0.2) and all(int(n) >= k for n, k in zip(x.shape[-spatial:], window, strict=True)):  # type: ignore[call-overload]
        none = (0,) * spatial
        attrs |= {"stride": tuple(window), "pad_low": none, "pad_high": none,
                  "dilation": (1,) * spatial}
    return x, attrs


@recipe("max_pool", "window_sum")
def _pool(m: Maker, name: str) -> Any:
    x, attrs = _pooled(m, name)
    return REGISTRY[name](x, **attrs)


@recipe("max_pool_grad")
def _unpool(m: Maker, name: str) -> Any:
    x, attrs = _pooled(m, name)
    y, where = ops.max_pool(x, **attrs)
    spatial = len(attrs["window"])
    plane = x.shape[-spatial:]
    if m.chance(0.3):
        limit: Size = 1
        for n in plane:
            limit = limit * n
        where = m.indices(limit, y.shape)
    g = y if m.chance(0.4) else m.shaped(m.dtype(NUMBERS), y.shape)
    return ops.max_pool_grad(g, where, plane_shape=plane)


# --- composites ------------------------------------------------------------------------------


@recipe("softmax", "log_softmax")
def _softmax(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=1)
    return REGISTRY[name](x, dim=m.rng.randrange(len(x.shape)))


@recipe("logsumexp")
def _logsumexp(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=1)
    return ops.logsumexp(x, dim=m.rng.randrange(len(x.shape)), keepdim=m.chance(0.5))


@recipe("gelu", "silu", "softplus")
def _activation(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS)
    if name == "gelu":
        return ops.gelu(x, approximate=m.rng.choice(("none", "tanh")))
    if name == "softplus":
        return ops.softplus(x, beta=m.rng.choice((1.0, 2.0)), threshold=m.rng.choice((20.0, 1.5)))
    return ops.silu(x)


@recipe("layer_norm")
def _layer_norm(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=1)
    rank = len(x.shape)
    count = m.rng.randint(1, min(2, rank))
    inner = x.shape[rank - count :]
    parameters = [m.shaped(x.dtype, inner) for _ in range(m.rng.randint(0, 2))]
    eps = m.rng.choice((1e-5, 1e-2))
    return ops.layer_norm(x, *parameters, normalized_dims=tuple(range(rank - count, rank)), eps=eps)


@recipe("batch_norm")
def _batch_norm(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=2)
    if m.elements((x.shape[0], *x.shape[2:])) < 2:
        raise Refused
    parameters = [m.shaped(x.dtype, x.shape[1:2]) for _ in range(m.rng.choice((0, 2)))]
    return ops.batch_norm(x, *parameters, eps=m.rng.choice((1e-5, 1e-2)))


@recipe("partial")
def _partial(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=2)
    return ops.partial(x, rows=m.rng.randint(1, 9), kind=m.rng.choice(("sum", "mean", "squares")))


@recipe("cross_entropy", "nll_loss")
def _loss(m: Maker, name: str) -> Any:
    x = m.operand(FLOATS, low=1, high=4)
    dim = 0 if len(x.shape) == 1 else 1
    classes = x.shape[dim]
    target = m.indices(classes, x.shape[:dim] + x.shape[dim + 1 :])
    parts = [x, target]
    if m.chance(0.3) and isinstance(classes, int):
        weights = [m.rng.choice((0.5, 1.0, 2.0)) for _ in range(classes)]
        parts.append(Expr(m.builder, m.builder.const(weights, x.dtype)))
    attrs: dict[str, Any] = {
        "ignore_index": m.rng.choice((-100, 0)), "reduction": m.rng.choice(("mean", "sum", "none")),
    }
    if name == "cross_entropy":
        attrs["label_smoothing"] = m.rng.choice((0.0, 0.1))
    return REGISTRY[name](*parts, **attrs)


@recipe("attention", "attention_grad")
def _attention(m: Maker, name: str) -> Any:
    q = m.operand(FLOATS, low=2, high=4)
    lead, rows, width = q.shape[:-2], q.shape[-2], q.shape[-1]
    keys = rows if m.chance(0.5) else m.rng.choice((1, 3, 6))
    if m.elements((*lead, rows, keys)) > m.limit:
        raise Refused
    k = m.shaped(q.dtype, (*lead, keys, width))
    v = m.shaped(q.dtype, (*lead, keys, m.rng.choice((1, 4, width))))
    masks = []
    kind = m.rng.choice(("none", "none", "bool", "float"))
    if kind == "bool":
        masks.append(m.shaped(dtypes.bool_, (rows, keys)))
    elif kind == "float":
        shape = m.rng.choice(((rows, keys), (1, keys), (*lead, rows, keys)))
        masks.append(m.shaped(q.dtype, shape))
    attrs = {"causal": m.chance(0.4), "scale": 1 / math.sqrt(max(1, m.hint(width)))}
    if m.chance(0.3):
        masks.append(m.shaped(dtypes.bool_, (*lead, rows, keys)))
        attrs["dropout"] = 0.5
    out, lse = ops.attention(q, k, v, *masks, **attrs)
    if name == "attention":
        return out, lse
    slope = m.shaped(lse.type.dtype, lse.type.shape)
    g = m.shaped(q.dtype, out.type.shape)
    return ops.attention_grad(q, k, v, g, lse, slope, *masks, **attrs)


# --- control flow ----------------------------------------------------------------------------


def _body(m: Maker, types: list[TensorType], make: Any) -> Graph:
    builder = Builder(m.builder.env)
    values = [Expr(builder, builder.input(t)) for t in types]
    return builder.build([x.node for x in make(*values)], "body")


def _step(m: Maker, x: Expr, y: Expr) -> Expr:
    """A small function of two values of one type."""
    choice = m.rng.randrange(4)
    if choice == 0:
        return ops.maximum(x, y)
    if choice == 1:
        return ops.sub(x, y)
    if choice == 2 and x.shape:
        return ops.add(x, ops.flip(y, dims=(0,)))
    return ops.where(ops.lt(x, y), ops.add(x, y), y)


@recipe("cond")
def _cond(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS)
    y = m.shaped(x.dtype, x.shape)
    kinds = [x.type, y.type]
    graphs = (
        _body(m, kinds, lambda a, b: (_step(m, a, b), a)),
        _body(m, kinds, lambda a, b: (b, _step(m, b, a))),
    )
    found = [v for v in m.values if v.type == TensorType(dtypes.bool_, ())]
    predicate = m.rng.choice(found) if found else m.shaped(dtypes.bool_, ())
    return _control(m, "cond", (predicate, x, y), graphs)


@recipe("while_loop")
def _while(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS)
    count = m.fresh(dtypes.i64, (), Style("uniform", 0, 6), keep=False)
    kinds = [count.type, x.type]
    graphs = (
        _body(m, kinds, lambda i, a: (ops.lt(i, 4),)),
        _body(m, kinds, lambda i, a: (ops.add(i, 1), _step(m, a, ops.minimum(a, a)))),
    )
    return _control(m, "while_loop", (count, x), graphs)


@recipe("unwind")
def _unwind(m: Maker, name: str) -> Any:
    x = m.operand(NUMBERS)
    slope = m.shaped(x.dtype, x.shape)
    count = m.fresh(dtypes.i64, (), Style("uniform", 0, 6), keep=False)
    kinds = [count.type, x.type]
    graphs = (
        _body(m, kinds, lambda i, a: (ops.lt(i, 4),)),
        _body(m, kinds, lambda i, a: (ops.add(i, 1), _step(m, a, ops.minimum(a, a)))),
        _body(m, [x.type, *kinds], lambda g, i, a: (_step(m, g, a),)),
    )
    attrs = {"n_state": 2, "most": m.rng.choice([1, 2, 8])}
    return _control(m, "unwind", (count, x, slope), graphs, **attrs)


@recipe("scan")
def _scan(m: Maker, name: str) -> Any:
    xs = m.operand(NUMBERS, low=1, high=3)
    if m.hint(xs.shape[0]) > 70:
        raise Refused
    row = TensorType(xs.dtype, xs.shape[1:])
    carried = m.shaped(xs.dtype, xs.shape[1:])
    graphs = (_body(m, [row, row], lambda c, x: (_step(m, c, x), ops.minimum(c, x))),)
    reverse = m.rng.random() < 0.5
    return _control(m, "scan", (carried, xs), graphs, n_carried=1, reverse=reverse)


def _control(
    m: Maker, name: str, inputs: tuple[Expr, ...], graphs: tuple[Graph, ...], **attrs: Any
) -> Any:
    node = m.builder.emit(REGISTRY[name], *(x.node for x in inputs), graphs=graphs, **attrs)
    results = tuple(Expr(m.builder, r) for r in m.builder.results(node))
    return results[0] if len(results) == 1 else results


__all__ = ["DimEnv"]
