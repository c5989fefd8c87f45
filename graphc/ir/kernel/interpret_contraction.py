"""The meaning of contraction templates: products by their index definition, then the epilogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..dim import Size, evaluate
from .lanes import Array, Lanes, Table, eval_index
from .nest import Contraction, ConvGeometry


def run_contraction(
    c: Contraction, memory: dict[str, Array], env: Mapping[str, int], table: Table
) -> None:
    """acc[b, m, n] for every batch, and the epilogue over (m, n) as lanes."""
    m, n = evaluate(c.m, env), evaluate(c.n, env)
    lanes = Lanes(memory, env, table)
    lanes.env["m"] = np.arange(m).reshape(-1, 1)
    lanes.env["n"] = np.arange(n).reshape(1, -1)
    for b, acc in enumerate(_products(c, memory, env)):
        lanes.env["b"], lanes.env["acc"] = b, acc.reshape(m, n)
        if m and n:
            lanes.block(c.epilogue)


def _products(
    c: Contraction, memory: dict[str, Array], env: Mapping[str, int]
) -> Iterator[Array]:
    acc = c.acc_dtype.numpy
    if c.conv is not None:
        yield from _CONV[c.kind](_Geometry(c.conv, env), memory, c, acc)
        return
    m, n, k = (evaluate(s, env) for s in (c.m, c.n, c.k))
    rows, columns, inner = np.arange(m), np.arange(n), np.arange(k)
    for b in range(evaluate(c.batch, env)):
        left = {**env, "b": b, "m": rows[:, None], "k": inner[None, :]}
        right = {**env, "b": b, "k": inner[:, None], "n": columns[None, :]}
        yield _gather(memory[c.left.buffer], c.left.index, left, (m, k), acc) @ _gather(
            memory[c.right.buffer], c.right.index, right, (k, n), acc
        )


def _gather(
    buffer: Array, index: Size, env: Mapping[str, Any], shape: tuple[int, int], acc: np.dtype[Any]
) -> Array:
    where = np.broadcast_to(np.asarray(eval_index(index, env)), shape)
    found: Array = buffer[where].astype(acc, copy=False)
    return found


def _inner(where: tuple[Any, ...]) -> Any:
    """An index of the trailing dims."""
    return (..., *where)


class _Geometry:
    """A ConvGeometry with numbers for sizes, and its three tensors' shapes."""

    def __init__(self, g: ConvGeometry, env: Mapping[str, int]) -> None:
        self.g = g
        batch, channels, outputs = (
            evaluate(s, env) for s in (g.batch, g.in_channels, g.out_channels)
        )
        self.input = tuple(evaluate(s, env) for s in g.input)
        self.output = tuple(evaluate(s, env) for s in g.output)
        self.x = (batch, channels, *self.input)
        self.w = (outputs, channels // g.groups, *g.window)
        self.y = (batch, outputs, *self.output)

    def tensor(self, memory: Array, shape: tuple[int, ...], acc: np.dtype[Any]) -> Array:
        return memory[: int(np.prod(shape))].reshape(shape).astype(acc, copy=False)

    def padded(self) -> tuple[int, ...]:
        """Spatial sizes that hold every tap of every output position."""
        g = self.g
        return tuple(
            max(low + n, (o - 1) * s + (k - 1) * d + 1)
            for n, low, o, s, k, d in zip(
                self.input, g.pad_low, self.output, g.stride, g.window, g.dilation, strict=True
            )
        )

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each window position, and the slices of the padded input that it meets."""
        g = self.g
        for tap in itertools.product(*(range(k) for k in g.window)):
            yield tap, tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, g.dilation, self.output, g.stride, strict=True)
            )

    def inside(self) -> tuple[slice, ...]:
        return tuple(slice(p, p + n) for p, n in zip(self.g.pad_low, self.input, strict=True))

    def pad(self, x: Array) -> Array:
        result = np.zeros((*x.shape[:2], *self.padded()), x.dtype)
        result[_inner(self.inside())] = x
        return result

    def grouped(self, x: Array, axis: int) -> Array:
        """x with `axis` split into (groups, channels of a group)."""
        groups = self.g.groups
        shape = (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
        return x.reshape(shape)


def _conv(
    s: _Geometry, memory: dict[str, Array], c: Contraction, acc: np.dtype[Any]
) -> Iterator[Array]:
    w = s.grouped(s.tensor(memory[c.left.buffer], s.w, acc), 0)
    x = s.grouped(s.pad(s.tensor(memory[c.right.buffer], s.x, acc)), 1)
    for image in x:
        y = np.zeros((s.g.groups, s.w[0] // s.g.groups, *s.output), acc)
        for tap, window in s.taps():
            y += np.einsum("goc,gc...->go...", w[_inner(tap)], image[_inner(window)])
        yield y


def _conv_input_grad(
    s: _Geometry, memory: dict[str, Array], c: Contraction, acc: np.dtype[Any]
) -> Iterator[Array]:
    w = s.grouped(s.tensor(memory[c.left.buffer], s.w, acc), 0)
    gy = s.grouped(s.tensor(memory[c.right.buffer], s.y, acc), 1)
    for image in gy:
        gx = np.zeros((s.g.groups, s.w[1], *s.padded()), acc)
        for tap, window in s.taps():
            gx[_inner(window)] += np.einsum("goc,go...->gc...", w[_inner(tap)], image)
        yield gx[_inner(s.inside())].reshape(s.x[1], -1)


def _conv_weight_grad(
    s: _Geometry, memory: dict[str, Array], c: Contraction, acc: np.dtype[Any]
) -> Iterator[Array]:
    gy = s.grouped(s.tensor(memory[c.left.buffer], s.y, acc), 1)
    x = s.grouped(s.pad(s.tensor(memory[c.right.buffer], s.x, acc)), 1)
    gw = np.zeros((s.g.groups, s.w[0] // s.g.groups, *s.w[1:]), acc)
    letters = "xyz"[: len(s.output)]
    for tap, window in s.taps():
        gw[_inner(tap)] = np.einsum(
            f"ngo{letters},ngc{letters}->goc", gy, x[_inner(window)], optimize=True
        )
    yield gw


_CONV = {
    "conv": _conv,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
}
