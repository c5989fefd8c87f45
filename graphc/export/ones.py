"""Size 1 of a free dim: whether a program that was recorded with another size stands for it.

Inside a graph a named dim is at least 2: 1 is another thing to broadcasting, to squeeze() and to
Python's `if`. So the model is recorded with size 1, too, and both graphs are compared. Where they
are the same, the program runs code of its own there (program.py); where they are not, the second
graph is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeAlias, TypeVar

from graphc.export.dynamic import DynamicShapes
from graphc.export.errors import ExportError
from graphc.export.signature import json_with
from graphc.ir import dim
from graphc.ir.dim import DimEnv
from graphc.ir.dim_bounds import decided
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.rewrite import apart, everywhere
from graphc.ir.text import print_graph

_simplify = late("graphc.ir.passes.simplify")  # passes: what loads a program runs without them
_specialise = late("graphc.ir.passes.specialise")
_TRIED = 2  # free dims whose `min` nobody gave: with three there were seven recordings more
_MOST = 4  # free dims with min=1: fifteen recordings

Made = TypeVar("Made")  # a recording, with what its owner needs of it
# the recording at sizes of 1 of these names
Record: TypeAlias = Callable[[Collection[str]], Made]
Same: TypeAlias = Callable[[Made, Made, Mapping[str, int]], bool]


def settle(
    shapes: DynamicShapes, program: Made, record: Record[Made], same: Same[Made],
    what: str = "model",
) -> dict[frozenset[str], Made]:
    """The recordings at sizes of 1 for which `program` does not stand: which is not `same`.

    The range of a name that the model cannot take at size 1 begins with 2 from then on. Raises
    ExportError where `min=1` was asked for, or the example has size 1.
    """
    found: dict[frozenset[str], Made] = {}
    kept: list[str] = []
    for name in _candidates(shapes):
        tried = chain.from_iterable(combinations(kept, n) for n in range(len(kept) + 1))
        sets = [frozenset({name, *more}) for more in tried]
        others = _others(program, sets, record, same, what)
        if isinstance(others, str):
            shapes.raised(name, 2, others)
            _check_example(shapes, name)
        else:
            kept.append(name)
            found |= others
    return found


def _candidates(shapes: DynamicShapes) -> list[str]:
    """The names that may be 1, those first whose range is asked for. The ranges of other names
    begin with 2 where there are more than a few."""
    names = [name for name, bounds in shapes.ranges.items() if bounds.least < 2]
    asked = [name for name in names if name in shapes.asked]
    if len(asked) > _MOST:
        raise ExportError(
            f"{len(asked)} free sizes have min=1, and each set of them would need a recording; the "
            f"most is {_MOST}. Cure: min=2 for those that are never 1"
        )
    rest = [name for name in names if name not in asked]
    room = max(0, _TRIED - len(asked)) if len(names) > _TRIED else len(rest)
    for name in rest[room:]:
        shapes.raised(name, 2, "size 1 was not tried, as many sizes are free (Dim(..., min=1) asks "
                      "for it)")
        _check_example(shapes, name)
    return asked + rest[:room]


def _check_example(shapes: DynamicShapes, name: str) -> None:
    if shapes.example[name] == 1:
        raise ExportError(
            f"{name!r} is to be free, but has size 1 in the example, and "
            f"{shapes.narrowed[name]}. Cure: give an example of size 2 or more"
        )


def _others(
    program: Made, sets: list[frozenset[str]], record: Record[Made], same: Same[Made], what: str
) -> dict[frozenset[str], Made] | str:
    """The recordings that differ from the program; why there is one that fails."""
    found: dict[frozenset[str], Made] = {}
    for names in sets:
        try:
            other = record(names)
        except Exception as error:  # the model's own, too: it has no size 1
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            where = " and ".join(f"{name} = 1" for name in sorted(names))
            return f"at {where} the {what} raises {type(error).__name__}: {first[:200]}"
        if not same(program, other, dict.fromkeys(names, 1)):
            found[names] = other
    return found


class Computed(NamedTuple):
    """What a recording computes: its graph, and the JSON of its inputs and results."""

    graph: Graph
    inputs: Any
    results: Any


def same(program: Computed, one: Computed, dims: Mapping[str, int]) -> bool:
    """Whether the program computes what the recording does where these dims are of size 1, and
    its guards let them be."""
    guards = {
        (g.relation, dim.substitute(g.left, dims), dim.substitute(g.right, dims), g.holds)
        for g in program.graph.env.guards
    }
    return (
        all((g.relation, g.left, g.right, g.holds) in guards for g in one.graph.env.guards)
        and all(_holds(guard) for guard in guards)
        and program.inputs == one.inputs
        and same_numbers((program.graph, program.results), (one.graph, one.results), dims)
    )


def same_numbers(
    program: tuple[Graph, Any], one: tuple[Graph, Any], dims: Mapping[str, int]
) -> bool:
    """Whether a graph, with the JSON of its results, computes what another does, where these dims
    are of size 1."""
    (graph, results), (other, other_results) = program, one
    return (
        _at(results, dims) == _at(other_results, {})
        and _text(_specialise.at_sizes(graph, dims)) == _text(other)
    )


def _holds(guard: tuple[str, Any, Any, bool]) -> bool:
    """Whether a guard that these sizes decide lets them be: m*n == m, which did not hold, does
    where n is 1, whatever m is."""
    relation, left, right, holds = guard
    known = decided(relation, left, right)
    if known is not None:
        return known == holds
    if not isinstance(left, int) or not isinstance(right, int):
        return True
    return dim.Guard(relation, left, right, holds).check({})


def _at(results: Any, dims: Mapping[str, int]) -> Any:
    """The JSON of results for these sizes: a size that is known is a value."""

    def leaf(spec: Any) -> Any:
        if "size" not in spec:
            return spec
        size = dim.unwrap(dim.substitute(dim.parse(spec["size"]), dims))
        return {"value": size} if isinstance(size, int) else {"size": str(size)}

    return json_with(results, leaf)


def _text(graph: Graph) -> str:
    """What it computes, as text that is the same for equal graphs."""
    env = DimEnv()
    simplified = _simplify.simplify(apart(graph))
    bare = everywhere(simplified, lambda g: Graph(g.name, g.inputs, g.outputs, env))
    return print_graph(bare, places=False)
