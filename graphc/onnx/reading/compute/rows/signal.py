"""Fourier transforms and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....fft import fft, ifft, irfft
from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....ir.dtypes import from_numpy
from ...tensors import kind_of
from ..numbers import Numbers
from ..table import Node, operator
from .limits import check_count


def _window(name: str, terms: tuple[float, ...]) -> None:
    def row(node: Node, size: Numbers) -> Any:
        count = int(size.items[0])
        check_count(node, [count])
        span = count if node.get("periodic", 1) else count - 1
        line = 2 * math.pi * np.arange(count) / max(span, 1)
        found = sum(
            (-1) ** i * term * np.cos(i * line) for i, term in enumerate(terms)
        )
        kind = kind_of(node.get("output_datatype", 1), node.where)
        return T.from_numpy(np.asarray(found, np.float64)).to(from_numpy(kind))

    operator(name, 17, numbers=(0,))(row)


_window("HannWindow", (0.5, 0.5))
_window("HammingWindow", (25 / 46, 21 / 46))
_window("BlackmanWindow", (0.42, 0.5, 0.08))


@operator("MelWeightMatrix", 17, numbers=(0, 1, 2, 3, 4))
def mel_weights(
    node: Node, bins: Numbers, size: Numbers, rate: Numbers, low: Numbers, high: Numbers
) -> Any:
    """Triangles over the frequencies of a transform, evenly spaced in mels."""
    count, length = int(bins.items[0]), int(size.items[0])
    check_count(node, [length // 2 + 1, count])
    ends = [2595 * math.log10(1 + float(x.items[0]) / 700) for x in (low, high)]
    step = (ends[1] - ends[0]) / (count + 2)
    edges = 700 * (10 ** ((ends[0] + np.arange(count + 2) * step) / 2595) - 1)
    edges = ((length + 1) * edges // float(rate.items[0])).astype(np.int64)
    found = np.zeros((length // 2 + 1, count))
    for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if left == centre:
            found[centre, i] = 1
        else:
            rise = np.arange(left, centre + 1)
            found[rise, i] = (rise - left) / (centre - left)
        if right > centre:
            fall = np.arange(centre, right)
            found[fall, i] = (right - fall) / (right - centre)
    kind = kind_of(node.get("output_datatype", 1), node.where)
    return T.from_numpy(found).to(from_numpy(kind))


def _complex(x: Tensor) -> Tensor:
    """[..., 1] is real, [..., 2] has both parts."""
    if x.shape[-1] == 1:
        return x.select(-1, 0)
    return T.complex(x.select(-1, 0), x.select(-1, 1))


def _transformed(node: Node, x: Tensor, size: Any, dim: int) -> Tensor:
    half, back = bool(node.get("onesided", 0)), bool(node.get("inverse", 0))
    given = _complex(x)
    if back and half:
        return irfft(given, size, dim).unsqueeze(-1).to(x.dtype)
    found = (ifft if back else fft)(given, size, dim)
    if half:
        found = found.narrow(dim, 0, found.shape[dim] // 2 + 1)
    return T.view_as_real(found).to(x.dtype)


def _size(value: Numbers | None) -> int | None:
    return int(value.items[0]) if value is not None and value.items else None


@operator("DFT", 17, numbers=(1,))
def dft_by_attribute(node: Node, x: Tensor, size: Numbers | None = None) -> Any:
    return _transformed(node, x, _size(size), node.get("axis", 1) % x.dim())


@operator("DFT", 20, numbers=(1, 2))
def dft(
    node: Node, x: Tensor, size: Numbers | None = None, axis: Numbers | None = None
) -> Any:
    dim = _size(axis)
    return _transformed(node, x, _size(size), (-2 if dim is None else dim) % x.dim())


@operator("STFT", 17, numbers=(1, 3), settings=(2,))
def stft(
    node: Node, x: Tensor, hop: Numbers, window: Tensor | None = None,
    length: Numbers | None = None,
) -> Any:
    """Transforms of pieces of [batch, samples(, 1 or 2)]: [batch, pieces, frequencies, 2]."""
    x = x.unsqueeze(-1) if x.dim() == 2 else x
    size = _size(length)
    if size is None:
        size = int(x.shape[1] if window is None else window.shape[0])
    step = int(hop.items[0])
    if step < 1 or not 1 <= size <= x.shape[1]:
        node.refuse(f"it has pieces of {size}, {step} apart, of {x.shape[1]} samples", "fewer")
    pieces = x.unfold(1, size, step).movedim(-1, 2)
    if window is not None:
        pieces = pieces * window.reshape(1, 1, -1, 1).to(x.dtype)
    given = _complex(pieces)
    found = fft(given, size, 2)
    if node.get("onesided", 1) and x.shape[-1] == 1:
        found = found.narrow(2, 0, size // 2 + 1)
    return T.view_as_real(found).to(x.dtype)
