"""Reading and writing at positions held in tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.dim import product
from graphc.ir.graph import Node
from graphc.ir.types import Shape

from .movement import expand, reshape, transpose
from .rules import rule

if TYPE_CHECKING:
    from .writer import Writer

_REDUCTIONS = {"": "none", "add": "add", "mul": "mul", "amax": "max", "amin": "min"}
_EXTREMES = 18  # the opset from which on scatters know the extremes


@rule("gather")
def _gather(w: Writer, node: Node, x: str, index: str) -> Any:
    if not node.shape:
        return x
    return w.emit("GatherElements", x, index, axis=node.attrs["dim"])


@rule("scatter")
def _scatter(w: Writer, node: Node, x: str, index: str, source: str) -> Any:
    reduction = _REDUCTIONS[node.attrs["reduce"]]
    if not node.shape:
        x, index, source = (reshape(w, each, (), (1,)) for each in (x, index, source))
        found = combined(w, "ScatterElements", x, index, source, reduction)
        return reshape(w, found, (1,), ())
    return combined(w, "ScatterElements", x, index, source, reduction, axis=node.attrs["dim"])


def combined(
    w: Writer, op: str, x: str, index: str, source: str, reduction: str, **attrs: Any
) -> str:
    """A scatter, in the wider dtypes that runtimes combine in."""
    dtype = w.types[x]
    if reduction != "none":
        wide = {
            dtypes.bool_: dtypes.i32, dtypes.u8: dtypes.i32, dtypes.i8: dtypes.i32,
            dtypes.i16: dtypes.i32, dtypes.f16: dtypes.f32, dtypes.bf16: dtypes.f32,
        }.get(dtype, dtype)
        x, source = w.cast(x, wide), w.cast(source, wide)
    if reduction != "none":
        attrs["reduction"] = reduction
    if reduction in ("max", "min") and w.opset < _EXTREMES:
        w.refuse(f"ONNX has no {op} of the {reduction} at opset {w.opset}",
                 "ask for a higher opset_version")
    found: str = w.emit(op, x, index, source, **attrs)
    return w.cast(found, dtype)


@rule("index")
def _index(w: Writer, node: Node, x: str, *indices: str) -> Any:
    dim = node.attrs["dim"]
    if len(indices) == 1:
        return w.emit("Gather", x, indices[0], axis=dim)
    shape, middle = node.inputs[0].shape, _middle(node.shape, node.inputs[0].shape, node)
    first = range(dim, dim + len(indices))
    x = transpose(w, x, [*first, *(d for d in range(len(shape)) if d not in first)])
    found = w.emit("GatherND", x, _together(w, node.inputs[1:], indices, middle))
    # the dims before `dim` are behind those of the positions now
    many = len(middle)
    before = list(range(many, many + dim))
    behind = list(range(many + dim, len(node.shape)))
    return transpose(w, found, [*before, *range(many), *behind])


@rule("index_put")
def _index_put(w: Writer, node: Node, x: str, source: str, *indices: str) -> Any:
    dim, shape = node.attrs["dim"], node.shape
    first = list(range(dim, dim + len(indices)))
    middle = _broadcast([each.shape for each in node.inputs[2:]])
    order = [*first, *(d for d in range(len(shape)) if d not in first)]
    written = (*shape[:dim], *middle, *shape[dim + len(indices) :])
    source = expand(w, source, node.inputs[1].shape, written)
    places = range(dim, dim + len(middle))
    source = transpose(w, source, [*places, *(d for d in range(len(written)) if d not in places)])
    found = combined(
        w, "ScatterND", transpose(w, x, order), _together(w, node.inputs[2:], indices, middle),
        source, "add" if node.attrs["accumulate"] else "none",
    )
    return transpose(w, found, [order.index(d) for d in range(len(shape))])


def _middle(result: Shape, shape: Shape, node: Node) -> Shape:
    """The dims that the positions give: what stands in the place of those that were indexed."""
    dim, many = node.attrs["dim"], len(node.inputs) - 1
    return result[dim : len(result) - (len(shape) - dim - many)]


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of positions whose type rule has passed."""
    rank = max(len(shape) for shape in shapes)
    found: list[Any] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                found[d] = size
    return tuple(found)


def _together(w: Writer, nodes: Sequence[Node], indices: Sequence[str], middle: Shape) -> str:
    """Positions as rows, one number for each dim: [*middle, dims]."""
    columns = [
        w.emit("Unsqueeze", expand(w, index, node.shape, middle), w.ints([-1]))
        for node, index in zip(nodes, indices, strict=True)
    ]
    found: str = w.emit("Concat", *columns, axis=-1) if len(columns) > 1 else columns[0]
    return found


@rule("max_pool_grad")
def _max_pool_grad(w: Writer, node: Node, g: str, index: str) -> Any:
    """What is added at flat positions of planes: MaxUnpool gives each position one value."""
    plane = node.attrs["plane_shape"]
    rows, shape = node.inputs[0].shape, node.shape
    lead = rows[: len(rows) - len(plane)]
    flat = (*lead, product(rows[len(lead) :]))
    zeros = w.emit("Expand", w.like(0, g), w.shape((*lead, product(plane))))
    found = combined(
        w, "ScatterElements", zeros, reshape(w, index, rows, flat), reshape(w, g, rows, flat),
        "add", axis=len(lead),
    )
    return reshape(w, found, (*lead, product(plane)), shape)
