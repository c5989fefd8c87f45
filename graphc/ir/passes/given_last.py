"""given_last: convolutions of images that lie with their channels last (`engine/orders.py`: an
argument's memory) read them where they are.

Their weights, which are no constants (`freeze/` sees to those), are laid out in panels at each
call; results have their channels last, and so has what is computed of them. Where gradients are
computed as well, images have to lie channel after channel for those of weights: such a graph stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dim import product, unwrap
from ..graph import Graph, Node
from ..late import late
from ..machine import Machine
from .layout import Layout, in_last_order, lies_last
from .winograd import chosen

if TYPE_CHECKING:
    from .freeze import panels
else:  # where there are such images
    panels = late("graphc.ir.passes.freeze.panels")

# Elements of an image and its result for each of the weights, at least: laying these out takes as
# long as turning 1 (float32) or 2 (bfloat16) around.
LEAST = 4

_GRADIENTS = frozenset({"conv_input_grad", "conv_weight_grad"})


def given_last(graph: Graph, machine: Machine, winograd: float = 0.0) -> Graph:
    """The graph with such convolutions; itself where there are none. `winograd`: the errors that
    convolutions may have, of which some are done by tiles."""
    tiling = machine.tiling
    convolutions = [node for node in graph.nodes if node.op.name == "conv"]
    if (
        tiling is None or machine.channels_last or not convolutions
        or not any(lies_last(node) for node in graph.nodes)
        or any(node.op.name in _GRADIENTS for node in graph.nodes)
    ):
        return graph
    tiles = chosen(graph, machine, winograd) if winograd else {}
    laid_out, read = panels.rule({
        node: found for node in convolutions
        if node not in tiles and _is_wide(node) and (found := panels.panels_of(node, tiling))
    }), list[Node]()

    def made(layout: Layout, node: Node) -> bool:
        if node.inputs[0] not in layout.last or not laid_out(layout, node):
            return False
        read.append(node)
        return True

    rewritten = in_last_order(graph, made)
    return rewritten if read else graph


def _is_wide(node: Node) -> bool:
    """Whether a convolution's weights are few beside its image; so they are where sizes are not
    known."""
    (x, weight), sizes = node.inputs, list[int]()
    for value in (x, node, weight):
        size = unwrap(product(value.shape))
        if not isinstance(size, int):
            return True
        sizes.append(size)
    image, result, weights = sizes
    return image + result >= LEAST * weights
