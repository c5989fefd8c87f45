"""Matrix products and convolutions with what is computed on their results -> templates.

Operands are buffers seen through movement operators, as long as the element offset stays affine
in the row, column and summed position; `operand_index` says so, to fuse.py as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import dtypes
from ...dim import Dim, Size, product, recombined, unwrap
from ...graph import Node
from ...kernel import (
    Check,
    ConvGeometry,
    Convolution,
    Kernel,
    Operand,
    Partial,
    Product,
    Store,
    SumTemplate,
    Var,
)
from ...kernel.plan_convolution import by_images
from ...kernel.steps import lies_in_panels
from ...kernel.templates.convolution import OPERANDS, VARIABLES
from ...kernel.templates.operand import panels_of
from ...machine import Machine
from ...record import record
from ...types import Shape
from . import index_maps
from .body import Body, carrier
from .index_maps import Coordinates
from .loops import dims_of
from .moves import MOVES, move
from .nest import kernel_name, params
from .scope import Value, Writer
from .values import At, Values


@record(frozen=False)
class Contraction:
    """A contraction node seen as acc[b, m, n] = sum over k of left * right."""

    sizes: tuple[Size, Size, Size, Size] | ConvGeometry  # of a product: of b, m, n and k
    left: Node
    right: Node
    left_at: Coordinates | None  # None: the whole contiguous tensor
    right_at: Coordinates | None
    result: Coordinates  # of the contraction node
    variables: tuple[str, ...] = ("m", "n", "k")  # of the operands' places
    whole: tuple[Size, Size] | None = None  # a convolution's: where a whole tensor has its elements


def contraction(body: Body, node: Node, swap: bool = False) -> Contraction:
    """A contraction node's operands and places; `swap` exchanges rows and columns of a product."""
    if node.op.name == "dot_general":
        return _product(body, node, swap)
    if node.op.name == "conv_last":
        return _last(body, node)
    if _is_product(body, node):
        return _pointwise(body, node, swap)
    return _convolution(body, node)


def _free(rank: int, *taken: tuple[int, ...]) -> list[int]:
    return [d for d in range(rank) if not any(d in dims for dims in taken)]


def _product(body: Body, node: Node, swap: bool) -> Contraction:
    a, b = node.inputs
    shape_a, shape_b = body.shape(a), body.shape(b)
    attrs = node.attrs
    free_a = _free(len(shape_a), attrs["batch_a"], attrs["contract_a"])
    free_b = _free(len(shape_b), attrs["batch_b"], attrs["contract_b"])
    sizes = {
        "b": tuple(shape_a[d] for d in attrs["batch_a"]),
        "m": tuple(shape_a[d] for d in free_a),
        "n": tuple(shape_b[d] for d in free_b),
        "k": tuple(shape_a[d] for d in attrs["contract_a"]),
    }
    names = {"b": "b", "m": "n", "n": "m", "k": "k"} if swap else {v: v for v in "bmnk"}
    at = {v: index_maps.unravel(Dim.var(names[v]), s) for v, s in sizes.items()}
    a_at: list[index_maps.Coordinate] = [()] * len(shape_a)
    b_at: list[index_maps.Coordinate] = [()] * len(shape_b)
    for dims_a, dims_b, coords in (
        (attrs["batch_a"], attrs["batch_b"], at["b"]),
        (attrs["contract_a"], attrs["contract_b"], at["k"]),
    ):
        for da, db, c in zip(dims_a, dims_b, coords, strict=True):
            a_at[da] = b_at[db] = c
    for d, c in zip(free_a, at["m"], strict=True):
        a_at[d] = c
    for d, c in zip(free_b, at["n"], strict=True):
        b_at[d] = c
    total = {v: unwrap(product(s)) for v, s in sizes.items()}
    result = at["b"] + at["m"] + at["n"]
    if swap:
        swapped = (total["b"], total["n"], total["m"], total["k"])
        return Contraction(swapped, b, a, tuple(b_at), tuple(a_at), result)
    sizes_ = (total["b"], total["m"], total["n"], total["k"])
    return Contraction(sizes_, a, b, tuple(a_at), tuple(b_at), result)


def _is_product(body: Body, node: Node) -> bool:
    """Whether each position of a convolution, or of its input's gradient, is a product by itself,
    and images are better multiplied one by one than packed."""
    name, attrs = node.op.name, node.attrs
    if name == "conv_weight_grad" or attrs["groups"] != 1 or body.machine.channels_last:
        return False
    weight, tiling = body.shape(node.inputs[1]), body.machine.tiling
    neighbours = {*weight[2:], *attrs["stride"]} != {1}
    if neighbours or any((*attrs["pad_low"], *attrs["pad_high"])) or tiling is None:
        return False
    images, rows, *positions = body.shape(node)
    if node.dtype not in (dtypes.f32, dtypes.f64):
        return False
    return by_images(images, rows, product(positions), tiling.lanes(node.dtype.itemsize))


