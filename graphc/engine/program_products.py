"""Products, convolutions and attention of few numbers as entries of a program (program_writer.py):
NumPy's own loop of matrix products, on the operands that its backend gives it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.numpy.recorded import SELECT
from ..ir.op import Attrs
from .program_writer import Array, Unwritten, Writer


def _seen(array: Array, shape: Sequence[int]) -> Array:
    """The same memory in another shape."""
    found = array.reshape(tuple(shape))
    if not np.may_share_memory(found, array):
        raise Unwritten
    return found


def dot_general(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound.py has it."""
    a, b = given
    batch, summed = tuple(range(len(attrs["batch_a"]))), tuple(attrs["contract_b"])
    if attrs.get("tf32") or tuple(attrs["contract_a"]) != (a.ndim - 1,) or (
        tuple(attrs["batch_a"]) != batch or tuple(attrs["batch_b"]) != batch or len(summed) != 1
    ):
        raise Unwritten
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


def conv(w: Writer, attrs: Attrs, given: Sequence[Array], out: Array) -> None:
    """As backends/numpy/bound_windows.py has it: a product with columns."""
    x, weight = given
    low, high, groups = attrs["pad_low"], attrs["pad_high"], attrs["groups"]
    if attrs.get("tf32") or x.dtype != weight.dtype or not out.flags.c_contiguous:
        raise Unwritten
    if any(low) or any(high):
        whole = tuple([a + n + b for a, n, b in zip(low, x.shape[2:], high, strict=True)])
        wide = w.new((*x.shape[:2], *whole), x.dtype)
        wide[...] = 0
        w.move(x, wide[_inside(low, x.shape[2:])])
        x = wide
    if not x.flags.c_contiguous:
        raise Unwritten
    count, channels, kernel = x.shape[0], x.shape[1] // groups, weight.shape[2:]
    spatial = x.strides[2:]
    view = (count, groups, channels, *kernel, *out.shape[2:])
    strides = (
        x.strides[0], x.strides[1] * channels, x.strides[1],
        *[s * d for s, d in zip(spatial, attrs["dilation"], strict=True)],
        *[s * d for s, d in zip(spatial, attrs["stride"], strict=True)],
    )
    columns = w.new(view, x.dtype)
    w.move(np.ndarray(view, x.dtype, x, 0, strides), columns)
    inner, pixels = channels * math.prod(kernel), math.prod(out.shape[2:])
    w.product(
        _seen(weight, (groups, weight.shape[0] // groups, inner)),
        columns.reshape((count, groups, inner, pixels)),
        _seen(out, (count, groups, weight.shape[0] // groups, pixels)),
    )


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
    "attention": attention,
}
