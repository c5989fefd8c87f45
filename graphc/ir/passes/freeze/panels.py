"""Convolutions whose weights are constants read images with their channels last, and weights in
panels of the machine's tiles, which are laid out once (`ops/panels.py`).

What stands between them is computed on such values, as `passes/layout.py` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ... import dtypes
from ...dim import Size, evaluate, is_static, product, unwrap
from ...dtypes import DType
from ...graph import Builder, Graph, Node
from ...kernel.plan_last import panel_vectors
from ...kernel.plan_last_lines import vectors_of, window_of
from ...kernel.templates.operand import PanelShape
from ...machine import Machine, Tiling
from ...op import get
from ..layout import Layout, in_last_order, lies_last
from ..panels import narrowed
from ..winograd import chosen as chosen_tiles
from ..winograd import rule as tiled

LEAST = 1 << 12  # elements of weights: fewer are no work to speak of, unless images lie like that

FEW = 8  # channels, that a run of one tap is too short


@dataclass(frozen=True)
class Panels:
    """How a convolution's weights are laid out. Its operands are `narrow` where words have several
    channels: the halves that it reads, or widens; else numbers of the type that is summed."""

    shape: PanelShape
    dtype: DType

    @property
    def narrow(self) -> bool:
        return self.shape.group > 1


def lay_out(
    graph: Graph, constant: Collection[Node], machine: Machine, winograd: float = 0.0
) -> Graph:
    """The graph with such convolutions; itself where there are none to speak of. `winograd`: the
    errors that they may have, if they may be computed by tiles (`passes/winograd.py`)."""
    tiling = machine.tiling
    if tiling is None:
        return graph
    tiles = {
        node: tile for node, tile in chosen_tiles(graph, machine, winograd, constant).items()
        if node.inputs[1] in constant
    } if winograd else {}
    chosen = {
        node: panels for node in graph.nodes
        if node.op.name == "conv" and node.inputs[1] in constant and node not in tiles
        and (panels := panels_of(node, tiling))
    }
    laid_out = (*chosen, *tiles)
    if sum(_size(node.inputs[1]) for node in laid_out) < LEAST and not any(
        lies_last(node.inputs[0]) for node in laid_out
    ):
        return graph
    by_tiles, by_panels = tiled(tiles, machine), rule(chosen)
    return in_last_order(
        graph, lambda layout, node: by_tiles(layout, node) or by_panels(layout, node)
    )


def rule(chosen: Mapping[Node, Panels]) -> Callable[[Layout, Node], bool]:
    """What in_last_order makes of these convolutions."""

    def made(layout: Layout, node: Node) -> bool:
        panels = chosen.get(node)
        if panels is None:
            return False
        x, weight = narrowed(node) if panels.narrow else node.inputs
        attrs = {**node.attrs}
        attrs.pop("tf32", None)
        image, plain = layout.as_last(x), layout.as_plain(weight)
        if not panels.narrow:
            image, plain = (_of_dtype(layout, each, panels.dtype) for each in (image, plain))
        missing = -x.shape[1] % panels.shape.group
        if missing or _is_padded_before(node):
            image = _padded(layout, image, attrs["pad_low"], attrs["pad_high"], missing)
            none = (0,) * len(attrs["pad_low"])
            attrs |= {"pad_low": none, "pad_high": none}
        laid_out = _laid_out(layout.builder, plain, panels.shape)
        if panels.narrow:
            image, laid_out = (_of_dtype(layout, x, panels.dtype) for x in (image, laid_out))
        found = layout.emit(
            "conv_last", image, laid_out, outputs=weight.shape[0], group=panels.shape.group,
            **attrs,
        )
        return layout.keep(node, _of_dtype(layout, found, node.dtype))

    return made


def _padded(
    layout: Layout, image: Node, low: Sequence[int], high: Sequence[int], missing: Size
) -> Node:
    """A copy of an image with its padding, and so many more channels. The pixels of a line are one
    run, where that is how they lie."""
    *outer, width, channels = image.shape
    before: list[Size] = [0, *low, 0]
    after: list[Size] = [0, *high, missing]
    run = image
    if not missing and image.op.name != "permute":
        run = layout.reshaped(image, (*outer, unwrap(width * channels)))
        before = [0, *low[:-1], low[-1] * channels]
        after = [0, *high[:-1], high[-1] * channels]
    padded = layout.emit(
        "pad", run, low=tuple(before), high=tuple(after), interior=(0,) * len(before), value=0.0
    )
    lines = padded.shape[: len(outer)]
    return layout.reshaped(padded, (*lines, unwrap(width + low[-1] + high[-1]), channels + missing))


def _of_dtype(layout: Layout, node: Node, dtype: DType) -> Node:
    return node if node.dtype is dtype else layout.emit("cast", node, dtype=dtype)


def _is_padded_before(node: Node) -> bool:
    """Whether a copy of the image with its padding is worth it: of few channels, the taps of a
    line are then one run (`kernel/plan_last.py`)."""
    channels, attrs = node.inputs[0].shape[1], node.attrs
    return (
        isinstance(channels, int) and channels <= FEW and attrs["groups"] == 1
        and node.inputs[1].shape[-1] != 1 and attrs["dilation"][-1] == 1
        and any((*attrs["pad_low"], *attrs["pad_high"]))
    )


def panels_of(node: Node, tiling: Tiling) -> Panels | None:
    """How a convolution's weights would be laid out; None: they stay as they are."""
    weight, groups = node.inputs[1], node.attrs["groups"]
    if not all(isinstance(size, int) for size in weight.shape):
        return None
    left, right = narrowed(node)
    halves = left.dtype is right.dtype is dtypes.bf16 and "bf16" in tiling.steps
    pairs = halves and "bf16" not in tiling.slow
    outputs, channels = weight.shape[:2]
    assert isinstance(outputs, int) and isinstance(channels, int)
    if pairs and groups == 1 and (channels % 2 == 0 or channels <= FEW):
        return Panels(PanelShape(_columns(node, tiling.lanes(4), tiling), 2), node.dtype)
    if halves and (groups > 1 or not pairs):
        # the others of the same net are laid out, so those of groups would be moved around
        dtype = dtypes.f32
    elif node.dtype in (dtypes.f32, dtypes.f64):
        dtype = node.dtype
    else:
        return None
    lanes = tiling.lanes(dtype.itemsize)
    if groups == 1:
        return Panels(PanelShape(_columns(node, lanes, tiling), 1), dtype)
    if groups != outputs or channels != 1 or outputs % lanes:
        return None
    widths = range(1, tiling.vectors + 1)
    widest = max(width for width in widths if outputs // lanes % width == 0)
    return Panels(PanelShape(widest * lanes, 1), dtype)


def _columns(node: Node, lanes: int, tiling: Tiling) -> int:
    """How wide panels of all channels are."""
    (x, weight), attrs = node.inputs, node.attrs
    sizes, outputs = (*x.shape[2:], *node.shape[2:]), weight.shape[0]
    window = tuple(evaluate(size, {}) for size in weight.shape[2:])
    assert isinstance(outputs, int)
    registers = -(-outputs // lanes)
    if len(window) > 2 or set(window) == {1} or not is_static(sizes):
        return panel_vectors(registers, tiling) * lanes
    w = window_of(
        x.shape[2:], window, node.shape[2:], attrs["stride"], attrs["pad_low"],
        attrs["dilation"],
    )
    if min(*w.input, *w.out, registers) < 1:
        return panel_vectors(registers, tiling) * lanes
    return vectors_of(w, registers, tiling) * lanes


def _laid_out(builder: Builder, weight: Node, shape: PanelShape) -> Node:
    """[O, C, *K] as [panels, *K, words of C, columns * group], with zeros for the outputs that the
    last panel has too many, and channels that the last word has."""
    outputs, channels, *window = weight.shape
    assert isinstance(outputs, int) and isinstance(channels, int)
    (columns, group), rank = shape, len(weight.shape)
    panels, words = -(-outputs // columns), -(-channels // group)
    missing = panels * columns - outputs, words * group - channels
    if any(missing):
        none = (0,) * rank
        high = (*missing, *none[2:])
        weight = builder.emit(get("pad"), weight, low=none, high=high, interior=none, value=0.0)
    split = builder.emit(
        get("reshape"), weight, shape=(panels, columns, words, group, *window)
    )
    permuted = builder.emit(get("permute"), split, dims=(0, *range(4, rank + 2), 2, 1, 3))
    return builder.emit(
        get("reshape"), permuted, shape=(panels, *window, words, columns * group)
    )


def _size(node: Node) -> int:
    found = unwrap(product(node.shape))
    assert isinstance(found, int)
    return found
