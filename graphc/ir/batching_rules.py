"""Batching rules by operator family: where the batch goes in, and where it comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import dtypes
from .batching import FAMILIES, RULES, Batch, BatchValue, Rule, move_dim, one_by_one
from .dim import product
from .op import Attrs
from .ops._counter import DRAW, chosen_of
from .ops._rules import ops, reshape
from .ops.sparse import by_positions

Inputs = Sequence[BatchValue]


def _split(attrs: Attrs) -> tuple[Any, Attrs]:
    """The operator, and its attributes without it."""
    return attrs["op"], {k: v for k, v in attrs.items() if k != "op"}


def _up(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dims)


def _elementwise(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    op, rest = _split(attrs)
    rank = max(x.type.rank for x in inputs)
    return op(*[batch.align(x, rank) for x in inputs], **rest)


def _dims(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """One input, or several of one shape; every attribute that numbers dimensions grows by 1."""
    op, rest = _split(attrs)
    for name in ("dim", "dims", "normalized_dims"):
        if name in rest:
            rest[name] = rest[name] + 1 if isinstance(rest[name], int) else _up(rest[name])
    return op(*[batch.full(x) for x in inputs], **rest)


def _same(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """Operators of trailing dimensions: the batch is one more leading one."""
    op, rest = _split(attrs)
    return op(*[batch.full(x) for x in inputs], **rest)


# --- movement ----------------------------------------------------------------------------------


def _reshape(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    return ops.reshape(inputs[0].value, shape=(batch.size, *attrs["shape"]))


def _permute(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    return ops.permute(inputs[0].value, dims=(0, *_up(attrs["dims"])))


def _expand(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    shape = attrs["shape"]
    return ops.expand(batch.align(inputs[0], len(shape)), shape=(batch.size, *shape))


def _slice(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """slice and slice_update."""
    op, rest = _split(attrs)
    return op(
        *[batch.full(x) for x in inputs], starts=(0, *rest["starts"]),
        stops=(batch.size, *rest["stops"]), steps=(1, *rest["steps"]),
    )


def _as_strided(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """as_strided and as_strided_update."""
    op, rest = _split(attrs)
    step = product(inputs[0].type.shape)
    return op(
        *[batch.full(x) for x in inputs], size=(batch.size, *rest["size"]),
        stride=(step, *rest["stride"]), offset=rest["offset"],
    )


def _pad(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    low, high, interior = ((0, *attrs[name]) for name in ("low", "high", "interior"))
    return ops.pad(
        inputs[0].value, low=low, high=high, interior=interior, value=attrs["value"]
    )


# --- indexing ----------------------------------------------------------------------------------


def _indices(batch: Batch, indices: Inputs) -> tuple[list[Any], int]:
    """Batched index tensors, aligned; and the rank of a sample's broadcast index."""
    rank = max(x.type.rank for x in indices)
    return [batch.align(x, rank) for x in indices], rank


def _positions(batch: Batch, like: Any, rank: int) -> Any:
    """The number of each sample, as (batch, 1, ...) with `rank` ones."""
    iota = ops.iota.like(like, shape=(batch.size,), dim=0, dtype=dtypes.i64)
    return reshape(iota, (batch.size, *[1] * rank))


