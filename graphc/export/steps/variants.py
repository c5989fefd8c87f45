"""Size 1 of a free size of a step: a second graph, where the first does not stand for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.export import ones
from graphc.export.contents import Contents, Variant
from graphc.export.errors import ExportError
from graphc.export.signature import json_with
from graphc.export.steps import numbers
from graphc.ir import dim
from graphc.ir.record import replaced

# of the manifest's step: what all graphs have together
_COMMON = ("settings", "counters", "updates", "tables", "decided", "random")


def same(program: Contents, one: Contents, dims: Mapping[str, int]) -> bool:
    """Whether a step computes what the recording does where these dims are of size 1."""
    first, second = _computed(program, dims), _computed(one, dims)
    return first[1:] == second[1:] and ones.same(first[0], second[0], dims)


def check_common(program: Contents, one: Contents, dims: Mapping[str, int]) -> None:
    """Raise ExportError where a recording has other state, or other numbers between its calls."""
    was, now = program.step, one.step
    assert was is not None and now is not None
    for key in _COMMON:
        first, second = _at(was[key], dims), _at(now[key], dims)
        if key == "decided":
            first = [each for each in first if not _decided_by_size(each)]
        if first != second:
            raise ExportError(f"the step has other {key} there")
    if program.weights.state != one.weights.state:
        raise ExportError("the step has other state there")


def _decided_by_size(each: Mapping[str, Any]) -> bool:
    """Whether a decision is one upon sizes that are known here, and is the same here."""
    try:
        return bool(numbers.evaluate(each["expression"], {}, {}) == each["value"])
    except (*numbers.ERRORS, KeyError):
        return False


def joined(program: Contents, others: Mapping[frozenset[str], Contents]) -> Contents:
    """The step with further graphs, for sizes of 1 of these names."""
    variants, given = list(program.variants), list(program.numbers)
    arrays, step = dict(program.weights.arrays), dict(program.step or {})
    for names, one in others.items():
        own = one.main.signature
        signature = replaced(
            program.main.signature, inputs=own.inputs, results=own.results, writes=own.writes
        )
        variants.append(Variant(names, one.main.graph, signature))
        given += one.numbers
        arrays = {**one.weights.arrays, **arrays}  # a graph may read constants of its own
        assert one.step is not None
        step["computed"] = {**step["computed"], **one.step["computed"]}
    return replaced(
        program, variants=tuple(variants), numbers=tuple(given), step=step,
        weights=replaced(program.weights, arrays=arrays),
    )


def _computed(contents: Contents, dims: Mapping[str, int]) -> tuple[Any, ...]:
    """The graph with what it is given and what becomes of its outputs, numbers written out."""
    signature, step = contents.main.signature, contents.step
    assert step is not None
    inputs = [
        {"number": _at(step["computed"][source["number"]], dims)} if "number" in source else source
        for source in signature.inputs
    ]
    results = json_with(signature.results, lambda leaf: (
        {"computed": _at(leaf["computed"], dims)} if "computed" in leaf else leaf
    ))
    return ones.Computed(contents.main.graph, inputs, results), list(signature.writes)


def _at(part: Any, dims: Mapping[str, int]) -> Any:
    """JSON with numbers in it, at these sizes."""
    if isinstance(part, Mapping):
        return {key: _at(each, dims) for key, each in part.items()}
    if not isinstance(part, list):
        return part
    if len(part) == 2 and part[0] == "dim" and isinstance(part[1], str):
        size = dim.unwrap(dim.substitute(dim.parse(part[1]), dims))
        return ["constant", size] if isinstance(size, int) else ["dim", str(size)]
    return [_at(each, dims) for each in part]