def _pointwise(body: Body, node: Node, swap: bool) -> Contraction:
    """A convolution of single positions: of each image, weights times its channels."""
    (first, second), shape = node.inputs, body.shape(node)
    of_input, back = body.shape(first), node.op.name == "conv_input_grad"
    b, m, n, k = (Dim.var(v) for v in ("bnmk" if swap else "bmnk"))
    images = index_maps.unravel(b, shape[:1])
    row, term = index_maps.unravel(m, shape[1:2]), index_maps.unravel(k, of_input[1:2])
    position = index_maps.unravel(n, shape[2:])
    ones: Coordinates = ((),) * len(shape[2:])
    weights = (*term, *row, *ones) if back else (*row, *term, *ones)
    sides = ((second, weights), (first, (*images, *term, *position)))
    sizes = [shape[0], shape[1], unwrap(product(shape[2:])), of_input[1]]
    if swap:
        sides, sizes = sides[::-1], [sizes[0], sizes[2], sizes[1], sizes[3]]
    (left, left_at), (right, right_at) = sides
    total, rows, columns, terms = sizes
    result = (*images, *row, *position)
    return Contraction((total, rows, columns, terms), left, right, left_at, right_at, result)


def _convolution(body: Body, node: Node) -> Contraction:
    first, second = node.inputs
    name, attrs = node.op.name, node.attrs
    if name == "conv":
        x, w, y = body.shape(first), body.shape(second), body.shape(node)
    elif name == "conv_input_grad":
        x, w, y = body.shape(node), body.shape(second), body.shape(first)
    else:
        x, w, y = body.shape(first), body.shape(node), body.shape(second)
    geometry = ConvGeometry(
        x[0], _known(x[1]), _known(w[0]), x[2:], tuple(int(s) for s in w[2:]), y[2:],  # type: ignore[arg-type]
        tuple(attrs["stride"]), tuple(attrs["pad_low"]), tuple(attrs["dilation"]),
        attrs["groups"],
    )
    b, m, n = (Dim.var(v) for v in "bmn")
    if name == "conv_weight_grad":
        result = (*index_maps.unravel(m, w[:1]), *index_maps.unravel(n, w[1:]))
    else:
        shape = y if name == "conv" else x
        result = (
            *index_maps.unravel(b, shape[:1]), *index_maps.unravel(m, shape[1:2]),
            *index_maps.unravel(n, shape[2:]),
        )
    if not body.machine.channels_last:
        return Contraction(geometry, second, first, None, None, result)
    left, right = (_place(body, operand) for operand in (second, first))
    return Contraction(geometry, second, first, left, right, result, VARIABLES)


