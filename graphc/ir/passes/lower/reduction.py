"""Reductions as carried values: what they start from, how they combine, what they end as."""

from __future__ import annotations

from ... import dtypes
from ...dim import Size
from ...dtypes import DType
from ...graph import Node
from ...kernel import Carry, Literal, Var
from ...kernel import combine as combining
from .body import carrier
from .index_maps import Digit, coordinate_value, linear_index
from .nest import Axis, coordinates
from .scope import Value, Writer
from .values import At, Values

COMBINES = {
    "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "any": "or", "all": "and",
    "argmax": "argmax", "argmin": "argmin",
}


def identity(combine: str, dtype: DType) -> Literal:
    """What a reduction starts from."""
    return Literal(combining.identity(combine, dtype), dtype)


def partial_names(node: Node) -> tuple[str, ...]:
    """One per carry of the reduction: the value, and for arg-reductions the index."""
    return ("value", "index") if node.op.family == "arg_reduce" else ("value",)


def carries_of(values: Values, node: Node, at: At) -> list[Carry]:
    """The carries of a reduction whose input is read at a place of the innermost loop."""
    writer = values.writer
    (source,) = node.inputs
    combine = COMBINES[node.op.name]
    dtype = carrier(source.dtype)
    value = values.value(source, at)
    made = [_carry(values, dtype, identity(combine, dtype), combine, value)]
    if node.op.family == "arg_reduce":
        position = writer.index_value(coordinate_value(at.coordinates[node.attrs["dim"]]))
        made.append(_carry(values, dtypes.i64, Literal(0, dtypes.i64), "index", position))
    return made


def _carry(values: Values, dtype: DType, init: Literal, combine: str, value: Value) -> Carry:
    name = values.writer.fresh("c")
    values.writer.levels[name] = len(values.writer.scopes) - 1
    return Carry(name, dtype, init, combine, value)


def combined(values: Values, node: Node, parts: list[Value]) -> list[Carry]:
    """Carries that combine the partial results `parts` of one reduction."""
    combine = COMBINES[node.op.name]
    dtype = parts[0].dtype
    made = [_carry(values, dtype, identity(combine, dtype), combine, parts[0])]
    for part in parts[1:]:
        made.append(_carry(values, part.dtype, Literal(0, part.dtype), "index", part))
    return made


def final_value(values: Values, node: Node, carried: list[Value]) -> Value:
    """A finished reduction as the value of its node."""
    if node.op.family == "arg_reduce":
        return carried[1]
    return values.rounded(carried[0], node.dtype)


def bind_result(values: Values, node: Node, result: Value, place: tuple[Digit, ...]) -> None:
    """Let the rest of the kernel read a finished reduction at this kept place."""
    flat = linear_index(
        coordinates(place, values.body.shape(node)), values.body.shape(node)
    )
    values.bound[node] = _Reader(values, node, result, flat)


class _Reader:
    def __init__(self, values: Values, node: Node, result: Value, flat: Size) -> None:
        self.values, self.node, self.result, self.flat = values, node, result, flat

    def __call__(self, at: At) -> Value | None:
        if self.values.flat(self.node, at) != self.flat:
            raise ValueError(f"{self.node} is read at a place where it is not made")
        return self.result


def close_with_carries(writer: Writer, loops: list[Axis], carries: list[Carry]) -> list[Value]:
    """Close the reduced loops, handing the carries outwards; returns the final values."""
    if not loops:  # one element: its value is the result
        return [writer.let(c.next) for c in carries]
    for depth in range(len(loops)):
        writer.close(carries)
        outer = []
        if depth + 1 < len(loops):
            for c in carries:
                name = writer.fresh("c")
                writer.levels[name] = len(writer.scopes) - 1
                outer.append(Carry(name, c.dtype, c.init, c.combine, Var(c.name, c.dtype)))
            carries = outer
    return [Var(c.name, c.dtype) for c in carries]
