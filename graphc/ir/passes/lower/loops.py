"""Pointwise groups -> kernels: one pass over the elements of the results.

Where every buffer is walked front to back, the space is one axis of a named extent `n`, so that
equal bodies of different sizes are one kernel. Otherwise there is a parallel loop over the outer
axes and a vector loop along the axis that most memory is contiguous in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...dim import Dim, Size, ceil_div, floordiv, maximum, minimum, product, unwrap
from ...graph import Graph, Node
from ...kernel import Kernel
from ...types import Shape
from . import index_maps
from .body import Body
from .index_maps import Digit
from .moves import Condition
from .nest import (
    Access,
    Axis,
    Trial,
    accesses,
    coordinates,
    cost,
    digits,
    hint,
    make_kernel,
    merge,
    open_blocks,
    open_outer,
    vector_axis,
)
from .scope import Writer
from .stretches import Along, are_loops, is_decided, stretches
from .values import Values

_MOST_COPIES, _MOST_CODE = 8, 1024  # in loops along stretches: of the code, additions in all
_LONG = 1 << 20  # elements: the length that flat kernels, which serve every length, are cut for


def lower_loop(body: Body) -> Kernel:
    """The kernel of a pointwise group."""
    if is_flat(body.graph):
        return _lower_flat(body)
    graph = body.graph
    space = [Axis(s) for s in index_maps.common_cuts(linear_shapes(body, graph.outputs))]
    conditions: dict[Condition, None] = {}
    merged = False  # until then, what is known of an axis may not be known of one that it is in

    def trial(writer: Writer, axes: list[Axis], roots: list[Size]) -> None:
        values = Values(body, writer)
        starts = [_largest_stretch(values, axis) for axis in axes] if merged else [0 for _ in axes]
        here = [unwrap(a + b) for a, b in zip(starts, roots, strict=True)]
        _stores(values, [digits(axes, here)])
        conditions.update(values.conditions)

    found = accesses(space, trial)
    axes = merge(space, found) or [Axis(1)]
    merged = True
    axes = _joined(body, space, axes, found, conditions, trial)
    vector = vector_axis(axes, found)
    for axis in axes:
        axis.stretches = stretches(axis.size, axis.var, conditions, axis.unit)
    _keep_loops(body, axes, vector)
    if conditions:
        vector = vector_axis(axes, accesses(axes, trial))  # as it is walked then
        _keep_loops(body, axes, vector)
    writer = Writer(body.machine.hoists)
    values = Values(body, writer)
    walk(values, axes, vector, lambda places: _stores(values, places))
    while len(writer.scopes) > 1:
        writer.close()
    return make_kernel(body, [writer.finish()], dims_of(body))


def _joined(
    body: Body, space: list[Axis], axes: list[Axis], found: list[Access],
    conditions: dict[Condition, None], trial: Trial,
) -> list[Axis]:
    """The axes, of which the last is joined with those around it if it is too short for a loop of
    its own, and nothing but conditions, which stretches decide, walks these otherwise (rows of a
    few numbers under each other). `conditions`: what is asked about, in terms of these axes."""
    machine, last = body.machine, axes[-1].size
    if len(axes) == 1 or not isinstance(last, int) or last >= machine.stretch:
        return axes
    positions = {condition.position for condition in conditions}
    rest = [access for access in found if access.store or access.place not in positions]
    fewer = merge(space, rest)
    if not conditions or len(fewer) >= len(axes):
        return axes
    before = dict(conditions)
    conditions.clear()
    accesses(fewer, trial)
    asked, copies = dict(conditions), 1
    for axis in fewer:
        cut = axis.stretches = stretches(axis.size, axis.var, conditions, axis.unit)
        copies *= max(1, len(cut))
        if cut and not are_loops(cut, machine):
            copies = _MOST_COPIES + 1
    fits = copies <= _MOST_COPIES and all(
        any(is_decided(condition, axis.var, axis.unit) for axis in fewer) for condition in asked
    ) and not any(index_maps.has_division(x.place) for x in accesses(fewer, trial))
    conditions.clear()  # the last ones were of places within a stretch
    conditions.update(asked if fits else before)
    return fewer if fits else axes


def _keep_loops(body: Body, axes: list[Axis], vector: int) -> None:
    """Leave the stretches that are worth loops, inner ones before outer ones: each repeats the code
    of all within."""
    machine, copies = body.machine, 1
    most = max(_MOST_COPIES, _MOST_CODE // max(1, weight(body)))
    for i in [vector, *(i for i in reversed(range(len(axes))) if i != vector)]:
        axis = axes[i]
        if not axis.stretches:
            continue
        worth = (machine.outer_stretches and i != vector) or are_loops(axis.stretches, machine)
        if not worth or copies * len(axis.stretches) > most:
            axis.stretches = ()
        else:
            copies *= len(axis.stretches)


def _largest_stretch(values: Values, axis: Axis) -> int:
    """Where the largest stretch of an axis begins; the values are told that loops go along it."""
    if not axis.stretches:
        values.goes_along(axis.size, Dim.var(axis.var))
        return 0
    number = axis.stretches.index(max(axis.stretches))
    values.stretches[axis.var] = Along(axis.stretches[number], 0, axis.unit)
    return sum(axis.stretches[:number])


def _stores(values: Values, places: list[tuple[Digit, ...]]) -> None:
    """Evaluate every output at these places, then store them all."""
    body = values.body
    results = []
    for i, node in enumerate(body.graph.outputs):
        for place in places:
            at = values.at(coordinates(place, body.shape(node)))
            results.append((f"o{i}", values.flat(node, at), values.value(node, at), node))
    for name, index, value, node in results:
        values.writer.store(name, index, values.stored(value, node.dtype))


def weight(body: Body) -> int:
    """Cost of one element of the whole body."""
    return sum(cost(node) for node in body.graph.nodes)


def walk(
    values: Values, axes: list[Axis], vector: int,
    store: Callable[[list[tuple[Digit, ...]]], None],
) -> None:
    """Open the loops over a space, and store what is to be stored at every place: several of them,
    side by side, where an axis has a stretch for each of its few elements."""
    writer, body = values.writer, values.body
    inner = axes[vector]
    aside = _one_by_one(axes, vector)
    others = [i for i in range(len(axes)) if i not in (vector, aside)]
    outer = [axes[i] for i in others]
    width = hint(body, inner.size)
    heavy = weight(body)
    serial: list[Axis] = []
    # short vector loops: a serial loop between keeps the index arithmetic of the parallel one rare
    least = body.machine.iteration_least
    while len(outer) > 1 and width * hint(body, _count(serial)) < least and _enough(body, outer):
        serial.insert(0, outer.pop())
    if body.machine.outer_stretches:
        outer, stretched = _before_stretches(outer)
        serial = [*stretched, *serial]

    def visit(roots: list[Size]) -> None:
        at = dict(zip([*others, vector], roots, strict=True))
        places = []
        for number in range(1 if aside is None else len(axes[aside].stretches)):
            if aside is not None:
                at[aside] = number
            places.append(digits(axes, [at[i] for i in range(len(axes))]))
        store(places)

    if not serial and width > body.machine.block and not inner.stretches:
        roots, v = open_blocks(writer, body, outer, inner, body.machine.block, 1, heavy)
        for axis, root in zip(outer, roots, strict=True):
            values.goes_along(axis.size, root)
        visit([*roots, v])
        return
    loops = [("serial", f"r{i}", a) for i, a in enumerate(serial)] + [("vector", "v", inner)]
    first = loops[0][2]
    within = hint(body, _count([axis for _, _, axis in loops[1:]]))
    block = _block(body, outer, first, within)
    part: tuple[Size, Size] | None = None
    if block is None:
        roots = open_outer(writer, body, outer, hint(body, first.size) * within, heavy)
    else:
        blocks = Axis(ceil_div(first.size, block))
        *roots, number = open_outer(writer, body, [*outer, blocks], block * within, heavy)
        start = unwrap(number * block)
        part = start, minimum(unwrap(start + block), first.size)
    for axis, root in zip(outer, roots, strict=True):
        values.goes_along(axis.size, root)
    for inside in _inside(values, loops, roots, part):
        visit(inside)


def _one_by_one(axes: list[Axis], vector: int) -> int | None:
    """The axis within the vector loop's, if there is one, whose elements differ in how they are
    computed: the parts of pairs that are put together. One loop does them all."""
    for i in range(vector + 1, len(axes)):
        if axes[i].stretches and set(axes[i].stretches) == {1}:
            return i
    return None


def _before_stretches(axes: list[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes before the first that has stretches, and the others."""
    count = next((i for i, axis in enumerate(axes) if axis.stretches), len(axes))
    return axes[:count], axes[count:]