def _last(body: Body, node: Node) -> Contraction:
    """Rows are positions, columns channels; what is read are whole tensors."""
    (first, second), attrs = node.inputs, node.attrs
    x, w, y = body.shape(first), body.shape(second), body.shape(node)
    geometry = ConvGeometry(
        x[0], _known(x[-1]), _known(y[-1]), x[1:-1], tuple(_known(s) for s in w[1:-2]), y[1:-1],
        tuple(attrs["stride"]), tuple(attrs["pad_low"]), tuple(attrs["dilation"]),
        attrs["groups"],
    )
    b, m, n = (Dim.var(v) for v in "bmn")
    result = (
        *index_maps.unravel(b, y[:1]), *index_maps.unravel(m, y[1:-1]),
        *index_maps.unravel(n, y[-1:]),
    )
    return Contraction(
        geometry, first, second, None, None, result,
        whole=geometry.last(_known(w[-1]) // attrs["group"], attrs["group"]),
    )


def whole_convolution(node: Node) -> Convolution | None:
    """The template of a conv_last as if its operands were buffers of their own: what a backend is
    asked about. None for other nodes."""
    if node.op.name != "conv_last" or not all(isinstance(s, int) for s in node.inputs[1].shape):
        return None
    (x, w), acc = node.inputs, dtypes.f64 if node.dtype is dtypes.f64 else dtypes.f32
    group = node.attrs["group"]
    if group > 1 and widens_operand(x) and widens_operand(w):
        x, w = x.inputs[0], w.inputs[0]
    geometry = ConvGeometry(
        x.shape[0], _known(x.shape[-1]), _known(node.shape[-1]), x.shape[1:-1],
        tuple(_known(s) for s in w.shape[1:-2]), node.shape[1:-1], tuple(node.attrs["stride"]),
        tuple(node.attrs["pad_low"]), tuple(node.attrs["dilation"]), node.attrs["groups"],
    )
    left, right = geometry.last(_known(w.shape[-1]) // group, group)
    return Convolution(
        "conv_last", geometry, Operand("x", left, x.dtype), Operand("w", right, w.dtype), acc, ()
    )


def _place(body: Body, operand: Node) -> Coordinates:
    """Of an element of a convolution's operand, by its image, channel and position."""
    image, channel, position = (Dim.var(v) for v in VARIABLES)
    shape = body.shape(operand)
    return (
        *index_maps.unravel(image, shape[:1]), *index_maps.unravel(channel, shape[1:2]),
        *index_maps.unravel(position, shape[2:]),
    )


def _known(size: Size) -> int:
    if not isinstance(size, int):
        raise ValueError(f"a convolution needs a fixed number of channels, not {size}")
    return size


_WIDER = {  # what is read by templates in place of these
    dtypes.f32: (dtypes.f16, dtypes.bf16), dtypes.i32: (dtypes.i8, dtypes.u8, dtypes.i16),
}


def widens_operand(node: Node) -> bool:
    """Whether a node is f32 made of halves, or i32 made of narrower integers, in which a template
    may read them."""
    return node.op.name == "cast" and node.inputs[0].dtype in _WIDER.get(node.dtype, ())


def has_template(node: Node, machine: Machine) -> bool:
    """Whether a contraction of this dtype is one: of floats; a product of integers, on some
    machines."""
    if node.dtype.is_float:
        return True
    integer = node.dtype in (dtypes.i64, dtypes.i32, *_WIDER[dtypes.i32])
    return machine.integers and node.op.name == "dot_general" and integer


def operand_index(
    body: Body, operand: Node, at: Coordinates | None, leaf: Node,
    variables: Sequence[str] = "mnk",
) -> Size | None:
    """The element offset in the buffer `leaf` that `operand` is a view of, for the template's
    variables; None where it is not affine in `variables` (or, for a convolution, not the whole
    tensor in order, or one whose channels lie apart)."""
    node, coordinates = operand, at
    while node is not leaf:
        if widens_operand(node):
            node = node.inputs[0]
            continue
        if node.op.name not in (MOVES if coordinates is not None else ("reshape",)):
            return None
        if coordinates is not None:
            coordinates = move(body, node, coordinates)
        node = node.inputs[0]
    if coordinates is None:
        return 0
    index = index_maps.linear_index(coordinates, body.shape(leaf))
    if isinstance(index, Dim):
        for var in variables:
            c = index_maps.coefficient(index, var)
            if c is None or (isinstance(c, Dim) and c.variables() & {"b", *variables}):
                return index if _in_panels(body, index, leaf) else None
    if variables is VARIABLES and index_maps.coefficient(index, "channel") not in (0, 1):
        return None
    return index


def _in_panels(body: Body, index: Size, leaf: Node) -> bool:
    """Whether a right operand lies in panels that are as wide as the machine's tiles, of words as
    they are multiplied."""
    tiling, panels = body.machine.tiling, panels_of(index)
    return tiling is not None and panels is not None and lies_in_panels(panels, leaf.dtype, tiling)


def lower_contraction(body: Body, node: Node) -> Kernel:
    """The kernel of a contraction and its epilogue."""
    found = _write(body, node, swap=False)
    if any(isinstance(s, Check) for s in found.epilogue):
        raise ValueError(f"{body.graph.name}: a check in a contraction's epilogue")
    if (
        isinstance(found, Product) and _stores_columns(found)
        and not panels_of(found.right.index)
        and not any(isinstance(s, Partial) for s in found.epilogue)  # over these rows
    ):
        found = _write(body, node, swap=True)
    return Kernel(kernel_name(body), params(body), dims_of(body), (), found)


def _stores_columns(c: SumTemplate) -> bool:
    """True where the first result is contiguous along m instead of n."""
    index = next((s.index for s in c.epilogue if isinstance(s, Store)), 0)
    return (
        index_maps.coefficient(index, "m") == 1 and index_maps.coefficient(index, "n") != 1
        and c.m != 1
    )


def _write(body: Body, node: Node, swap: bool) -> SumTemplate:
    t = contraction(body, node, swap)
    wide = node.dtype.itemsize == 8
    if node.dtype.is_float:
        acc = dtypes.f64 if wide else dtypes.f32
    else:
        acc = dtypes.i64 if wide else dtypes.i32
    writer = Writer()
    writer.levels = {"b": 0, "m": 0, "n": 0, "acc": 0}
    values = Values(body, writer)
    places = forward_places(body, node, t.result)
    flat = values.flat(node, values.at(t.result))
    result: Value = Var("acc", acc)
    if not node.dtype.is_float and node.dtype is not acc:
        result = writer.apply("cast", node.dtype, result)  # sums wrap
    result = values.rounded(result, node.dtype)

    def accumulator(at: At) -> Var:
        if recombined(values.flat(node, at)) != flat:
            raise ValueError(f"{node} is read at another place than its own in {body.graph.name}")
        return result  # type: ignore[return-value]

    values.bound[node] = accumulator
    stores = []
    for i, output in enumerate(body.graph.outputs):
        if output.op.name == "partial":
            continue
        at = values.at(places[output])
        value = values.stored(values.value(output, at), output.dtype)
        stores.append((f"o{i}", values.flat(output, at), value))
    for buffer, index, value in stores:
        writer.store(buffer, index, value)
    for i, output in enumerate(body.graph.outputs):
        if output.op.name == "partial":
            _partial(body, values, (places, t), i, output)
    epilogue = writer.finish()
    if isinstance(t.sizes, ConvGeometry):
        whole = t.whole or [t.sizes.planes(tensor) for tensor in OPERANDS[node.op.name][:2]]
        left, right = (
            Operand(body.buffers[leaf_of(body, side)], index, leaf_of(body, side).dtype)
            if at is None or side in body.buffers else _operand(body, side, at, VARIABLES)
            for side, at, index in zip(
                (t.left, t.right), (t.left_at, t.right_at), whole, strict=True
            )
        )
        tf32 = _narrows(body, node, left, right)
        return Convolution(node.op.name, t.sizes, left, right, acc, epilogue, tf32)
    left, right = _operand(body, t.left, t.left_at), _operand(body, t.right, t.right_at)
    tf32 = _narrows(body, node, left, right)
    return Product(*t.sizes, left, right, acc, epilogue, tf32)


def _partial(
    body: Body, values: Values, found: tuple[dict[Node, Coordinates], Contraction], number: int,
    output: Node,
) -> None:
    """A partial sum over the rows that the sums lie in."""
    (x,) = output.inputs
    places, t = found
    if isinstance(t.sizes, ConvGeometry):
        images, *positions, columns = body.shape(x)
        extents: list[Size] = [images, columns, unwrap(product(positions))]
    else:
        extents = list(t.sizes[:3])
    b, m, n = (0 if e == 1 else Dim.var(v) for v, e in zip("bmn", extents, strict=True))
    if isinstance(t.sizes, ConvGeometry):
        place = (b * extents[2] + n) * extents[1] + m
    else:
        place = (b * extents[1] + m) * extents[2] + n
    at = values.at(places[x])
    if recombined(values.flat(x, at)) != recombined(unwrap(place)):
        raise ValueError(f"{x} does not lie in the rows of {body.graph.name}")
    values.writer.partial(
        f"o{number}", values.value(x, at), output.attrs["rows"], output.attrs["kind"]
    )


def _narrows(body: Body, node: Node, left: Operand, right: Operand) -> bool:
    """Whether what is multiplied is rounded to TF32: what it says of itself, and the machine."""
    floats = left.dtype is right.dtype is dtypes.f32
    return floats and body.machine.tf32 and bool(node.attrs.get("tf32"))


def leaf_of(body: Body, node: Node) -> Node:
    """The buffer that an operand is a view of."""
    while node not in body.buffers:
        node = node.inputs[0]
    return node


def _operand(
    body: Body, node: Node, at: Coordinates | None, variables: Sequence[str] = "mnk"
) -> Operand:
    leaf = leaf_of(body, node)
    index = operand_index(body, node, at, leaf, variables)
    if index is None:
        raise ValueError(f"operand {node} is not an affine view of a buffer")
    return Operand(body.buffers[leaf], index, leaf.dtype)


def forward_places(body: Body, node: Node, result: Coordinates) -> dict[Node, Coordinates]:
    """Where each node that has one element per element of the contraction is computed."""
    places: dict[Node, Coordinates] = {node: result}
    elements = product(body.shape(node))
    for user in body.graph.nodes:
        if user in places or product(body.shape(user)) != elements:
            continue
        source = next((x for x in user.inputs if x in places), None)
        if source is None:
            continue
        if user.op.name == "permute":
            places[user] = tuple(places[source][d] for d in user.attrs["dims"])
        elif user.op.elementwise or user.op.name in ("reshape", "expand"):
            places[user] = _reshaped(places[source], body.shape(source), body.shape(user))
    return places


def _reshaped(place: Coordinates, have: Shape, want: Shape) -> Coordinates:
    return place if have == want else index_maps.reshape(place, want)


__all__ = ["Contraction", "carrier", "contraction", "forward_places",
           "has_template", "lower_contraction", "operand_index", "whole_convolution",
           "widens_operand"]