def _index(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    x, *indices = inputs
    dim: int = attrs["dim"]
    if not any(i.batched for i in indices):
        return ops.index(x.value, *[i.value for i in indices], dim=dim + 1)
    aligned, rank = _indices(batch, indices)
    if not x.batched:
        return move_dim(ops.index(x.value, *aligned, dim=dim), dim, 0)
    positions = _positions(batch, x.value, rank)
    return move_dim(
        ops.index(move_dim(x.value, 0, dim), positions, *aligned, dim=dim), dim, 0
    )


def _index_put(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    x, source, *indices = inputs
    dim: int = attrs["dim"]
    accumulate = attrs["accumulate"]
    aligned, rank = _indices(batch, indices)
    target = batch.full(x)
    written = x.type.rank - len(indices) + rank  # of the part of a sample that is written
    value = batch.align(source, written)
    if not any(i.batched for i in indices):
        return ops.index_put(target, value, *aligned, dim=dim + 1, accumulate=accumulate)
    if source.batched:
        value = move_dim(value, 0, dim)
    else:
        shape = value.type.shape
        shape = (*[1] * (written - len(shape)), *shape)
        value = reshape(value, (*shape[:dim], 1, *shape[dim:]))
    positions = _positions(batch, target, rank)
    out = ops.index_put(
        move_dim(target, 0, dim), value, positions, *aligned, dim=dim, accumulate=accumulate
    )
    return move_dim(out, dim, 0)


# --- sparse matrices ------------------------------------------------------------------------------


def _sparse_product(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """Dense matrices of a batch are one with their columns side by side."""
    values, dense, *places = inputs
    rows, columns, ends, *_ = places
    (count,) = ends.type.shape
    if any(place.batched for place in places):
        return one_by_one(batch, attrs["op"], inputs, {}).value
    if values.batched:
        return batch.full(by_positions(values, dense, rows, columns, count))
    wide = ops.sparse_product(values.value, _fold(dense.value, 1), *[p.value for p in places])
    split = reshape(wide, (count, batch.size, dense.type.shape[-1]))
    return move_dim(split, 1, 0)


# --- contractions ------------------------------------------------------------------------------


def _dot_general(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    _, rest = _split(attrs)
    a, b = inputs
    if a.batched and not b.batched and not rest["batch_a"]:  # one product of all rows
        rest["contract_a"] = _up(rest["contract_a"])
        return ops.dot_general(a.value, b.value, **rest)
    # else the batch is a dim of both, so that the result is row-major, as torch's is
    rest["batch_a"], rest["batch_b"] = (0, *_up(rest["batch_a"])), (0, *_up(rest["batch_b"]))
    rest["contract_a"], rest["contract_b"] = _up(rest["contract_a"]), _up(rest["contract_b"])
    return ops.dot_general(batch.full(a), batch.full(b), **rest)


def _fold(x: Any, dim: int) -> Any:
    """(batch, ...) with the batch folded into sample dimension `dim`, batch-major."""
    moved = move_dim(x, 0, dim)
    shape = moved.type.shape
    return reshape(moved, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def _unfold(x: Any, dim: int, batch: Batch) -> Any:
    """The inverse of `_fold`."""
    shape = x.type.shape
    size = shape[dim] // batch.size if batch.size != 0 else 0
    split = reshape(x, (*shape[:dim], batch.size, size, *shape[dim + 1 :]))
    return move_dim(split, dim, 0)


def _conv(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    _, rest = _split(attrs)
    x, w = inputs
    if not w.batched:  # every sample's images in one call
        return _unfold(ops.conv(_fold(x.value, 0), w.value, **rest), 0, batch)
    if not x.batched and rest["groups"] == 1:
        return _unfold(ops.conv(x.value, _fold(w.value, 0), **rest), 1, batch)
    rest["groups"] = rest["groups"] * batch.size  # a group per sample
    out = ops.conv(_fold(batch.full(x), 1), _fold(w.value, 0), **rest)
    return _unfold(out, 1, batch)


def _conv_input_grad(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    _, rest = _split(attrs)
    g, w = inputs
    images, channels, *space = rest["input_shape"]
    if not w.batched:
        rest["input_shape"] = (images * batch.size, channels, *space)
        return _unfold(ops.conv_input_grad(_fold(g.value, 0), w.value, **rest), 0, batch)
    rest["input_shape"] = (images, channels * batch.size, *space)
    rest["groups"] = rest["groups"] * batch.size
    out = ops.conv_input_grad(_fold(batch.full(g), 1), _fold(w.value, 0), **rest)
    return _unfold(out, 1, batch)


def _conv_weight_grad(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    _, rest = _split(attrs)
    x, g = (_fold(batch.full(v), 1) for v in inputs)
    outputs, channels, *window = rest["weight_shape"]
    rest["weight_shape"] = (outputs * batch.size, channels, *window)
    rest["groups"] = rest["groups"] * batch.size
    return _unfold(ops.conv_weight_grad(x, g, **rest), 0, batch)


# --- composites --------------------------------------------------------------------------------


def _layer_norm(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    op, rest = _split(attrs)
    if any(x.batched for x in inputs[1:]):
        one, *scale = inputs
        plain = op(batch.full(one), normalized_dims=_up(rest["normalized_dims"]), eps=rest["eps"])
        if scale:
            plain = plain * batch.align(scale[0], one.type.rank)
        if len(scale) > 1:
            plain = plain + batch.align(scale[1], one.type.rank)
        return plain
    rest["normalized_dims"] = _up(rest["normalized_dims"])
    return op(inputs[0].value, *[x.value for x in inputs[1:]], **rest)


def _attention(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    """attention and its gradient; lse and slope lack the last dim, a mask may lack leading ones.
    All samples share a draw, which a batch of them must not make."""
    op, rest = _split(attrs)
    rank = inputs[0].type.rank
    if "dropout" in rest and inputs[-1].type == DRAW:
        scores = (*inputs[0].type.shape[:-1], inputs[1].type.shape[-2])
        kept = chosen_of(inputs[-1], scores, 1.0 - rest["dropout"])
        inputs = [*inputs[:-1], kept]
    full = []
    for place, x in enumerate(inputs):
        missing = rank - 1 if op.name == "attention_grad" and place in (4, 5) else rank
        full.append(batch.align(BatchValue(batch, batch.full(x), True), missing))
    return op(*full, **rest)


def _unary_composite(batch: Batch, inputs: Inputs, attrs: Attrs) -> Any:
    op, rest = _split(attrs)
    return op(inputs[0].value, **rest)


_TABLE: dict[str, Callable[..., Any]] = {
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice,
    "slice_update": _slice, "as_strided": _as_strided, "as_strided_update": _as_strided,
    "flip": _dims, "pad": _pad, "concat": _dims, "gather": _dims, "scatter": _dims,
    "index": _index, "index_put": _index_put, "dot_general": _dot_general, "conv": _conv,
    "conv_input_grad": _conv_input_grad, "conv_weight_grad": _conv_weight_grad,
    "max_pool": _same, "max_pool_grad": _same, "window_sum": _same, "softmax": _dims,
    "log_softmax": _dims, "logsumexp": _dims, "gelu": _unary_composite, "silu": _unary_composite,
    "softplus": _unary_composite, "layer_norm": _layer_norm, "attention": _attention,
    "attention_grad": _attention,
    "sort": _dims, "topk": _dims, "cumsum": _dims, "cumprod": _dims, "cummax": _dims,
    "cummin": _dims, "sparse_product": _sparse_product,
}

_FAMILY_TABLE: dict[str, Rule] = {
    "unary": _elementwise, "binary": _elementwise, "compare": _elementwise,
    "ternary": _elementwise, "cast": _elementwise, "reduce": _dims, "arg_reduce": _dims,
}

RULES.update(_TABLE)
FAMILIES.update(_FAMILY_TABLE)
