"""Products, convolutions and attention of few numbers as entries of a program (program_writer.py):
NumPy's own loop of matrix products, on the operands that its backend gives it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.numpy.bound_windows import CACHED
from ..backends.numpy.recorded import SELECT
from ..ir.op import Attrs
from .program_writer import Array, Unwritten, Writer


def _seen(array: Array, shape: Sequence[int]) -> Array:
    """The same memory in another shape."""
    found = array.reshape(tuple(shape))
    if not np.may_share_memory(found, array):
        raise Unwritten
    return found


def _reshaped(w: Writer, array: Array, shape: Sequence[int]) -> Array:
    """array.reshape(shape): the same memory, or, where that cannot be, a copy."""
    found = array.reshape(tuple(shape))
    if np.may_share_memory(found, array):
        return found
    made = w.new(array.shape, array.dtype)
    w.move(array, made)
    return made.reshape(found.shape)


def dot_general(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound.py has it, or else contract.py there."""
    a, b = given
    batch, summed = tuple(range(len(attrs["batch_a"]))), tuple(attrs["contract_b"])
    if attrs.get("tf32"):
        raise Unwritten
    if tuple(attrs["contract_a"]) != (a.ndim - 1,) or len(summed) != 1 or (
        tuple(attrs["batch_a"]) != batch or tuple(attrs["batch_b"]) != batch
    ):
        _anyhow(w, attrs, a, b, out)
        return
    if batch:
        if a.ndim != len(batch) + 2 or b.ndim != a.ndim or summed[0] < len(batch):
            raise Unwritten
        w.product(a, b.swapaxes(-1, -2) if summed == (b.ndim - 1,) else b, out)
        return
    if b.ndim not in (1, 2):
        raise Unwritten
    if a.ndim != 2 or b.ndim != 2:
        rows = (math.prod(a.shape[:-1]), a.shape[-1])
        a, out = _seen(a, rows), _seen(out, (rows[0], b.shape[1 - summed[0]] if b.ndim > 1 else 1))
    w.product(a, b[:, None] if b.ndim == 1 else b.T if summed == (1,) else b, out)


def _anyhow(w: Writer, attrs: Attrs, a: Array, b: Array, out: Array) -> None:
    """As backends/numpy/contract.py has it."""
    batch_a, batch_b, summed_a, summed_b = (
        tuple(attrs[name]) for name in ("batch_a", "batch_b", "contract_a", "contract_b")
    )
    free_a, free_b = (
        tuple([d for d in range(x.ndim) if d not in (*batch, *summed)])
        for x, batch, summed in ((a, batch_a, summed_a), (b, batch_b, summed_b))
    )
    left = a.transpose((*batch_a, *free_a, *summed_a))
    right = b.transpose((*batch_b, *summed_b, *free_b))
    if not len(free_a) == len(free_b) == len(summed_a) == 1:
        batch = [a.shape[d] for d in batch_a]
        inner = math.prod(a.shape[d] for d in summed_a)
        rows, columns = (
            math.prod(x.shape[d] for d in free) for x, free in ((a, free_a), (b, free_b))
        )
        left = _reshaped(w, left, (*batch, rows, inner))
        right = _reshaped(w, right, (*batch, inner, columns))
        out = _seen(out, (*batch, rows, columns))
    w.product(left, right, out)


