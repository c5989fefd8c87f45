"""Winograd's transforms -> kernels: a tile for each iteration, its channels in the lanes.

All places of a tile are in registers at once. A matrix is applied along one dim and then along the
other; rows of points p and -p share their halves. What is computed on the results, at each place of
an output's tile, is stored with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from ...cook_toom import Matrix, transforms
from ...dim import Size, unwrap
from ...dtypes import DType
from ...graph import Node
from ...kernel import Kernel, Literal
from .body import Body, carrier
from .contraction import forward_places
from .index_maps import Coordinates, exact
from .loops import dims_of
from .moves import Condition
from .nest import Axis, make_kernel, open_outer
from .scope import Value, Writer
from .values import At, Values

_WORK = 4  # additions for each place of a tile: of two rows, and a load or a store


def lower_winograd(body: Body, node: Node) -> Kernel:
    """The kernel of a transform, with what is computed on an output's results."""
    values = Values(body, Writer(body.machine.hoists))
    _LOWERED[node.op.name](values, node)
    while len(values.writer.scopes) > 1:
        values.writer.close()
    return make_kernel(body, [values.writer.finish()], dims_of(body))


# --- matrices -------------------------------------------------------------------------------------


def _applied(writer: Writer, dtype: DType, matrix: Matrix, terms: Sequence[Value]) -> list[Value]:
    """matrix @ terms."""
    results: list[Value | None] = [None] * len(matrix)
    for i, row in enumerate(matrix):
        if results[i] is not None:
            continue
        for j in range(i + 1, len(matrix)):
            if results[j] is None and _mirrors(row, matrix[j]):
                same = [a if a == b else Fraction(0) for a, b in zip(row, matrix[j], strict=True)]
                other = [a - b for a, b in zip(row, same, strict=True)]
                even = _combined(writer, dtype, same, terms)
                odd = _combined(writer, dtype, other, terms)
                results[i] = writer.apply("add", dtype, even, odd)
                results[j] = writer.apply("sub", dtype, even, odd)
                break
        else:
            results[i] = _combined(writer, dtype, row, terms)
    return [value for value in results if value is not None]


def _mirrors(row: Sequence[Fraction], other: Sequence[Fraction]) -> bool:
    """Whether two rows are the same but for signs, some of which differ and some do not."""
    signs = {a == b for a, b in zip(row, other, strict=True) if a or b}
    return len(signs) == 2 and all(abs(a) == abs(b) for a, b in zip(row, other, strict=True))


def _combined(
    writer: Writer, dtype: DType, numbers: Sequence[Fraction], terms: Sequence[Value]
) -> Value:
    """The sum of numbers * terms, one after another."""
    found: Value | None = None
    for number, term in zip(numbers, terms, strict=True):
        if not number:
            continue
        factor = Literal(float(number), dtype)
        if found is None:
            found = term if number == 1 else writer.apply("mul", dtype, term, factor)
        elif abs(number) == 1:
            found = writer.apply("add" if number == 1 else "sub", dtype, found, term)
        else:
            found = writer.apply("fma", dtype, term, factor, found)
    return Literal(0.0, dtype) if found is None else found


def _along_both(
    writer: Writer, dtype: DType, matrix: Matrix, plane: Sequence[Sequence[Value]]
) -> list[list[Value]]:
    """matrix @ plane @ matrix^T."""
    columns = [_applied(writer, dtype, matrix, column) for column in zip(*plane, strict=True)]
    return [_applied(writer, dtype, matrix, row) for row in zip(*columns, strict=True)]


# --- the three steps ------------------------------------------------------------------------------


def _open(values: Values, axes: Sequence[Size], lanes: Size, places: int) -> list[Size]:
    """A loop over tiles, and the lanes of one: the position along each."""
    writer, body = values.writer, values.body
    work = places * (lanes if isinstance(lanes, int) else 1)
    roots = open_outer(writer, body, [Axis(size) for size in axes], work, _WORK)
    return [*roots, 0 if lanes == 1 else writer.open("vector", "v", lanes)]


def _place(roots: Sequence[Size], shape: Sequence[Size]) -> Coordinates:
    return tuple([exact(root, size) for root, size in zip(roots, shape, strict=True)])