def _block(body: Body, outer: list[Axis], axis: Axis, work: int) -> int | None:
    """How much of an axis with stretches a parallel iteration goes along, where one place of it
    is `work` elements; None: all of it."""
    if not axis.stretches:
        return None
    machine, count = body.machine, hint(body, _count(outer))
    total, heavy = count * hint(body, axis.size) * work, weight(body)
    if count >= machine.parallelism or machine.one_worker(total, heavy):
        return None
    block = max(1, machine.chunk(total, heavy) // max(work, 1))
    return None if block >= hint(body, axis.size) else block


def _inside(
    values: Values, loops: list[tuple[str, str, Axis]], roots: list[Size],
    part: tuple[Size, Size] | None = None,
) -> Iterator[list[Size]]:
    """Within each nest of loops (kind, name, axis), one after the other: the roots of all axes. The
    first loop's axis is walked from the beginning of `part` to its end."""
    if not loops:
        yield roots
        return
    (kind, name, axis), *rest = loops
    if not axis.stretches:
        root = values.writer.open(kind, name, axis.size)
        values.goes_along(axis.size, root)
        yield from _inside(values, rest, [*roots, root])
        values.writer.close()
    start = 0
    for i, size in enumerate(axis.stretches):
        base: Size = 0
        extent: Size = size
        if part is not None:
            base = values.writer.index_name(maximum(part[0] - start, 0))
            extent = maximum(minimum(part[1] - start, size) - base, 0)
        values.stretches[f"{name}_{i}"] = Along(size, base, axis.unit)
        root = values.writer.open(kind, f"{name}_{i}", extent)
        yield from _inside(values, rest, [*roots, unwrap(start + base + root)])
        values.writer.close()
        start += size


def _count(axes: list[Axis]) -> Size:
    return unwrap(product(a.size for a in axes))


def _enough(body: Body, outer: list[Axis]) -> bool:
    """Whether the axes but the last still make enough parallel iterations."""
    return hint(body, _count(outer[:-1])) >= body.machine.least_parallel


def dims_of(body: Body) -> tuple[str, ...]:
    """The named dims of a body with symbolic sizes, in the kernel's names."""
    return tuple(str(new) for new in body.rename.values())


# --- shapes that are walked in one order ----------------------------------------------------------


def linear_shapes(body: Body, roots: tuple[Node, ...]) -> list[Shape]:
    """Shapes of the nodes whose elements correspond one to one, in order, to those of `roots`."""
    seen: dict[Node, None] = dict.fromkeys(roots)
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in body.buffers:
            continue
        elements = product(body.shape(node))
        for source in node.inputs:
            linear = node.op.elementwise or node.op.name == "reshape"
            if linear and source not in seen and product(body.shape(source)) == elements:
                seen[source] = None
                stack.append(source)
    return [body.shape(n) for n in seen]


def is_flat(graph: Graph) -> bool:
    """True where every value is a scalar or has all elements, in one order: buffers of one
    length walked side by side."""
    total = product(graph.outputs[0].shape)
    if any(product(n.shape) != total for n in graph.outputs):
        return False
    for node in graph.nodes:
        elements = product(node.shape)
        if elements not in (1, total):
            return False
        if node.op.name == "full" and isinstance(node.attrs["value"], Dim):
            return False  # a run-time size other than the length
        if isinstance(node.attrs.get("value"), Dim):
            return False  # the kernel needs that dim by its name
        if node.op.name in ("input", "const", "full"):
            continue
        if node.op.name == "expand":
            if product(node.inputs[0].shape) not in (1, elements):
                return False
        elif not (node.op.elementwise or node.op.name == "reshape"):
            return False
    return True


def _lower_flat(body: Body) -> Kernel:
    graph = body.graph
    total = unwrap(product(body.shape(graph.outputs[0])))
    heavy = weight(body)
    block = 1 << (body.machine.chunk(_LONG, heavy).bit_length() - 1)
    writer = Writer(body.machine.hoists)
    values = Values(body, writer)
    sizes: dict[Node, Size] = {}
    if total == 1:
        _stores(values, [()])
        return make_kernel(body, [writer.finish()], ())
    n = Dim.var("n")
    p = writer.open("parallel", "p", floordiv(n + (block - 1), block))
    start = p * block
    v = writer.open("vector", "v", minimum(block, unwrap(n - start)))
    _stores(values, [(Digit(start + v, total, 1, total),)])
    writer.close()
    writer.close()
    for node in (*graph.inputs, *graph.outputs):
        sizes[node] = n if product(node.shape) != 1 else 1
    return make_kernel(body, [writer.finish()], ("n",), sizes=sizes)
