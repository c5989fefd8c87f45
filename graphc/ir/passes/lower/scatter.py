"""Writes at data-dependent positions -> kernels with the same bits for any number of threads.

First the destination is filled, then the updates are made one after another. What runs at the
same time writes disjoint parts of the destination: leading dims, and columns of trailing dims.
16-bit floats are combined in f32 and rounded once, in a third stage. Where a machine has more to
do at a time than that, many updates are sorted by their positions first (segments.py).
"""

from __future__ import annotations

from ...dim import Size, ceil_div, minimum, product, unwrap
from ...dtypes import DType
from ...graph import Node
from ...kernel import Kernel, Literal, Param, Stmt
from ...record import record
from . import index_maps
from .body import Body, carrier
from .index_maps import Coordinates, Digit, exact
from .limits import limits
from .loops import dims_of
from .nest import Axis, hint, make_kernel, open_outer
from .scan import Scratch, close_all
from .scope import Value, Writer
from .segments import segment_stages
from .updates import broadcast_shape, index_place, position, sorted_updates
from .values import Values

_COMBINE = {"": "", "add": "add", "mul": "mul", "amax": "max", "amin": "min"}


@record(frozen=False)
class _Target:
    """Where the updates are combined: the result itself, or f32 scratch."""

    buffer: str
    dtype: DType
    combine: str


def lower_scatter(body: Body, node: Node, checked: bool = True) -> Kernel:
    """The kernel of scatter, index_put or max_pool_grad. Without checks, positions out of range
    are left out; another kernel must check the same positions."""
    combine = _combine(node)
    wide = carrier(node.dtype)
    elements = unwrap(product(body.shape(node)))
    updates = sorted_updates(body, node, combine, checked)
    if updates is not None:
        stages = [_fill(body, node, _Target("o0", node.dtype, combine))]
        scratch = Scratch()
        stages += segment_stages(body, updates, scratch)
        return make_kernel(body, stages, dims_of(body), scratch.params)
    through = bool(combine) and wide is not node.dtype
    target = _Target("s0" if through else "o0", wide if through else node.dtype, combine)
    stages = [_fill(body, node, target)]
    update = {"scatter": _scatter, "index_put": _index_put, "max_pool_grad": _unpool}
    stages.append(update[node.op.name](body, node, target, checked))
    buffers = []
    if through:
        buffers.append(Param("s0", wide, elements, "scratch"))
        stages.append(_round(elements, body.machine.block, node.dtype, target))
    return make_kernel(body, stages, dims_of(body), buffers)


def _combine(node: Node) -> str:
    if node.op.name == "scatter":
        return _COMBINE[node.attrs["reduce"]]
    if node.op.name == "index_put":
        return "add" if node.attrs["accumulate"] else ""
    return "add"


# --- stages over the whole destination ------------------------------------------------------------


def _open_flat(writer: Writer, elements: Size, block: int) -> Size:
    """A parallel and a vector loop over all elements; returns the element's offset."""
    if isinstance(elements, int) and elements <= block:
        return writer.open("vector", "v", elements)
    p = writer.open("parallel", "p", ceil_div(elements, block))
    extent = minimum(block, unwrap(elements - p * block))
    return unwrap(p * block + writer.open("vector", "v", extent))


def _fill(body: Body, node: Node, target: _Target) -> tuple[Stmt, ...]:
    """The destination before the updates: the first operand, or zeros."""
    writer = Writer()
    values = Values(body, writer)
    shape = body.shape(node)
    flat = _open_flat(writer, unwrap(product(shape)), body.machine.block)
    value: Value
    if node.op.name == "max_pool_grad":
        value = Literal(0.0 if target.dtype.is_float else 0, target.dtype)
    else:
        value = values.value(node.inputs[0], values.at(index_maps.unravel(flat, shape)))
    writer.store(target.buffer, flat, values.stored(value, target.dtype))
    return close_all(writer)


def _round(elements: Size, block: int, dtype: DType, target: _Target) -> tuple[Stmt, ...]:
    writer = Writer()
    flat = _open_flat(writer, elements, block)
    value = writer.load(target.buffer, flat, target.dtype)
    writer.store("o0", flat, writer.apply("cast", dtype, value))
    return close_all(writer)


# --- updates --------------------------------------------------------------------------------------


