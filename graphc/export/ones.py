"""Size 1 of a free dim: whether a program that was recorded with another size stands for it.

Inside a graph a named dim is at least 2: 1 is another thing to broadcasting, to squeeze() and to
Python's `if`. So the model is recorded with size 1, too, and both graphs are compared; a program
runs code of its own where a size is 1 (program.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

from graphc.export import containers
from graphc.export.dynamic import DynamicShapes, Range
from graphc.export.errors import ExportError
from graphc.frontend.functions.joining import cat
from graphc.ir import dim
from graphc.ir.dim import DimEnv
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.rewrite import apart, everywhere
from graphc.ir.text import print_graph

_simplify = late("graphc.ir.passes.simplify")  # passes: what loads a program runs without them
_specialise = late("graphc.ir.passes.specialise")
_TRIED = 2  # free dims: with three there were seven recordings more
Recorded = tuple[Graph, Any]  # and the JSON of the results


def several(leaves: Sequence[Any], free: Mapping[int, Mapping[int, str]]) -> list[Any]:
    """The leaves, where free dims of size 1 are of size 2: all of it twice."""
    found = list(leaves)
    for number, dims in free.items():
        for each in dims:
            if found[number].shape[each] == 1:
                found[number] = cat([found[number].detach()] * 2, each)
    return found


def settle(
    shapes: DynamicShapes, leaves: Sequence[Any], program: Recorded,
    record: Callable[[list[Any], DynamicShapes], Recorded],
) -> None:
    """Let ranges begin with 1 where the program stands for that, and with 2 elsewhere.

    `record` gives the program of other leaves. Raises ExportError where the example has size 1, and
    the program does not stand for it.
    """
    open_names = [name for name, bounds in shapes.ranges.items() if bounds.least < 2]
    kept: list[str] = []
    for name in open_names:
        tried = chain.from_iterable(combinations(kept, n) for n in range(len(kept) + 1))
        if len(open_names) <= _TRIED and all(
            _stands(program, {name, *others}, shapes, leaves, record) for others in tried
        ):
            kept.append(name)
            continue
        shapes.ranges[name] = Range(2, shapes.ranges[name].most)
        for number, dims in shapes.names.items():
            if any(leaves[number].shape[d] == 1 for d, found in dims.items() if found == name):
                raise ExportError(
                    f"{name!r} is to be free, but has size 1 in the example, for which the model "
                    "computes something else than for other sizes. Cure: give an example of size "
                    "2 or more"
                )


def _stands(
    program: Recorded, names: Collection[str], shapes: DynamicShapes, leaves: Sequence[Any],
    record: Callable[[list[Any], DynamicShapes], Recorded],
) -> bool:
    """Whether the program computes what the model does where these dims are of size 1."""
    ones = list(leaves)
    free: dict[int, dict[int, str]] = {}
    for number, dims in shapes.names.items():
        for each, name in dims.items():
            if name in names:
                ones[number] = ones[number].detach().narrow(each, 0, 1).clone()
            else:
                free.setdefault(number, {})[each] = name
    ranges = {name: bounds for name, bounds in shapes.ranges.items() if name not in names}
    try:
        other = record(several(ones, free), DynamicShapes(free, ranges))
    except Exception:  # the model's own, too: it has no size 1
        return False
    return _same(program, other, dict.fromkeys(names, 1))


def _same(program: Recorded, other: Recorded, dims: Mapping[str, int]) -> bool:
    (graph, results), (one, one_results) = program, other
    guards = {
        (g.relation, dim.substitute(g.left, dims), dim.substitute(g.right, dims), g.holds)
        for g in graph.env.guards
    }
    return (
        all((g.relation, g.left, g.right, g.holds) in guards for g in one.env.guards)
        and _at(results, dims) == _at(one_results, {})
        and _text(_specialise.at_sizes(graph, dims)) == _text(one)
    )


def _at(results: Any, dims: Mapping[str, int]) -> Any:
    """The JSON of results for these sizes: a size that is known is a value."""

    def leaf(spec: Any) -> Any:
        if "size" not in spec:
            return spec
        size = dim.unwrap(dim.substitute(dim.parse(spec["size"]), dims))
        return {"value": size} if isinstance(size, int) else {"size": str(size)}

    return containers.build(results, leaf)


def _text(graph: Graph) -> str:
    """What it computes, as text that is the same for equal graphs."""
    env = DimEnv()
    simplified = _simplify.simplify(apart(graph))
    bare = everywhere(simplified, lambda g: Graph(g.name, g.inputs, g.outputs, env))
    return print_graph(bare, places=False)
