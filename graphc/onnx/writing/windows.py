"""Pooling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import product
from graphc.ir.graph import Node
from graphc.ir.types import Shape, TupleType

from .movement import reshape
from .rules import rule

if TYPE_CHECKING:
    from .writer import Writer

_DILATED_AVERAGE = 19  # the opset from which on AveragePool knows dilations


def _images(w: Writer, node: Node, x: str) -> tuple[str, Shape]:
    """x as [N, C, *plane], and that shape: ONNX pools nothing else."""
    have = node.inputs[0].shape
    lead = have[: len(have) - len(node.attrs["window"])]
    if len(lead) == 2:
        return x, have
    shape = (1, product(lead), *have[len(lead) :])
    return reshape(w, x, have, shape), shape


def _pooled(images: Shape, result: Shape, spatial: int) -> Shape:
    """The shape of pooled images."""
    return (*images[:2], *result[len(result) - spatial :])


def _options(node: Node) -> dict[str, Any]:
    attrs = node.attrs
    return {
        "kernel_shape": list(attrs["window"]), "strides": list(attrs["stride"]),
        "pads": [*attrs["pad_low"], *attrs["pad_high"]],
    }


@rule("max_pool")
def _max_pool(w: Writer, node: Node, x: str) -> Any:
    assert isinstance(node.type, TupleType)
    shape, dtype = node.type.elements[0].shape, node.inputs[0].dtype
    if dtype is dtypes.i64:
        w.refuse("ONNX pools no int64", "convert to int32 or float64")
    if dtype in (dtypes.i16, dtypes.i32):
        x = w.cast(x, dtypes.f64)  # which has all of them
    spatial = len(node.attrs["window"])
    x, images = _images(w, node, x)
    pooled = _pooled(images, shape, spatial)
    options = {**_options(node), "dilations": list(node.attrs["dilation"])}
    if not w.reads(node, 1):
        values = reshape(w, w.emit("MaxPool", x, **options), pooled, shape)
        return w.cast(values, dtype), ""
    values, index = w.emit("MaxPool", x, outputs=2, **options)
    # ONNX counts through the whole tensor, we in each plane
    index = w.emit("Mod", index, w.size(product(images[2:])))
    values = w.cast(reshape(w, values, pooled, shape), dtype)
    return values, reshape(w, index, pooled, shape)


@rule("window_sum")
def _window_sum(w: Writer, node: Node, x: str) -> Any:
    if not node.dtype.is_float:
        return _by_convolution(w, node, w.cast(x, dtypes.f64))
    options = _options(node)
    if set(node.attrs["dilation"]) != {1}:
        if w.opset < _DILATED_AVERAGE:
            return _by_convolution(w, node, x)
        options["dilations"] = list(node.attrs["dilation"])
    spatial = len(node.attrs["window"])
    x, images = _images(w, node, x)
    mean = w.emit("AveragePool", x, count_include_pad=1, **options)
    total = w.emit("Mul", mean, w.like(math.prod(node.attrs["window"]), mean))
    return reshape(w, total, _pooled(images, node.shape, spatial), node.shape)


def _by_convolution(w: Writer, node: Node, x: str) -> str:
    """The sums as a convolution of each plane by ones."""
    attrs, have = node.attrs, node.inputs[0].shape
    spatial = len(attrs["window"])
    lead, plane = have[: len(have) - spatial], have[len(have) - spatial :]
    x = reshape(w, x, have, (product(lead), 1, *plane))
    ones = w.constant(np.ones((1, 1, *attrs["window"])), w.types[x])
    found = w.emit("Conv", x, ones, dilations=list(attrs["dilation"]), **_options(node))
    pooled = (product(lead), 1, *node.shape[len(lead) :])
    return w.cast(reshape(w, found, pooled, node.shape), node.dtype)
