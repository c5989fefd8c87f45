"""Graphs of one program: where the model computes something else at free sizes of 1, that is a
graph of its own, and the file branches on the sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphc.export import ones
from graphc.export.contents import Contents, Variant
from graphc.ir.types import TensorType
from graphc.onnx.errors import OnnxExporterError

from .reliance import Reliance, at_ones

if TYPE_CHECKING:
    from .writer import Writer

Results = Sequence[tuple[str, TensorType]]  # the name and type of each


def sorted_out(contents: Contents) -> tuple[list[Variant], list[Variant]]:
    """The graphs for sizes of 1 that compute what the main one does, for views that differ; and
    those that do not."""
    main = contents.main
    same: list[Variant] = []
    others: list[Variant] = []
    for variant in contents.variants[1:]:
        equal = main.signature.inputs == variant.signature.inputs and ones.same_numbers(
            (main.graph, main.signature.results), (variant.graph, variant.signature.results),
            dict.fromkeys(variant.ones, 1),
        )
        (same if equal else others).append(variant)
    return same, others


def chosen(
    w: Writer, reliance: Reliance, written: Callable[[Variant], Results]
) -> Results:
    """The results of the graph that is for the sizes that there are."""
    return _chosen(w, reliance, list(reliance.others), written)


def _chosen(
    w: Writer, reliance: Reliance, left: list[Variant], written: Callable[[Variant], Results]
) -> Results:
    if not left:
        return written(reliance.main)
    first, *rest = left
    with w.inside() as nodes:
        then = written(first)
        one = _branch(w, nodes, then)
    with w.inside() as nodes:
        otherwise = _chosen(w, reliance, rest, written)
        other = _branch(w, nodes, otherwise)
    if [type_.dtype for _, type_ in then] != [type_.dtype for _, type_ in otherwise]:
        raise OnnxExporterError(
            f"the model gives other results where {' and '.join(sorted(first.ones))} is 1: another "
            "number of them, or other dtypes. Cure: torch.export.Dim(..., min=2)"
        )
    chosen = w.emit("Squeeze", at_ones(w, first.ones, reliance.ones), w.ints([0]))
    types = [type_ for _, type_ in otherwise]
    names = w.raw(
        "If", [chosen], [type_.dtype for type_ in types], then_branch=one, else_branch=other
    )
    return list(zip(names, types, strict=True))


def _branch(w: Writer, nodes: list[Any], results: Results) -> Any:
    """The nodes of a graph as a branch."""
    names = w.own(nodes, [name for name, _ in results])
    outputs = [w.value_info(n, t) for n, (_, t) in zip(names, results, strict=True)]
    return w.onnx.helper.make_graph(nodes, w.name("branch"), [], outputs)
