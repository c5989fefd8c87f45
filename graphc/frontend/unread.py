"""What a recording computes, nothing reads, and may fail all the same: a row that is looked up at a
place that does not exist. Eager mode raises, so the graph has to compute it, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.ir.graph import Builder, Node
from graphc.ir.op import Op

from .caught import FAILURES
from .context import local
from .tensor import Tensor

# where each operator's positions begin among its inputs, and the dims that they are positions in
_FIRST = {"index": 1, "gather": 1, "scatter": 1, "index_put": 2, "cross_entropy": 1, "nll_loss": 1}
_RANKED = frozenset({"sort", "topk", "cummax", "cummin"})  # (values, positions)
_SAME = frozenset({"reshape", "expand", "permute", "slice", "cast"})


def failure_of(op: Op, inputs: Sequence[Tensor]) -> type[Exception] | None:
    """What an operator raises of some values of these inputs, one of which a recording has."""
    if not op.divides:
        return FAILURES.get(op.name)
    divisor = inputs[1]
    if not inputs[0].dtype.is_integer or (
        divisor._graphc_trace is not None and _counts(divisor._graphc_traced.value)
    ):
        return None
    return RuntimeError


def _may_fail(node: Node) -> bool:
    """Whether this is an operator of the user's that refuses some values."""
    if node.backward:
        return False
    if node.op.name in FAILURES:
        return bool(node.attrs.get("check", True))
    return node.op.divides and node.dtype.is_integer and not _counts(node.inputs[1])


def _counts(divisor: Node) -> bool:
    """Whether a divisor is known not to be 0."""
    while divisor.op.name in _SAME:
        divisor = divisor.inputs[0]
    if divisor.op.name == "const":
        return bool(divisor.attrs["value"].array.all())
    return divisor.op.name == "full" and bool(divisor.attrs["value"] != 0)


def unread(builder: Builder, made: Iterable[Node], read: Sequence[Node]) -> list[Node]:
    """Of what was `made`, what may fail, and is not needed for what is `read`."""
    failing = [node for node in made if _may_fail(node)]
    if not failing or local.exporting:
        return []
    seen = _behind(read)
    checked = {place for node in seen if node.op.name in FAILURES for place in _places(node)}
    found: list[Node] = []
    for node in reversed(failing):  # what another of them needs is computed for that
        if node in seen:
            continue
        places = _places(node)
        if node.op.name in _FIRST and (checked.issuperset(places) or all(
            _exists(place, size) for place, size in places
        )):
            continue
        found.append(builder.results(node)[0])
        seen |= _behind([node])
        checked.update(places)
    return found


def _behind(nodes: Sequence[Node]) -> set[Node]:
    """The nodes, and all that they are computed from."""
    seen, rest = set(nodes), list(nodes)
    while rest:
        for node in rest.pop().inputs:
            if node not in seen:
                seen.add(node)
                rest.append(node)
    return seen


def _places(node: Node) -> list[tuple[Node, object]]:
    """Each tensor of positions, and how many there are."""
    first = _FIRST.get(node.op.name)
    if first is None:
        return []
    shape, dim = node.inputs[0].tensor_type.shape, node.attrs.get("dim", min(1, first))
    if node.op.name in ("cross_entropy", "nll_loss"):
        dim = min(1, len(shape) - 1)
    last = first + 1 if node.op.name in ("scatter", "cross_entropy", "nll_loss") else None
    return [(place, shape[dim + i]) for i, place in enumerate(node.inputs[first:last])]


def _exists(place: Node, size: object) -> bool:
    """Whether these positions are known to be there."""
    while place.op.name in _SAME:
        place = place.inputs[0]
    if place.op.name == "const":
        array = place.attrs["value"].array
        return isinstance(size, int) and bool((array >= -size).all() and (array < size).all())
    if place.op.name == "iota":
        return bool(place.tensor_type.shape[place.attrs["dim"]] == size)
    if place.op.name == "get" and place.attrs["index"] == 1:
        place = place.inputs[0]
        ranked = place.op.name in _RANKED
    else:
        ranked = place.op.name in ("argmax", "argmin")
    return ranked and bool(place.inputs[0].tensor_type.shape[place.attrs["dim"]] == size)