def _open_columns(
    writer: Writer, body: Body, lead: Size, columns: Size, updates: Size
) -> tuple[Size, Size, Size]:
    """Parallel over leading places and blocks of columns; returns both and the block's extent."""
    most = body.machine.columns
    blocks = ceil_div(columns, most)
    work = hint(body, updates) * min(hint(body, columns), most)
    p, block = open_outer(writer, body, [Axis(lead), Axis(blocks)], work, 2)
    start = unwrap(block * most)
    if isinstance(columns, int) and columns <= most:
        return p, 0, columns
    return p, start, minimum(most, unwrap(columns - start))


def _index_put(body: Body, node: Node, target: _Target, checked: bool) -> tuple[Stmt, ...]:
    _, source, *indices = node.inputs
    shape, dim = body.shape(node), node.attrs["dim"]
    k = len(indices)
    places = broadcast_shape(tuple(body.shape(i) for i in indices))
    lead, suffix = shape[:dim], shape[dim + k :]
    writer = Writer()
    values = Values(body, writer)
    count = unwrap(product(places))
    p, start, extent = _open_columns(
        writer, body, unwrap(product(lead)), unwrap(product(suffix)), count
    )
    i = 0 if count == 1 else writer.open("serial", "i", count)
    where = index_maps.unravel(i, places)
    flat, mask = index_place(values, node, where, p, checked)
    column = 0 if extent == 1 else writer.open("vector", "v", extent)
    column = unwrap(start + column)
    coordinates = (
        *index_maps.unravel(p, lead), *where, *index_maps.unravel(column, suffix)
    )
    value = values.value(source, values.at(index_maps.broadcast(coordinates, body.shape(source))))
    flat = unwrap(flat * unwrap(product(suffix)) + column)
    writer.store(
        target.buffer, flat, values.stored(value, target.dtype), mask, target.combine
    )
    return close_all(writer)


def _scatter(body: Body, node: Node, target: _Target, checked: bool) -> tuple[Stmt, ...]:
    _, index_node, source = node.inputs
    dim: int = node.attrs["dim"]
    shape, places = body.shape(node), body.shape(index_node)
    lead, along, suffix = places[:dim], places[dim], places[dim + 1 :]
    writer = Writer()
    values = Values(body, writer)
    p, start, extent = _open_columns(
        writer, body, unwrap(product(lead)), unwrap(product(suffix)), along
    )
    j = 0 if along == 1 else writer.open("serial", "j", along)
    column = 0 if extent == 1 else writer.open("vector", "v", extent)
    column = unwrap(start + column)
    coordinates: Coordinates = (
        *index_maps.unravel(p, lead), exact(j, along), *index_maps.unravel(column, suffix)
    )
    at = values.at(coordinates)
    index = values.value(index_node, at)
    place_, mask = position(
        values, index, shape[dim], dim, False, checked, limits(index_node)
    )
    place = [
        exact(index_maps.coordinate_value(c), size)
        for c, size in zip(coordinates, shape, strict=True)
    ]
    place[dim] = exact(place_, shape[dim])
    value = values.value(source, at)
    writer.store(
        target.buffer, index_maps.linear_index(tuple(place), shape),
        values.stored(value, target.dtype), mask, target.combine,
    )
    return close_all(writer)


def _unpool(body: Body, node: Node, target: _Target, checked: bool) -> tuple[Stmt, ...]:
    """Each plane by one thread, its gradients in order."""
    g, index_node = node.inputs
    shape = body.shape(g)
    spatial = len(node.attrs["plane_shape"])
    lead, pooled = shape[: len(shape) - spatial], shape[len(shape) - spatial :]
    plane = unwrap(product(body.sizes(node.attrs["plane_shape"])))
    count = unwrap(product(pooled))
    writer = Writer()
    values = Values(body, writer)
    planes = unwrap(product(lead))
    (p,) = open_outer(writer, body, [Axis(planes)], hint(body, count) * 4, 2)
    i: Size = 0 if count == 1 else writer.open("serial", "i", count)
    at = values.at(
        (*index_maps.unravel(p, lead), *index_maps.reshape(((Digit(i, count, 1, count),),), pooled))
        if count != 1 else (*index_maps.unravel(p, lead), *(() for _ in pooled))
    )
    index = values.value(index_node, at)
    dim = len(shape) - 1
    place, mask = position(values, index, plane, dim, False, checked, limits(index_node))
    value = values.value(g, at)
    writer.store(
        target.buffer, unwrap(p * plane + place), values.stored(value, target.dtype), mask,
        target.combine,
    )
    return close_all(writer)
