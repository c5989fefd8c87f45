"""Test records of contractions, windows, composites and control flow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType
from tests.opinfo_core import FLOATS, NUMBERS, RNG, Sample, distinct, draw, record, torch

functional = torch.nn.functional

Shape = tuple[int, ...]

# --- contractions ----------------------------------------------------------------------------


def _dims(batch_a: Shape, batch_b: Shape, contract_a: Shape, contract_b: Shape) -> dict[str, Any]:
    return {
        "batch_a": batch_a,
        "batch_b": batch_b,
        "contract_a": contract_a,
        "contract_b": contract_b,
    }


def dot_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for a, b, dims in (
        ((3, 4), (4, 5), _dims((), (), (1,), (0,))),
        ((4, 3), (5, 4), _dims((), (), (0,), (1,))),
        ((4,), (4,), _dims((), (), (0,), (0,))),
        ((3, 4), (4,), _dims((), (), (1,), (0,))),
        ((2, 3, 4), (2, 4, 5), _dims((0,), (0,), (2,), (1,))),
        ((3, 2, 4), (5, 4, 2), _dims((1,), (2,), (2,), (1,))),
        ((2, 3, 4, 5), (3, 5, 4, 6), _dims((1,), (0,), (2, 3), (2, 1))),
        ((3,), (2,), _dims((), (), (), ())),
        ((2, 3), (2, 3), _dims((0, 1), (0, 1), (), ())),
        ((0, 4), (4, 5), _dims((), (), (1,), (0,))),
        ((3, 0), (0, 5), _dims((), (), (1,), (0,))),
        ((33, 70), (70, 18), _dims((), (), (1,), (0,))),
    ):
        yield Sample((draw(rng, dtype, a, -2, 3), draw(rng, dtype, b, -2, 3)), dims)


def _dot_general(
    a: Any, b: Any, *, batch_a: Shape, batch_b: Shape, contract_a: Shape, contract_b: Shape
) -> Any:
    letters = iter("abcdefghijklmnop")
    names_a, names_b = [""] * a.dim(), [""] * b.dim()
    shared = [(i, j) for i, j in zip(batch_a + contract_a, batch_b + contract_b, strict=True)]
    for i, j in shared:
        names_a[i] = names_b[j] = next(letters)
    free_a = [i for i, name in enumerate(names_a) if not name]
    free_b = [j for j, name in enumerate(names_b) if not name]
    for i in free_a:
        names_a[i] = next(letters)
    for j in free_b:
        names_b[j] = next(letters)
    out = [names_a[i] for i in batch_a] + [names_a[i] for i in free_a]
    out += [names_b[j] for j in free_b]
    return torch.einsum(f"{''.join(names_a)},{''.join(names_b)}->{''.join(out)}", a, b)


record("dot_general", dot_samples, _dot_general, NUMBERS, tolerance=64.0)


def _window(
    stride: Shape, pad: tuple[Shape, Shape], dilation: Shape, groups: int = 1
) -> dict[str, Any]:
    return {
        "stride": stride,
        "pad_low": pad[0],
        "pad_high": pad[1],
        "dilation": dilation,
        "groups": groups,
    }


_CONVS: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
    ((2, 3, 8), (4, 3, 3), _window((1,), ((0,), (0,)), (1,))),
    ((2, 4, 9), (6, 2, 3), _window((2,), ((1,), (2,)), (2,), 2)),
    ((2, 3, 6, 7), (4, 3, 3, 3), _window((1, 1), ((1, 1), (1, 1)), (1, 1))),
    ((1, 2, 7, 6), (2, 2, 3, 2), _window((2, 3), ((0, 1), (1, 0)), (1, 2))),
    ((2, 4, 5, 5), (4, 1, 3, 3), _window((1, 1), ((1, 1), (1, 1)), (1, 1), 4)),
    ((1, 2, 5, 5), (3, 2, 1, 1), _window((2, 2), ((0, 0), (0, 0)), (1, 1))),
    ((1, 2, 4, 4, 5), (2, 2, 2, 2, 3), _window((1, 2, 1), ((0, 1, 0), (1, 0, 1)), (1, 1, 1))),
)


def _padded(x: Any, low: Shape, high: Shape, value: float = 0.0) -> Any:
    amounts = [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair]
    return functional.pad(x, amounts, value=value)


def _conv(x: Any, w: Any, *, pad_low: Shape, pad_high: Shape, **window: Any) -> Any:
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[w.dim() - 3]
    return function(_padded(x, pad_low, pad_high), w, **window)


def _conv_out(x: Shape, w: Shape, window: dict[str, Any]) -> Shape:
    return tuple(_conv(torch.zeros(x), torch.zeros(w), **window).shape)


def conv_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, w, window in _CONVS:
        yield Sample((draw(rng, dtype, x, -2, 2), draw(rng, dtype, w, -2, 2)), window)


def conv_input_grad_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, w, window in _CONVS:
        g = draw(rng, dtype, _conv_out(x, w, window), -2, 2)
        yield Sample((g, draw(rng, dtype, w, -2, 2)), {"input_shape": x, **window})


def conv_weight_grad_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, w, window in _CONVS:
        g = draw(rng, dtype, _conv_out(x, w, window), -2, 2)
        yield Sample((draw(rng, dtype, x, -2, 2), g), {"weight_shape": w, **window})


def _conv_input_grad(g: Any, w: Any, *, input_shape: Shape, **window: Any) -> Any:
    with torch.enable_grad():
        x = torch.zeros(input_shape, dtype=g.dtype, requires_grad=True)
        w = w if w.requires_grad else w.clone().requires_grad_()
        return torch.autograd.grad(_conv(x, w, **window), x, g, create_graph=True)[0]


def _conv_weight_grad(x: Any, g: Any, *, weight_shape: Shape, **window: Any) -> Any:
    with torch.enable_grad():
        w = torch.zeros(weight_shape, dtype=g.dtype, requires_grad=True)
        x = x if x.requires_grad else x.clone().requires_grad_()
        return torch.autograd.grad(_conv(x, w, **window), w, g, create_graph=True)[0]


def conv_last_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, w, window in _CONVS:
        for columns in (1, 2, w[0]):
            panels = -(-w[0] // columns)
            image = draw(rng, dtype, (x[0], *x[2:], x[1]), -2, 2)
            weight = draw(rng, dtype, (panels, *w[2:], w[1], columns), -2, 2)
            yield Sample((image, weight), {"outputs": w[0], "group": 1, **window})
        if w[1] % 2 == 0:  # words of two channels
            weight = draw(rng, dtype, (1, *w[2:], w[1] // 2, 2 * w[0]), -2, 2)
            yield Sample((image, weight), {"outputs": w[0], "group": 2, **window})


def _conv_last(x: Any, w: Any, *, outputs: int, group: int, **window: Any) -> Any:
    w = w.unflatten(-1, (-1, group)).movedim(-1, -2).flatten(-3, -2)
    filters = w.movedim((-1, -2), (1, 2)).flatten(0, 1)[:outputs]
    return _conv(x.movedim(-1, 1), filters, **window).movedim(1, -1)


record("conv", conv_samples, _conv, FLOATS, tolerance=64.0)
record(
    "conv_last", conv_last_samples, _conv_last, FLOATS, tolerance=64.0,
    gradient="made where nothing is differentiated", numeric="the same",
)
record("conv_input_grad", conv_input_grad_samples, _conv_input_grad, FLOATS, tolerance=64.0)
record("conv_weight_grad", conv_weight_grad_samples, _conv_weight_grad, FLOATS, tolerance=64.0)

# --- windows ---------------------------------------------------------------------------------

_POOLS: tuple[tuple[Shape, dict[str, Any]], ...] = tuple(
    (
        shape,
        {
            "window": window,
            "stride": stride,
            "pad_low": low,
            "pad_high": high,
            "dilation": dilation,
        },
    )
    for shape, window, stride, low, high, dilation in (
        ((2, 3, 6, 6), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)),
        ((1, 2, 7, 5), (3, 2), (2, 1), (1, 0), (1, 1), (1, 1)),
        ((2, 8), (3,), (1,), (1,), (1,), (1,)),
        ((9,), (3,), (2,), (0,), (0,), (2,)),
        ((1, 2, 4, 4, 4), (2, 2, 2), (1, 2, 2), (0, 1, 0), (0, 1, 0), (1, 1, 1)),
    )
)


def max_pool_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, window in _POOLS:
        yield Sample((distinct(rng, dtype, shape),), window)
    shape, window = _POOLS[2]
    lowest = np.full(shape, -np.inf).astype(dtype.numpy)
    yield Sample((lowest,), window, gradient=False)
    shape, window = _POOLS[1]
    bad = distinct(rng, dtype, shape)
    bad[0, 0, 2, 2] = np.nan
    yield Sample((bad,), window, gradient=False)


def _max_pool(
    x: Any, *, window: Shape, stride: Shape, pad_low: Shape, pad_high: Shape, dilation: Shape
) -> Any:
    k = len(window)
    lead, plane = tuple(x.shape[:-k]), tuple(x.shape[-k:])
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[k - 1]
    flat = x.reshape(1, -1, *plane)
    if pad_low == pad_high:
        values, indices = pool(flat, window, stride, pad_low, dilation, return_indices=True)
        return values.reshape(*lead, *values.shape[2:]), indices.reshape(*lead, *indices.shape[2:])
    padded = _padded(flat, pad_low, pad_high, -math.inf)
    values, indices = pool(padded, window, stride, 0, dilation, return_indices=True)
    position = torch.zeros_like(indices)
    scale = 1
    for d in reversed(range(k)):
        size = padded.shape[2 + d]
        position = position + (indices % size - pad_low[d]) * scale
        indices, scale = indices // size, scale * plane[d]
    return values.reshape(*lead, *values.shape[2:]), position.reshape(*lead, *values.shape[2:])


def max_pool_grad_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, plane in (((2, 3, 4), (6,)), ((2, 3, 3), (5, 5)), ((3, 3), (4, 2)), ((0, 3), (4,))):
        indices = rng.integers(0, math.prod(plane), shape)
        yield Sample((draw(rng, dtype, shape), indices), {"plane_shape": plane})


def _max_pool_grad(g: Any, indices: Any, *, plane_shape: Shape) -> Any:
    lead = tuple(g.shape[: g.dim() - len(plane_shape)])
    flat = torch.zeros(*lead, math.prod(plane_shape), dtype=g.dtype)
    count = math.prod(g.shape[len(lead) :])
    flat = flat.scatter_add(-1, indices.reshape(*lead, count), g.reshape(*lead, count))
    return flat.reshape(*lead, *plane_shape)


def window_sum_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, window in _POOLS:
        yield Sample((draw(rng, dtype, shape),), window)


def _window_sum(
    x: Any, *, window: Shape, stride: Shape, pad_low: Shape, pad_high: Shape, dilation: Shape
) -> Any:
    x = _padded(x, pad_low, pad_high)
    first = x.dim() - len(window)
    for axis, (w, s, d) in enumerate(zip(window, stride, dilation, strict=True), first):
        n = (x.shape[axis] - (w - 1) * d - 1) // s + 1
        starts = torch.arange(n) * s
        x = sum(x.index_select(axis, starts + i * d) for i in range(w))
    return x


record("max_pool", max_pool_samples, _max_pool, FLOATS)
record("max_pool_grad", max_pool_grad_samples, _max_pool_grad, NUMBERS, tolerance=8.0)
record("window_sum", window_sum_samples, _window_sum, NUMBERS, tolerance=16.0)

# --- composites ------------------------------------------------------------------------------


def softmax_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (
        ((5,), 0),
        ((3, 4), 1),
        ((3, 4), 0),
        ((2, 3, 4), 1),
        ((2, 0), 1),
        ((4, 70), 1),
    ):
        yield Sample((draw(rng, dtype, shape, -5, 5),), {"dim": dim})
    yield Sample((np.array([[1e4, -1e4, 0.0]]).astype(dtype.numpy),), {"dim": 1}, gradient=False)


def logsumexp_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dim in (((5,), 0), ((3, 4), 1), ((2, 3, 4), 1)):
        for keepdim in (False, True):
            yield Sample((draw(rng, dtype, shape, -5, 5),), {"dim": dim, "keepdim": keepdim})
    inf = np.array([[-np.inf, -np.inf], [np.inf, 0.0]]).astype(dtype.numpy)
    yield Sample((inf,), {"dim": 1, "keepdim": False}, gradient=False)


def _activation(*options: dict[str, Any]) -> Any:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for attrs in options:
            for shape in ((), (5,), (3, 43), (0, 2)):
                yield Sample((draw(rng, dtype, shape, -5, 5),), attrs)

    return samples


record("softmax", softmax_samples, lambda x, dim: torch.softmax(x, dim), FLOATS, tolerance=16.0)
record(
    "log_softmax", softmax_samples, lambda x, dim: torch.log_softmax(x, dim), FLOATS, tolerance=16.0
)
record(
    "logsumexp",
    logsumexp_samples,
    lambda x, dim, keepdim: torch.logsumexp(x, dim, keepdim),
    FLOATS,
    tolerance=16.0,
)
record(
    "gelu",
    _activation({"approximate": "none"}, {"approximate": "tanh"}),
    lambda x, approximate: functional.gelu(x, approximate=approximate),
    FLOATS,
    tolerance=8.0,
)
record("silu", _activation({}), functional.silu, FLOATS, tolerance=8.0)
record(
    "softplus",
    _activation({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 4.0}),
    lambda x, beta, threshold: functional.softplus(x, beta, threshold),
    FLOATS,
    tolerance=8.0,
)


def layer_norm_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, dims in (((4, 6), (1,)), ((2, 3, 5), (1, 2)), ((7,), (0,)), ((3, 65), (1,))):
        inner = tuple(shape[d] for d in dims)
        parts = (draw(rng, dtype, shape), draw(rng, dtype, inner, 0.5, 2), draw(rng, dtype, inner))
        for count in (1, 2, 3):
            yield Sample(parts[:count], {"normalized_dims": dims, "eps": 1e-5})


def _layer_norm(x: Any, *parameters: Any, normalized_dims: Shape, eps: float) -> Any:
    shape = [x.shape[d] for d in normalized_dims]
    return functional.layer_norm(x, shape, *parameters, eps=eps)


def batch_norm_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape in ((6, 3), (4, 3, 5), (2, 3, 4, 4)):
        parts = (draw(rng, dtype, shape), draw(rng, dtype, (3,), 0.5, 2), draw(rng, dtype, (3,)))
        yield Sample(parts, {"eps": 1e-5})
        yield Sample(parts[:1], {"eps": 1e-3})


def _batch_norm(x: Any, *parameters: Any, eps: float) -> Any:
    dims = [d for d in range(x.dim()) if d != 1]
    weight, bias = parameters or (None, None)
    y = functional.batch_norm(x, None, None, weight, bias, training=True, eps=eps)
    return y, x.mean(dims), x.var(dims, unbiased=False)


def partial_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, rows in (((8, 3), 4), ((3, 5, 2), 4), ((1, 3), 2), ((5, 1), 1)):
        for kind in ("sum", "mean", "squares"):
            yield Sample((draw(rng, dtype, shape),), {"rows": rows, "kind": kind})


def _partial(x: Any, rows: int, kind: str) -> Any:
    blocks = x.reshape(-1, x.shape[-1]).split(rows)
    if kind == "sum":
        return torch.stack([block.sum(0) for block in blocks])
    means = torch.stack([block.mean(0) for block in blocks])
    if kind == "mean":
        return means
    parts = zip(blocks, means, strict=True)
    return torch.stack([((block - mean) ** 2).sum(0) for block, mean in parts])


record("partial", partial_samples, _partial, FLOATS, tolerance=16.0)
record("layer_norm", layer_norm_samples, _layer_norm, FLOATS, tolerance=64.0)
record("batch_norm", batch_norm_samples, _batch_norm, FLOATS, tolerance=64.0)


def _loss_samples(logarithms: bool) -> Any:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for shape in ((5, 4), (3, 4, 2), (4,)):
            classes = 4
            flat = shape[:1] + shape[2:] if len(shape) > 1 else ()
            target = rng.integers(0, classes, flat)
            ignored = np.array(target)
            if ignored.ndim:
                ignored.reshape(-1)[0] = -100
            weight = draw(rng, dtype, (classes,), 0.5, 2)
            x = draw(rng, dtype, shape, -3, 3)
            for reduction in ("mean", "sum", "none"):
                for rest in ((np.asarray(target),), (ignored, weight)):
                    attrs: dict[str, Any] = {"ignore_index": -100}
                    if not logarithms:
                        yield Sample(
                            (x, *rest), {**attrs, "label_smoothing": 0.0, "reduction": reduction}
                        )
                        attrs["label_smoothing"] = 0.1
                    yield Sample((x, *rest), {**attrs, "reduction": reduction})

    return samples


def _loss(function: Any) -> Any:
    def reference(x: Any, target: Any, *weights: Any, **attrs: Any) -> Any:
        weight = weights[0].detach() if weights else None
        return function(x, target, weight, **attrs)

    return reference


record(
    "cross_entropy", _loss_samples(False), _loss(functional.cross_entropy), FLOATS, tolerance=64.0
)
record("nll_loss", _loss_samples(True), _loss(functional.nll_loss), FLOATS, tolerance=16.0)


def attention_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for lead, rows, keys, width in (((2, 3), 4, 5, 8), ((1,), 3, 3, 2), ((), 4, 4, 3)):
        q, k, v = (draw(rng, dtype, (*lead, n, width), -2, 2) for n in (rows, keys, keys))
        scale = 1 / math.sqrt(width)
        yield Sample((q, k, v), {"causal": False, "scale": scale})
        yield Sample((q, k, v), {"causal": True, "scale": scale})
        bias = draw(rng, dtype, (rows, keys), -2, 2)
        yield Sample((q, k, v, bias), {"causal": False, "scale": scale})
        allowed = draw(rng, dtypes.bool_, (rows, keys))
        allowed[:, 0] = True
        yield Sample((q, k, v, allowed), {"causal": False, "scale": 0.5})
        kept = draw(rng, dtypes.bool_, (*lead, rows, keys))
        yield Sample((q, k, v, kept), {"causal": True, "scale": 0.5, "dropout": 0.5})
        yield Sample((q, k, v, bias, kept), {"causal": False, "scale": scale, "dropout": 0.3})


def _scores(q: Any, k: Any, masks: Any, causal: bool, scale: float) -> Any:
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) @ k.to(wide).mT) * scale
    for mask in masks:
        bool_mask = mask.dtype is torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if bool_mask else scores + mask.to(wide)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf) if causal else scores


def _thin(x: Any, kept: Any, dropout: float) -> Any:
    return x.masked_fill(~kept, 0.0) / (1 - dropout) if dropout else x


def _attention(
    q: Any, k: Any, v: Any, *rest: Any, causal: bool, scale: float, dropout: float = 0.0
) -> Any:
    masks = rest[:-1] if dropout else rest
    scores = _scores(q, k, masks, causal, scale)
    lse = scores.logsumexp(-1)
    if dropout:
        out = _thin(scores.softmax(-1), rest[-1], dropout) @ v.to(scores.dtype)
        return out.to(q.dtype), lse
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=masks[0] if masks else None, is_causal=causal, scale=scale
    ), lse


def attention_grad_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for sample in attention_samples(dtype, rng):
        q, k, v, *rest = sample.arrays
        g = draw(rng, dtype, (*q.shape[:-1], v.shape[-1]), -1, 1)
        wide = dtype if dtype.bits >= 32 else dtypes.f32
        lse, slope = draw(rng, wide, q.shape[:-1], 3, 5), draw(rng, wide, q.shape[:-1], -1, 1)
        yield Sample((q, k, v, g, lse, slope, *rest), sample.attrs)


def _attention_grad(
    q: Any, k: Any, v: Any, g: Any, lse: Any, slope: Any, *rest: Any, causal: bool, scale: float,
    dropout: float = 0.0,
) -> Any:
    masks, kept = (rest[:-1], rest[-1]) if dropout else (rest, None)
    wide_q, wide_k, wide_v, wide_g = (x.to(lse.dtype) for x in (q, k, v, g))
    p = (_scores(q, k, masks, causal, scale) - lse.unsqueeze(-1)).exp()
    s = p * (_thin(wide_g @ wide_v.mT, kept, dropout) - slope.unsqueeze(-1))
    found = s @ wide_k * scale, s.mT @ wide_q * scale, _thin(p, kept, dropout).mT @ wide_g
    return tuple(x.to(q.dtype) for x in found)


record("attention", attention_samples, _attention, FLOATS, tolerance=64.0)
record("attention_grad", attention_grad_samples, _attention_grad, FLOATS, tolerance=256.0)

# --- control flow ----------------------------------------------------------------------------

_STRUCTURE = "not differentiable: see its record"


def _body(types: list[TensorType], make: Any) -> Graph:
    builder = Builder()
    values = [Expr(builder, builder.input(t)) for t in types]
    return builder.build([e.node for e in make(*values)], "body")


def cond_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    x = draw(rng, dtype, (3, 4))
    kind = TensorType(dtype, (3, 4))
    graphs = (_body([kind], lambda a: (a + a, a)), _body([kind], lambda a: (a, a * a)))
    for predicate in (True, False):
        yield Sample((np.array(predicate), x), {"graphs": graphs})


def while_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    count, value = TensorType(dtypes.i64, ()), TensorType(dtype, (3,))
    graphs = (
        _body([count, value], lambda i, x: (ops.lt(i, 4),)),
        _body([count, value], lambda i, x: (i + 1, x + x)),
    )
    for start in (0, 9):
        yield Sample((np.array(start), draw(rng, dtype, (3,), -2, 2)), {"graphs": graphs})


def unwind_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    count, value = TensorType(dtypes.i64, ()), TensorType(dtype, (3,))
    graphs = (
        _body([count, value], lambda i, x: (ops.lt(i, 4),)),
        _body([count, value], lambda i, x: (i + 1, x + x)),
        _body([value, count, value], lambda g, i, x: (g + x * g,)),
    )
    for start, most in ((0, 8), (1, 2), (9, 3)):  # ends by the condition, by number, at once
        arrays = (np.array(start), draw(rng, dtype, (3,), -2, 2), draw(rng, dtype, (3,), -2, 2))
        yield Sample(arrays, {"n_state": 2, "most": most, "graphs": graphs})


def scan_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    row = TensorType(dtype, (3,))
    graphs = (_body([row, row], lambda c, x: (c + x, c * x)),)
    for length in (5, 1, 0):
        arrays = (draw(rng, dtype, (3,), 0, 2), draw(rng, dtype, (length, 3), 0, 2))
        yield Sample(arrays, {"n_carried": 1, "reverse": length == 5, "graphs": graphs})


def fusion_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    kind = TensorType(dtype, (3, 4))
    one = _body([kind, kind], lambda a, b: (a * b + a,))
    two = _body([kind, kind], lambda a, b: (a * b, a + b))
    for body in (one, two):
        arrays = (draw(rng, dtype, (3, 4)), draw(rng, dtype, (3, 4)))
        yield Sample(arrays, {"kind": "loop", "graphs": (body,)})


def _cond(predicate: Any, x: Any, *, graphs: Any) -> Any:
    return (x + x, x) if predicate else (x, x * x)


def _while(i: Any, x: Any, *, graphs: Any) -> Any:
    while i < 4:
        i, x = i + 1, x + x
    return i, x


def _unwind(i: Any, x: Any, g: Any, *, n_state: int, most: int, graphs: Any) -> Any:
    began = []
    while i < 4 and len(began) < most:
        began.append(x)
        i, x = i + 1, x + x
    for x in reversed(began):
        g = g + x * g
    return g


def _scan(c: Any, xs: Any, *, n_carried: int, reverse: bool, graphs: Any) -> Any:
    ys = []
    for x in xs.flip(0) if reverse else xs:
        c, y = c + x, c * x
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return c, torch.stack(ys) if ys else torch.empty_like(xs)


def _fusion(a: Any, b: Any, *, kind: str, graphs: Any) -> Any:
    return a * b + a if len(graphs[0].outputs) == 1 else (a * b, a + b)


_SMALL = (dtypes.f32, dtypes.f64, dtypes.i32)
record("cond", cond_samples, _cond, _SMALL, gradient=_STRUCTURE)
record("while_loop", while_samples, _while, _SMALL, gradient=_STRUCTURE)
record("unwind", unwind_samples, _unwind, _SMALL, gradient=_STRUCTURE)
record("scan", scan_samples, _scan, _SMALL, gradient=_STRUCTURE)
record("fusion", fusion_samples, _fusion, _SMALL, gradient=_STRUCTURE)
