"""winograd: convolutions by Winograd's algorithm, where somebody allows its errors.

Square filters of 3 or 5 taps, float32, stride, dilation and groups of 1, and their gradients for
the image. `choose` says how each is computed, and why: a tile of 4x4 results takes a quarter of the
multiplications, moves more numbers, and loses more of their last bits. A result is off by at most
`error_bound`, which is relative to (the largest |x| that its tile reads) * (the sum of its filter's
|w|): what no sum of these terms exceeds, though the result itself may be far smaller. As places of
a tile are sums of its numbers, an infinity or NaN makes all of its results NaN, and numbers near
the largest float overflow where the direct sum need not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from .. import dtypes
from ..cook_toom import error_bound, has_transforms
from ..dim import Size, product, unwrap
from ..dtypes import DType
from ..graph import Graph, Node
from ..machine import Machine
from ..rewrite import everywhere
from .layout import Layout, in_last_order
from .lower.moves import MOVES

TILES = (2, 4)
_WINDOWS = (3, 5)
_CONVOLUTIONS = frozenset({"conv", "conv_input_grad", "conv_last"})
_UNIT = 2.0**-24  # of a float32, rounded to nearest
_GAIN = 0.9  # of the direct sum's work: tiles that take more are not worth their errors

Sizes = tuple[int, int]


class Shapes(NamedTuple):
    """What is convolved: so many images of these sizes with `channels` that are summed over."""

    images: Size
    image: Sizes
    channels: int
    outputs: int
    results: Sizes
    window: int
    pad_low: Sizes


class Choice(NamedTuple):
    """How a convolution is computed. `tile` 0: directly, for this reason; `bound`: of the error."""

    tile: int
    bound: float
    reason: str


def winograd(
    graph: Graph, machine: Machine, limit: float, claimed: Callable[[Node], bool]
) -> Graph:
    """The graph, its sub-graphs included, with such convolutions as products of transformed tiles,
    and what stands between them with its channels last; itself where there are none. What is
    `claimed` by a routine of a backend stays."""

    def one(graph: Graph) -> Graph:
        found = chosen(graph, machine, limit)
        found = {node: tile for node, tile in found.items() if not claimed(node)}
        return in_last_order(graph, rule(found, machine)) if found else graph

    return everywhere(graph, one) if limit else graph


def chosen(
    graph: Graph, machine: Machine, limit: float, constant: Container[Node] = ()
) -> dict[Node, int]:
    """The convolutions that are better off with tiles, and whose bounds are within the limit: of
    which size. `constant`: values that are computed once."""
    found: dict[Node, int] = {}
    for node in graph.nodes:
        once = len(node.inputs) == 2 and node.inputs[1] in constant
        choice = choose(node, machine, limit, graph.env.hint, once)
        if choice is not None and choice.tile:
            found[node] = choice.tile
    return found


def rule(tiles: Mapping[Node, int], machine: Machine) -> Callable[[Layout, Node], bool]:
    """What in_last_order makes of these convolutions."""

    def made(layout: Layout, node: Node) -> bool:
        tile = tiles.get(node)
        if tile is None:
            return False
        shapes, flip = shapes_of(node), node.op.name == "conv_input_grad"
        assert isinstance(shapes, Shapes), shapes
        image, weight = layout.as_last(node.inputs[0]), layout.as_plain(node.inputs[1])
        places = {"tile": tile, "window": shapes.window, "output": shapes.results}
        tiles_ = layout.emit("winograd_input", image, pad_low=shapes.pad_low, **places)
        panels = layout.emit(
            "winograd_filter", weight, tile=tile, flip=flip, columns=_columns(machine)
        )
        products = layout.emit(
            "dot_general", tiles_, _rows(layout, panels, shapes.outputs),
            batch_a=(0,), batch_b=(0,), contract_a=(4,), contract_b=(2,),
        )
        return layout.keep(node, layout.emit("winograd_output", products, **places))

    return made


def _columns(machine: Machine) -> int:
    """How wide the panels are that filters lie in."""
    tiling = machine.tiling
    return 1 if tiling is None else tiling.columns(dtypes.f32.itemsize)


def _rows(layout: Layout, panels: Node, count: int) -> Node:
    """Panels [places, panels, k, columns] as a view [places, count, k]."""
    places, number, deep, columns = panels.shape
    rows = layout.emit("permute", panels, dims=(0, 1, 3, 2))
    rows = layout.emit("reshape", rows, shape=(places, unwrap(number * columns), deep))
    if rows.shape[1] == count:
        return rows
    return layout.emit(
        "slice", rows, starts=(0, 0, 0), stops=(places, count, deep), steps=(1, 1, 1)
    )


# --- which, and how large a tile ------------------------------------------------------------------


def shapes_of(node: Node) -> Shapes | str:
    """What a convolution of an image, or its gradient for it, convolves; or why it is none that
    can be computed by tiles."""
    attrs = node.attrs
    if node.dtype is not dtypes.f32:
        return f"it is of {node.dtype.name}: only float32 is"
    narrow = [source.name for source in map(_widened, node.inputs) if source is not None]
    if narrow:
        return f"it is of {narrow[0]} that is widened: only float32 is"
    rank = len(node.shape) - 2
    if rank != 2:
        return f"it has {rank} dims of space: only two are"
    if {*attrs["stride"], *attrs["dilation"], attrs["groups"]} != {1}:
        return "its stride, dilation or groups are not 1"
    x, weight = node.inputs
    image, results, filters = x.shape[2:], node.shape[2:], weight.shape
    if node.op.name == "conv_last":  # what freeze/ made of one
        image, results = x.shape[1:-1], node.shape[1:-1]
        filters = (attrs["outputs"], weight.shape[-2], *weight.shape[1:-2])
    if not all(isinstance(size, int) for size in (*filters, *image, *results)):
        return "its sizes, other than how many images there are, are not known"
    outputs, channels, *window = map(_known, filters)
    if window[0] != window[1] or window[0] not in _WINDOWS:
        return f"its filters are {window[0]}x{window[1]}: only 3x3 and 5x5 are"
    low: tuple[int, ...] = attrs["pad_low"]
    if node.op.name == "conv_input_grad":
        outputs, channels = channels, outputs
        low = tuple([window[0] - 1 - pad for pad in low])
    if min(low) < 0:
        return "its padding is as wide as its filters"
    return Shapes(
        x.shape[0], _pair(image), channels, outputs, _pair(results), window[0], _pair(low)
    )


def _widened(node: Node) -> DType | None:
    """The narrower floats that an operand has, where autocast widens them for a sum."""
    while node.op.name in MOVES:
        node = node.inputs[0]
    if node.op.name != "cast" or node.inputs[0].dtype.itemsize >= node.dtype.itemsize:
        return None
    return node.inputs[0].dtype


def _pair(sizes: tuple[Size, ...]) -> Sizes:
    rows, columns = map(_known, sizes)
    return rows, columns


def _known(size: Size) -> int:
    assert isinstance(size, int)
    return size


def choose(
    node: Node, machine: Machine, limit: float, hint: Callable[[Size], int], once: bool
) -> Choice | None:
    """How a convolution is computed; None of any other node. `once`: its filters are laid out
    before the first call, and what stands beside it has its channels last anyhow."""
    if node.op.name not in _CONVOLUTIONS:
        return None
    shapes = shapes_of(node)
    if isinstance(shapes, str):
        return Choice(0, 0.0, shapes)
    if machine.transform is None or (machine.tf32 and node.attrs.get("tf32")):
        return Choice(0, 0.0, f"a {machine.kind} is not known to gain from it")
    if 0 in (product(shapes.results), shapes.channels, shapes.outputs, shapes.images):
        return Choice(0, 0.0, "it is empty")
    tiles = [tile for tile in TILES if has_transforms(tile, shapes.window)]
    bounds = {tile: bound_of(tile, shapes.window, shapes.channels) for tile in tiles}
    within = [tile for tile in tiles if bounds[tile] <= limit]
    if not within:
        tile = min(tiles, key=lambda tile: bounds[tile])
        return Choice(0, 0.0, f"{name_of(tile, shapes.window)} may be off by "
                              f"{bounds[tile]:.1e}, of which {limit:.1e} is allowed")
    images = hint(shapes.images)
    best = min(within, key=lambda tile: work(shapes, images, tile, machine, once))
    if work(shapes, images, best, machine, once) > _GAIN * work(shapes, images, 0, machine, once):
        return Choice(0, 0.0, "it is faster without")
    return Choice(best, bounds[best], "")


def bound_of(tile: int, window: int, channels: int) -> float:
    """Of a float32 result's error."""
    return error_bound(tile, window, channels, _UNIT)


def name_of(tile: int, window: Size) -> str:
    """As papers call it."""
    return f"F({tile}x{tile}, {window}x{window})"


def work(shapes: Shapes, images: int, tile: int, machine: Machine, once: bool) -> int:
    """What a convolution takes, in multiplications of a product; `tile` 0: without tiles. Filters,
    and images that are turned around, count where that is not done `once`."""
    read = 0 if machine.tiling is None else machine.tiling.read_rows
    transform = machine.transform
    assert transform is not None
    weights, (height, width) = shapes.channels * shapes.outputs, shapes.results
    both = shapes.channels + shapes.outputs
    if not tile:
        return shapes.window**2 * weights * (images * height * width + read)
    places = (tile + shapes.window - 1) ** 2
    count = images * (-(-height // tile)) * (-(-width // tile))
    moved = places * count * (both + transform.beside)
    if not once:
        moved += places * weights + transform.turned * images * height * width * both
    return places * weights * (count + read) + transform.number * moved