def conv(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound_windows.py has it: a product with columns."""
    x, weight = given
    groups, kernel = attrs["groups"], weight.shape[2:]
    if attrs.get("tf32") or x.dtype != weight.dtype or not out.flags.c_contiguous:
        raise Unwritten
    count, channels = x.shape[0], x.shape[1] // groups
    inner, pixels = channels * math.prod(kernel), math.prod(out.shape[2:])
    columns = _windows(w, attrs, x, kernel, out.shape[2:])
    if count > 1 and groups == 1 and inner * pixels > CACHED:  # each image's are copied
        copied = w.new(columns.shape, x.dtype)
        w.move(columns, copied)
        columns = copied
    w.product(
        _seen(weight, (groups, weight.shape[0] // groups, inner)),
        _reshaped(w, columns, (count, groups, inner, pixels)),
        _seen(out, (count, groups, weight.shape[0] // groups, pixels)),
    )


def _windows(
    w: Writer, attrs: Attrs, x: Array, kernel: Sequence[int], pixels: Sequence[int]
) -> Array:
    """What each place of a window meets: [N, groups, channels, *kernel, *pixels]."""
    low, high, groups = attrs["pad_low"], attrs["pad_high"], attrs["groups"]
    if any(low) or any(high):
        whole = tuple([a + n + b for a, n, b in zip(low, x.shape[2:], high, strict=True)])
        wide = w.new((*x.shape[:2], *whole), x.dtype)
        wide[...] = 0
        w.move(x, wide[_inside(low, x.shape[2:])])
        x = wide
    if not x.flags.c_contiguous:
        raise Unwritten
    channels, spatial = x.shape[1] // groups, x.strides[2:]
    view = (x.shape[0], groups, channels, *kernel, *pixels)
    strides = (
        x.strides[0], x.strides[1] * channels, x.strides[1],
        *[s * d for s, d in zip(spatial, attrs["dilation"], strict=True)],
        *[s * d for s, d in zip(spatial, attrs["stride"], strict=True)],
    )
    found: Array = np.ndarray(view, x.dtype, x, 0, strides)
    return found


def conv_weight_grad(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/contract.py has it: products of columns with what they gave."""
    x, g = given
    groups, (outputs, _, *kernel), pixels = attrs["groups"], out.shape, g.shape[2:]
    if attrs.get("tf32") or x.dtype != g.dtype or not out.flags.c_contiguous:
        raise Unwritten
    view = _windows(w, attrs, x, kernel, pixels)
    n, depth = x.shape[0], x.shape[1] // groups * math.prod(kernel)
    columns = _reshaped(w, view, (n, groups, depth, math.prod(pixels)))
    rows = _seen(g, (n, groups, outputs // groups, math.prod(pixels))).transpose(1, 2, 0, 3)
    left = _reshaped(w, rows, (groups, outputs // groups, n * math.prod(pixels)))
    right = _reshaped(w, columns.transpose(1, 0, 3, 2), (groups, left.shape[2], depth))
    w.product(left, right, _seen(out, (groups, outputs // groups, depth)))


def conv_input_grad(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/contract.py has it: columns of a product, added up at their places."""
    g, weight = given
    low, high, groups = attrs["pad_low"], attrs["pad_high"], attrs["groups"]
    if attrs.get("tf32") or g.dtype != weight.dtype or out.dtype.char not in "fd":
        raise Unwritten
    n, outputs, pixels = g.shape[0], weight.shape[0], g.shape[2:]
    kernel = _seen(weight, (groups, outputs // groups, -1)).transpose(0, 2, 1)
    columns = w.new((n, groups, kernel.shape[1], math.prod(pixels)), g.dtype)
    w.product(kernel, _seen(g, (n, groups, outputs // groups, math.prod(pixels))), columns)
    columns = columns.reshape((n, out.shape[1], *weight.shape[2:], *pixels))
    space = out.shape[2:]
    whole = w.new(
        (*out.shape[:2], *[a + b + c for a, b, c in zip(low, space, high, strict=True)]), g.dtype
    )
    w.move(np.broadcast_to(np.zeros((), g.dtype), whole.shape), whole)
    types = f"{g.dtype.char}{g.dtype.char}->{g.dtype.char}"
    for at in itertools.product(*[range(k) for k in weight.shape[2:]]):
        taken: Any = (*_EVERY, *[
            slice(p * d, p * d + (o - 1) * s + 1, s)
            for p, d, o, s in zip(at, attrs["dilation"], pixels, attrs["stride"], strict=True)
        ])
        tap: Any = (*_EVERY, *at)
        w.loop(np.add, types, [whole[taken], columns[tap]], whole[taken])
    w.move(whole[_inside(low, space)], out)


def attention(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound_attention.py has it; what is left of the scores is not kept."""
    q, k, v, *masks = given
    if attrs.get("dropout") or len(masks) > 1 or {q.dtype, k.dtype, v.dtype} != {out.dtype}:
        raise Unwritten
    dtype, c = out.dtype, out.dtype.char
    scores = w.new((*q.shape[:-1], k.shape[-2]), dtype)
    factor, zero, one, lowest = (np.asarray(n, dtype) for n in (attrs["scale"], 0, 1, -math.inf))
    two, chosen = f"{c}{c}->{c}", f"?{c}{c}->{c}"
    w.product(q, k.swapaxes(-1, -2), scores)
    w.loop(np.multiply, two, [scores, factor], scores)
    for mask in masks:
        if mask.dtype == np.bool_:
            w.loop(SELECT, chosen, [mask, scores, lowest], scores)
        elif mask.dtype == dtype:
            w.loop(np.add, two, [scores, mask], scores)
        else:
            raise Unwritten
    if attrs["causal"]:
        seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
        w.loop(SELECT, chosen, [seen, scores, lowest], scores)
    last = (scores.ndim - 1,)
    peak, sums = (w.new((*scores.shape[:-1], 1), dtype) for _ in range(2))
    odd = w.new(peak.shape, "?")
    w.total(np.maximum, None, scores, last, peak)
    w.loop(np.equal, f"{c}{c}->?", [peak, lowest], odd)
    w.loop(SELECT, chosen, [odd, zero, peak], peak)
    w.loop(np.subtract, two, [scores, peak], scores)
    w.loop(np.exp, f"{c}->{c}", [scores], scores)
    w.total(np.add, 0, scores, last, sums)
    w.loop(np.equal, f"{c}{c}->?", [sums, zero], odd)
    w.loop(SELECT, chosen, [odd, one, sums], sums)
    w.loop(np.true_divide, two, [scores, sums], scores)
    w.product(scores, v, out)


_EVERY = (slice(None), slice(None))


def _inside(low: Sequence[int], space: Sequence[int]) -> Any:
    return (*_EVERY, *[slice(a, a + n) for a, n in zip(low, space, strict=True)])


RULES = {
    "dot_general": dot_general, "conv": conv, "conv_input_grad": conv_input_grad,
    "conv_weight_grad": conv_weight_grad, "attention": attention,
}
