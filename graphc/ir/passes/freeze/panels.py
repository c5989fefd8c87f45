"""Convolutions whose weights are constants read images with their channels last, and weights in
panels of the machine's tiles, which are laid out once (`ops/panels.py`).

What stands between them is computed on such values, as `passes/layout.py` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ... import dtypes
from ...dim import product, unwrap
from ...graph import Builder, Graph, Node
from ...machine import Machine, Tiling
from ...op import get
from ..layout import Layout, in_last_order
from ..winograd import chosen as chosen_tiles
from ..winograd import rule as tiled

LEAST = 1 << 12  # elements of weights: fewer are no work to speak of

FEW = 8  # channels, that a run of one tap is too short
_SLACK = 0.35  # of a register: what a step of a panel costs besides its multiplications


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
        node: columns for node in graph.nodes
        if node.op.name == "conv" and node.inputs[1] in constant and node not in tiles
        and (columns := _columns(node, tiling))
    }
    if sum(_size(node.inputs[1]) for node in (*chosen, *tiles)) < LEAST:
        return graph
    by_tiles, by_panels = tiled(tiles, machine), _rule(chosen)
    return in_last_order(
        graph, lambda layout, node: by_tiles(layout, node) or by_panels(layout, node)
    )


def _rule(chosen: dict[Node, int]) -> Callable[[Layout, Node], bool]:
    def rule(layout: Layout, node: Node) -> bool:
        columns = chosen.get(node)
        if columns is None:
            return False
        x, weight = node.inputs
        attrs = {**node.attrs}
        attrs.pop("tf32", None)
        panels = _panels(layout.builder, layout.as_plain(weight), columns)
        image = layout.as_last(x)
        if _is_padded_before(node):
            none = (0,) * len(attrs["pad_low"])
            low, high = ((0, *attrs[name], 0) for name in ("pad_low", "pad_high"))
            image = layout.emit(
                "pad", image, low=low, high=high, interior=(0, *none, 0), value=0.0
            )
            attrs |= {"pad_low": none, "pad_high": none}
        found = layout.emit("conv_last", image, panels, outputs=weight.shape[0], **attrs)
        return layout.keep(node, found)

    return rule


def _is_padded_before(node: Node) -> bool:
    """Whether a copy of the image with its padding is worth it: of few channels, the taps of a
    line are then one run (`kernel/plan_last.py`)."""
    channels, attrs = node.inputs[0].shape[1], node.attrs
    return (
        isinstance(channels, int) and channels <= FEW and attrs["groups"] == 1
        and node.inputs[1].shape[-1] != 1 and attrs["dilation"][-1] == 1
        and any((*attrs["pad_low"], *attrs["pad_high"]))
    )


def _columns(node: Node, tiling: Tiling) -> int:
    """How wide a convolution's panels are; 0: it stays as it is."""
    weight = node.inputs[1]
    if node.dtype not in (dtypes.f32, dtypes.f64) or not all(
        isinstance(size, int) for size in weight.shape
    ):
        return 0
    lanes, groups = tiling.lanes(node.dtype.itemsize), node.attrs["groups"]
    outputs = weight.shape[0]
    assert isinstance(outputs, int)
    registers = -(-outputs // lanes)
    widths = range(1, tiling.vectors + 1)
    if groups == 1:
        best = min(widths, key=lambda width: -(-registers // width) * (width + _SLACK))
        return best * lanes
    if groups != outputs or weight.shape[1] != 1 or outputs % lanes:
        return 0
    return max(width for width in widths if registers % width == 0) * lanes


def _panels(builder: Builder, weight: Node, columns: int) -> Node:
    """[O, C, *K] as [panels, *K, C, columns], with zeros for the outputs that the last panel has
    too many."""
    outputs, channels, *window = weight.shape
    assert isinstance(outputs, int)
    panels, rank = -(-outputs // columns), len(weight.shape)
    if panels * columns != outputs:
        none = (0,) * rank
        high = (panels * columns - outputs, *none[1:])
        weight = builder.emit(get("pad"), weight, low=none, high=high, interior=none, value=0.0)
    split = builder.emit(
        get("reshape"), weight, shape=(panels, columns, channels, *window)
    )
    return builder.emit(get("permute"), split, dims=(0, *range(3, rank + 1), 2, 1))


def _size(node: Node) -> int:
    found = unwrap(product(node.shape))
    assert isinstance(found, int)
    return found
