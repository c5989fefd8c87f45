"""A chain: a few operators, each of which goes element by element, and perhaps a sum of all that
these come to, as one operator.

A function of eager mode whose operators follow from types is one step of history by it: its rule
reads the function's inputs and computes what is between them and the result again, all in one loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from .autodiff import backward, vjp_program
from .dim import DimEnv
from .graph import Expr, attrs_key, const, input_
from .named import NamedTuple
from .op import Attrs, Op, get
from .rounding import ROUNDED
from .slots import Slots
from .types import TensorType


class Link(NamedTuple):
    """An operator of a chain; `sources` are numbers of the chain's inputs and of earlier links'
    results, which follow them."""

    op: Op
    attrs: Attrs
    sources: tuple[int, ...]


_chains: dict[str, Op] = {}
_links: dict[str, tuple[Link, ...]] = {}  # of each of these


def is_chain(op: Op) -> bool:
    return op.name in _chains


def links_of(op: Op) -> tuple[Link, ...]:
    """What a chain is made of."""
    return _links[op.name]


def without_reshapes(op: Op, types: Sequence[TensorType]) -> tuple[Op, list[TensorType]]:
    """A chain that begins with inputs in other shapes, as one of inputs that have those; else the
    chain itself."""
    links, count = links_of(op), len(types)
    first = next((i for i, link in enumerate(links) if link.op.name != "reshape"), 0)
    viewed = {link.sources[0]: count + i for i, link in enumerate(links[:first])}
    rest = links[first:]
    used = {s for link in rest for s in link.sources}
    if len(viewed) < first or any(s >= count or s in used for s in viewed):
        return op, list(types)
    given, place = list(types), {count + i: link.sources[0] for i, link in enumerate(links[:first])}
    for link in links[:first]:
        given[link.sources[0]] = types[link.sources[0]].with_shape(link.attrs["shape"])
    moved = [
        Link(link.op, link.attrs, tuple([place.get(s, s if s < count else s - first)
                                         for s in link.sources]))
        for link in rest
    ]
    return chain_of(moved, count), given


def chain_of(links: Sequence[Link], inputs: int) -> Op:
    """The operator that gives the last link's result; one for all calls of this kind."""
    spelled = repr((inputs, [(x.op.name, key_of(x), x.sources) for x in links]))
    name = f"chain_{hashlib.sha256(spelled.encode()).hexdigest()[:16]}"
    found = _chains.get(name)
    if found is None:
        _links[name] = tuple(links)
        found = _chains[name] = _made(name, _links[name], inputs)
    return found


def key_of(link: Any) -> Any:
    """A hashable stand-in for a link's attributes, whatever the sizes."""
    if link.op.name == "sum" and not (type(link) is Link and link.attrs):
        return ""
    return attrs_key(attrs_of(link, None))


def _made(name: str, links: tuple[Link, ...], inputs: int) -> Op:
    def infer(types: tuple[TensorType, ...], attrs: Attrs, env: DimEnv) -> Any:
        found: list[Any] = list(types)
        for link in links:
            given = tuple([found[s] for s in link.sources])
            found.append(link.op.infer(given, attrs_of(link, given[0] if given else None), env))
        return found[-1]

    def decompose(*values: Any) -> Any:
        found = list(values)
        for link in links:
            given = tuple([found[s] for s in link.sources])
            kind = given[0].type if given else None
            found.append(values[0]._emit(link.op, given, attrs_of(link, kind)))
        return found[-1]

    def vjp(grads: Any, values: Any, outs: Any, needs: Any) -> Any:
        if not are_leaves(values):
            return replayed_rule(op, grads, values, outs, needs)
        builder = values[0].builder
        result = decompose(*values)
        wanted = [x.node for x, need in zip(values, needs, strict=True) if need]
        found = iter(backward(builder, [result.node], [grads[0].node], wanted))
        made = [next(found) if need else None for need in needs]
        return [None if node is None else Expr(builder, node) for node in made]

    op = Op(
        name, "composite", infer, vjp, decompose, arity=inputs,
        cost=sum(link.op.cost or 0 for link in links), rounding=ROUNDED, takes_complex=False,
        doc=" ".join(link.op.name for link in links),
    )
    return op


def attrs_of(link: Any, first: TensorType | None) -> Attrs:
    """A link's attributes on a first operand of this type, whatever its sizes: what is filled with
    one number is that number, and a sum is over everything, but for one of a chain's that has
    attributes."""
    if link.op.name == "full":
        return {**link.attrs, "shape": ()}
    if link.op.name == "sum" and not (type(link) is Link and link.attrs):
        assert first is not None
        return {"dims": tuple(range(len(first.shape))), "keepdim": False}
    attrs: Attrs = link.attrs
    return attrs


def are_leaves(values: Sequence[Any]) -> bool:
    """Whether these are a graph's inputs, each another: a reverse walk ends there."""
    return all(type(x) is Expr and x.node.op is input_ for x in values) and (
        len({x.node for x in values}) == len(values)
    )


def replayed_rule(op: Op, grads: Any, values: Any, outs: Any, needs: Any) -> list[Any]:
    """The rule's graph, on values of whatever world, of which some may not be known."""
    given = tuple([g is not None for g in grads])
    program = vjp_program(op, [x.type for x in values], {}, needs, given)
    like = next(g for g in grads if g is not None)
    slots = Slots(program.graph, lambda node: node.op)
    found = slots.start.copy()
    for i, node in enumerate(program.graph.nodes):
        if node.op is const:
            found[i] = get("const").like(like, **node.attrs)
    heads = [
        *[grads[i] for i in program.grads], *[values[i] for i in program.inputs],
        *[outs[i] for i in program.outs],
    ]
    for slot, value in zip(slots.inputs, heads, strict=True):
        found[slot] = value
    slots.fill(found, lambda step, given, attrs: like._emit(step, tuple(given), dict(attrs)))
    gradients: list[Any] = [None] * len(values)
    for i, slot in zip(program.results, slots.outputs, strict=True):
        gradients[i] = found[slot]
    return gradients
