"""Running sums, products and extrema -> kernels: serial along the dim, lanes beside it; or, where
a machine has more to do at a time than that, along the dim, too (scan.py)."""

from __future__ import annotations

from ... import dtypes
from ...dim import Size, floordiv, mod, product, unwrap
from ...graph import Node
from ...kernel import Carry, Kernel, Literal
from . import index_maps
from .body import Body, carrier
from .index_maps import exact
from .loops import dims_of
from .nest import Axis, hint, make_kernel, open_blocks, open_outer
from .reduction import identity
from .scan import Scan, Scratch, State, carried, scan_stages, worthwhile
from .scope import Value, Writer
from .values import Values

_TOGETHER = 4  # rows
_NAMES = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def lower_cumulative(body: Body, node: Node) -> Kernel:
    """The kernel of cumsum, cumprod, cummax or cummin."""
    (x,) = node.inputs
    shape, dim = body.shape(x), node.attrs["dim"]
    lead, suffix = shape[:dim], shape[dim + 1 :]
    if worthwhile(body, shape[dim], unwrap(product((*lead, *suffix)))):
        return _side_by_side(body, node)
    columns = Axis(unwrap(product(suffix)))
    rows = unwrap(product(lead))
    if columns.size == 1 and body.machine.sorting is None and (
        not (isinstance(rows, int) and rows < 2 * _TOGETHER) and shape[dim] != 1
    ):
        return _rows_together(body, node, rows)
    writer = Writer()
    values = Values(body, writer)
    outer = [Axis(unwrap(product(lead)))]
    length = hint(body, shape[dim])
    if columns.size == 1:
        # no lanes beside the dim
        (p, v) = (0, 0) if outer[0].size == 1 else _rows(writer, body, outer[0], length)
    else:
        (p,), v = open_blocks(writer, body, outer, columns, body.machine.columns, length, 2)
    if columns.size == 1:
        p, v = unwrap(p + v), 0
    j: Size = 0 if shape[dim] == 1 else writer.open("serial", "j", shape[dim])
    place = (*index_maps.unravel(p, lead), exact(j, shape[dim]), *index_maps.unravel(v, suffix))
    carries = _one_place(values, node, place, j)
    if j != 0:
        writer.close(carries)
    while len(writer.scopes) > 1:
        writer.close()
    return make_kernel(body, [writer.finish()], dims_of(body))


def _one_place(
    values: Values, node: Node, place: index_maps.Coordinates, j: Size
) -> list[Carry]:
    """Take a step at a place, and store what is there then."""
    (x,) = node.inputs
    value = values.value(x, values.at(place))
    flat = index_maps.linear_index(place, values.body.shape(x))
    carries, results = _step(values, node, value, j)
    for i, output in enumerate(values.body.graph.outputs):
        which = output.attrs["index"] if output.op.name == "get" else 0
        values.writer.store(f"o{i}", flat, values.stored(results[which], output.dtype))
    return carries


def _rows_together(body: Body, node: Node, rows: Size) -> Kernel:
    """Each step waits for the one before: so several rows take theirs at a time. What rows are left
    come one by one."""
    (x,) = node.inputs
    shape, dim = body.shape(x), node.attrs["dim"]
    lead, ones = shape[:dim], shape[dim + 1 :]
    length = hint(body, shape[dim])
    stages = []
    rest = mod(rows, _TOGETHER)
    for first, count, together in (
        (0, floordiv(rows, _TOGETHER), _TOGETHER), (unwrap(rows - rest), rest, 1)
    ):
        if count == 0:
            continue
        writer = Writer()
        values = Values(body, writer)
        (p,) = open_outer(writer, body, [Axis(count)], length * together, 2)
        j = writer.open("serial", "j", shape[dim])
        carries: list[Carry] = []
        for number in range(together):
            row = unwrap(p * together + (first + number))
            at = (*index_maps.unravel(row, lead), exact(j, shape[dim]))
            place = (*at, *index_maps.unravel(0, ones))
            carries += _one_place(values, node, place, j)
        while len(writer.scopes) > 1:
            writer.close(carries if writer.scope.var == "j" else ())
        stages.append(writer.finish())
    return make_kernel(body, stages, dims_of(body))


def _rows(writer: Writer, body: Body, rows: Axis, length: int) -> tuple[Size, Size]:
    """Rows are the lanes, where those are threads; a vector would gather and scatter what a row
    after the other finds in a line of the cache."""
    if body.machine.sorting is None:
        (p,) = open_outer(writer, body, [rows], length, 2)
        return p, 0
    _, v = open_blocks(writer, body, [], rows, body.machine.column_rows, length, 2)
    return 0, v


