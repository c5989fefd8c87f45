"""What explain() tells of convolutions where Winograd's algorithm may be used."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.engine.built import Built
from graphc.inspect.report import short_path
from graphc.ir.graph import Graph, Node
from graphc.ir.passes.winograd import bound_of, choose, name_of


def tile_lines(built: Built) -> Iterator[str]:
    """A line for each convolution: its tile and how far its results may be off, or why it is
    computed directly; no lines where nothing is allowed."""
    limit = built.config.winograd
    if limit:
        yield from _lines(built, built.graph, limit)


def _lines(built: Built, graph: Graph, limit: float) -> Iterator[str]:
    for node in graph.nodes:
        for body in node.graphs:
            yield from _lines(built, body, limit)
        told = _told(built, node, limit)
        if told:
            where = f" at {short_path(node.place)}" if node.place else ""
            yield f"convolution{where}: {told}"


def _told(built: Built, node: Node, limit: float) -> str:
    machine = built.backend.machine
    if node.op.name == "winograd_output":  # of a program whose filters are constants
        channels = node.inputs[0].inputs[0].shape[-1]
        assert isinstance(channels, int)
        tile, window = node.attrs["tile"], node.attrs["window"]
        return _kept(name_of(tile, window), bound_of(tile, window, channels))
    once = node.op.name == "conv_last"
    choice = choose(node, machine, limit, built.graph.env.hint, once)
    if choice is None:
        return ""
    if built.backend.claims(node, machine):
        return "directly, as the backend has a routine for it"
    if not choice.tile:
        return f"directly: {choice.reason}"
    return _kept(name_of(choice.tile, node.inputs[1].shape[-1]), choice.bound)


def _kept(name: str, bound: float) -> str:
    return (
        f"{name}, off by at most {bound:.1e} of the largest number read times the sum of the "
        "filter's, without signs"
    )
