"""A Graph as an SVG picture: a row per Module (or source line), a column per phase.

The forward pass runs down the first column, the backward pass up the second, and the optimizer's
updates stand beside the gradients that they read. A box lists its steps by number, in the order
in which they run; frames are around the rows of one Module. Many rows are collapsed:
"blocks.0.attn" and "blocks.0.mlp" to "blocks.0".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.inspect.picture_draw import drawn
from graphc.inspect.picture_layout import COMPACT, Room, laid_out, numbered
from graphc.ir.graph import Graph, Node


def graph_svg(
    graph: Graph, numbers: Mapping[Node, int] | None = None, room: Room = COMPACT,
    notes: Mapping[Node, str] | None = None, link: Callable[[int], str] | None = None,
) -> str:
    """The graph as an SVG document; hovering shows steps in full, with their source lines.

    `numbers`: those of the steps that the nodes run as; without it, the order of the nodes.
    `notes`: what is said of a node besides; `link`: where a step's line leads to.
    """
    if numbers is None:
        numbers = numbered(graph)
    return drawn(laid_out(graph, numbers, room, notes or {}), link)