def _side_by_side(body: Body, node: Node) -> Kernel:
    (x,) = node.inputs
    shape, dim = body.shape(x), node.attrs["dim"]
    around = (*shape[:dim], *shape[dim + 1 :])
    dtype = carrier(x.dtype)
    combine = _NAMES[node.op.name]
    plain = combine in ("add", "mul")

    def place(row: Size, i: Size) -> index_maps.Coordinates:
        at = index_maps.unravel(row, around)
        return (*at[:dim], exact(i, shape[dim]), *at[dim:])

    def read(values: Values, row: Size, i: Size) -> State:
        value = values.value(x, values.at(place(row, i)))
        return (value,) if plain else (value, values.writer.index_value(i))

    def write(values: Values, row: Size, i: Size, before: State, after: State) -> None:
        flat = index_maps.linear_index(place(row, i), shape)
        for number, output in enumerate(body.graph.outputs):
            which = output.attrs["index"] if output.op.name == "get" else 0
            values.writer.store(f"o{number}", flat, values.stored(after[which], output.dtype))

    def both(writer: Writer, earlier: State, later: State) -> State:
        if plain:
            return (writer.apply(combine, dtype, earlier[0], later[0]),)
        better = _better(writer, combine, later[0], earlier[0])
        return tuple(
            writer.apply("where", a.dtype, better, a, b)
            for a, b in zip(later, earlier, strict=True)
        )

    start = (identity(combine, dtype), Literal(0, dtypes.i64))
    kinds = (dtype, dtypes.i64)
    scratch = Scratch()
    states = 1 if plain else 2
    stages = scan_stages(body, Scan(
        unwrap(product(around)), shape[dim], kinds[:states], start[:states], both, read, write
    ), scratch)
    return make_kernel(body, stages, dims_of(body), scratch.params)


def _better(writer: Writer, combine: str, value: Value, held: Value) -> Value:
    """Whether a value is taken for what was the extremum so far: the latest of equals. NaN wins,
    and stays."""
    better = writer.apply("ge" if combine == "max" else "le", dtypes.bool_, value, held)
    if value.dtype.is_float:
        is_nan = writer.apply("isnan", dtypes.bool_, value)
        better = writer.apply("logical_or", dtypes.bool_, better, is_nan)
    return better


def _step(values: Values, node: Node, value: Value, j: Size) -> tuple[list[Carry], list[Value]]:
    """One step along the dim: what is carried on, and the results there. Off the GPUs the sums and
    products of f32 are carried in f64: their roundings would add up over the steps."""
    writer = values.writer
    dtype = carrier(node.inputs[0].dtype)
    combine = _NAMES[node.op.name]
    plain = combine in ("add", "mul")
    if j == 0:
        return [], [value, Literal(0, dtypes.i64)]
    if plain and node.inputs[0].dtype is dtypes.f32 and values.body.machine.sorting is None:
        dtype = dtypes.f64
        value = values.stored(value, dtype)
    if dtype.is_float and not plain:
        return _float_extremum(writer, combine, value, j)
    start = identity(combine, dtype)
    held = carried(writer, dtype)
    if plain:
        total = writer.apply(combine, dtype, held, value)
        return [Carry(held.name, dtype, start, "set", total)], [total]
    at = carried(writer, dtypes.i64)
    better = _better(writer, combine, value, held)
    best = writer.apply("where", dtype, better, value, held)
    index = writer.apply("where", dtypes.i64, better, writer.index_value(j), at)
    carries = [
        Carry(held.name, dtype, start, "set", best),
        Carry(at.name, dtypes.i64, Literal(0, dtypes.i64), "set", index),
    ]
    return carries, [best, index]


def _float_extremum(
    writer: Writer, combine: str, value: Value, j: Size
) -> tuple[list[Carry], list[Value]]:
    """A step of cummax or cummin of floats. The next step waits for no comparison: what is largest
    so far takes no notice of a NaN before, which is carried beside it, and is what counts."""
    dtype, flag = value.dtype, dtypes.bool_
    held, lost, at = (carried(writer, kind) for kind in (dtype, dtype, dtypes.i64))
    ahead, no_less = ("gt", "ge") if combine == "max" else ("lt", "le")
    best = writer.apply("where", dtype, writer.apply(ahead, flag, held, value), held, value)
    is_nan = writer.apply("isnan", flag, value)
    nan = writer.apply("where", dtype, is_nan, value, lost)
    none = writer.apply("logical_not", flag, writer.apply("isnan", flag, nan))
    better = writer.apply("logical_and", flag, none, writer.apply(no_less, flag, value, held))
    better = writer.apply("logical_or", flag, better, is_nan)
    index = writer.apply("where", dtypes.i64, better, writer.index_value(j), at)
    carries = [
        Carry(held.name, dtype, identity(combine, dtype), "set", best),
        Carry(lost.name, dtype, Literal(0.0, dtype), "set", nan),
        Carry(at.name, dtypes.i64, Literal(0, dtypes.i64), "set", index),
    ]
    return carries, [writer.apply("where", dtype, none, best, nan), index]