def _input(values: Values, node: Node) -> None:
    (x,), attrs = node.inputs, node.attrs
    shape, out = values.body.shape(x), values.body.shape(node)
    tile, window = attrs["tile"], attrs["window"]
    size = tile + window - 1
    n, row, column, c = _open(values, out[1:4], out[4], size * size)
    starts = [
        unwrap(root * tile - low) for root, low in zip((row, column), attrs["pad_low"], strict=True)
    ]

    def load(i: int, j: int) -> Value:
        at = (unwrap(starts[0] + i), unwrap(starts[1] + j))
        conditions: list[Condition] = []
        for d, step in enumerate((i, j)):
            low, high = attrs["pad_low"][d], shape[1 + d]
            last = (attrs["output"][d] - 1) // tile * tile - low + step
            if step < low or not isinstance(high, int) or last >= high:
                conditions.append(Condition(at[d], 0, high))
        return values.value(x, values.at(_place((n, *at, c), shape), tuple(conditions)))

    plane = [[load(i, j) for j in range(size)] for i in range(size)]
    _store_places(values, node, transforms(tile, window).input, plane, (n, row, column, c))


def _filter(values: Values, node: Node) -> None:
    (w,), attrs = node.inputs, node.attrs
    shape, out = values.body.shape(w), values.body.shape(node)
    wide, window, places = shape[1 if attrs["flip"] else 0], shape[2], out[0]
    assert isinstance(window, int) and isinstance(places, int)
    panel, k, column = _open(values, out[1:3], out[3], places)
    n = unwrap(panel * attrs["columns"] + column)
    partial_panel = unwrap(out[1] * attrs["columns"]) != wide
    conditions = (Condition(n, 0, wide),) if partial_panel else ()
    pair = (k, n) if attrs["flip"] else (n, k)
    taps = range(window - 1, -1, -1) if attrs["flip"] else range(window)
    plane = [
        [values.value(w, values.at(_place((*pair, i, j), shape), conditions)) for j in taps]
        for i in taps
    ]
    matrix = transforms(attrs["tile"], window).filter
    _store_places(values, node, matrix, plane, (panel, k, column))


def _store_places(
    values: Values, node: Node, matrix: Matrix, plane: list[list[Value]], roots: Sequence[Size]
) -> None:
    """Transform a tile, and store each of its places among those of the other tiles."""
    found = _along_both(values.writer, carrier(node.dtype), matrix, plane)
    shape = values.body.shape(node)
    for number, value in enumerate(each for row in found for each in row):
        index = values.flat(node, values.at(_place((number, *roots), shape)))
        values.writer.store("o0", index, values.stored(value, node.dtype))


def _output(values: Values, node: Node) -> None:
    (p,), attrs, body = node.inputs, node.attrs, values.body
    shape, out = body.shape(p), body.shape(node)
    tile = attrs["tile"]
    size = tile + attrs["window"] - 1
    n, row, column, o = _open(values, shape[1:4], shape[4], size * size)
    plane = [
        [
            values.value(p, values.at(_place((i * size + j, n, row, column, o), shape)))
            for j in range(size)
        ]
        for i in range(size)
    ]
    wide = carrier(node.dtype)
    matrix = transforms(tile, attrs["window"]).output
    found = _along_both(values.writer, wide, matrix, plane)
    for i, results in enumerate(found):
        for j, result in enumerate(results):
            at = (unwrap(row * tile + i), unwrap(column * tile + j))
            conditions = tuple([
                Condition(at[d], 0, attrs["output"][d]) for d, step in enumerate((i, j))
                if attrs["output"][d] % tile and step >= attrs["output"][d] % tile
            ])
            _store_results(values, node, _place((n, *at, o), out), conditions, result)


def _store_results(
    values: Values, node: Node, place: Coordinates, conditions: tuple[Condition, ...], result: Value
) -> None:
    """What is computed on one result, where it is none of those that a last tile has too many."""
    rounded = values.rounded(result, node.dtype)
    values.bound[node] = partial(_same, rounded)
    places = forward_places(values.body, node, place)
    stores: list[tuple[str, Size, Value]] = []
    for i, output in enumerate(values.body.graph.outputs):
        at = values.at(places[output], conditions)
        value = values.stored(values.value(output, at), output.dtype)
        stores.append((f"o{i}", values.flat(output, at), value))
    mask = values.mask(conditions)
    for buffer, index, value in stores:
        values.writer.store(buffer, index, value, mask)


def _same(value: Value, at: At) -> Value:
    return value


_LOWERED: dict[str, Callable[[Values, Node], None]] = {
    "winograd_input": _input, "winograd_filter": _filter, "winograd_output": _output,
}
