"""Attention and its gradient -> the template, its operands read through views of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...dim import Dim, product, unwrap
from ...graph import Node
from ...kernel import Attention, Kernel, Operand
from ...kernel.templates.attention import DRAW, INPUTS, OPTIONAL, RESULTS
from ...ops._counter import DRAW as DRAWN
from ...types import Shape, TupleType
from . import index_maps
from .body import Body
from .contraction import leaf_of, operand_index
from .index_maps import Coordinates
from .loops import dims_of
from .nest import kernel_name, params

VARIABLES = "mnefd"  # an operand's index is affine in these


class Side(NamedTuple):
    """An operand of an attention node: its name, and the place of an element for b, m, n, e, f."""

    name: str
    node: Node
    at: Coordinates


def sides(node: Node, shape: Callable[[Node], Shape]) -> list[Side]:
    """The operands of an attention node, or of its gradient."""
    q, k = node.inputs[:2]
    scores = (*shape(q)[:-1], shape(k)[-2])
    found: list[Side] = []
    for name, operand in zip(_names(node), node.inputs, strict=True):
        have = shape(operand)
        if name in OPTIONAL:
            at = index_maps.broadcast(_coordinates(OPTIONAL[name], scores), have)
        elif name in DRAW:
            at = (index_maps.exact(Dim.var(DRAW[name]), have[0]),)
        else:
            at = _coordinates(INPUTS[node.op.name][name], have)
        found.append(Side(name, operand, at))
    return found


def _names(node: Node) -> list[str]:
    """Of the operands of an attention node."""
    names = list(INPUTS[node.op.name])
    dropped = "dropout" in node.attrs
    if len(node.inputs) - dropped > len(names):
        names.append("mask")
    if dropped:
        names.append("draw" if node.inputs[-1].type == DRAWN else "kept")
    return names


def _coordinates(variables: str, shape: Shape) -> Coordinates:
    """b goes along the leading dims; every other variable has a dim of its own."""
    lead = len(shape) - len(variables) + 1
    return (
        *index_maps.unravel(Dim.var("b"), shape[:lead]),
        *(
            index_maps.exact(Dim.var(name), size)
            for name, size in zip(variables[1:], shape[lead:], strict=True)
        ),
    )


def lower_attention(body: Body, node: Node) -> Kernel:
    """The kernel of an attention node."""
    inputs: list[tuple[str, Operand]] = []
    for name, operand, at in sides(node, body.shape):
        leaf = leaf_of(body, operand)
        index = operand_index(body, operand, at, leaf, VARIABLES)
        if index is None:
            raise ValueError(f"{name} of {node} is not an affine view of a buffer")
        inputs.append((name, Operand(body.buffers[leaf], index, leaf.dtype)))
    wanted = [_wanted(output, f"o{i}") for i, output in enumerate(body.graph.outputs)]
    template = _template(node, body.shape, inputs, wanted)
    return Kernel(kernel_name(body), params(body), dims_of(body), (), template)


class Wanted(NamedTuple):
    """A result that is stored: its number, its buffer, and a permutation, or none."""

    number: int
    buffer: str
    dims: tuple[int, ...] | None = None


def _wanted(output: Node, buffer: str) -> Wanted:
    if output.op.name == "permute":
        return Wanted(output.inputs[0].attrs["index"], buffer, output.attrs["dims"])
    return Wanted(output.attrs["index"], buffer)


def whole_template(node: Node) -> Attention | None:
    """The template of an attention node, as if its operands were buffers of their own: what a
    backend is asked about. None for other nodes.
    """
    if node.op.name not in INPUTS:
        return None

    def shape(x: Node) -> Shape:
        return x.shape

    inputs = [
        (name, Operand(name, index_maps.linear_index(at, x.shape), x.dtype))
        for name, x, at in sides(node, shape)
    ]
    wanted = [Wanted(number, name) for number, name in enumerate(RESULTS[node.op.name])]
    return _template(node, shape, inputs, wanted)


def _template(
    node: Node, shape: Callable[[Node], Shape], inputs: Sequence[tuple[str, Operand]],
    wanted: Sequence[Wanted],
) -> Attention:
    q, k, v = (shape(x) for x in node.inputs[:3])
    batch = unwrap(product(q[:-2]))
    sizes = {"m": q[-2], "n": k[-2], "e": q[-1], "f": v[-1]}
    names = list(RESULTS[node.op.name].items())
    assert isinstance(node.type, TupleType)
    results: list[tuple[str, Operand]] = []
    for number, buffer, dims in wanted:
        name, variables = names[number]
        whole = (*q[:-2], *(sizes[variable] for variable in variables[1:]))
        at = _coordinates(variables, whole)
        if dims is not None:
            at, whole = tuple(at[dim] for dim in dims), tuple(whole[dim] for dim in dims)
        index = index_maps.linear_index(at, whole)
        results.append((name, Operand(buffer, index, node.type.elements[number].dtype)))
    return Attention(
        node.op.name, batch, q[-2], k[-2], q[-1], v[-1], node.attrs["causal"],
        float(node.attrs["scale"]), float(node.attrs.get("dropout", 0.0)), tuple(inputs),
        tuple(results), node.inputs[0].dtype,
    )
