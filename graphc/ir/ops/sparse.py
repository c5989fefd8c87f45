"""Products of a sparse matrix, whose entries are an ordinary tensor, with dense ones.

Of each entry there is its row and its column. Beside these lies how rows are walked: `ends` says of
each row how many entries there are up to its last one, and `order` the entries, row by row; then
the same by columns, for gradients, which walk the matrix that is turned. Each product is the
other's gradient: of C = A B, with A's entries v at rows r and columns c,

    C[r] += v B[c]      dB[c] += v dC[r]      dv = sum of dC[r] * B[c] along a row
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv, Size
from ..op import Attrs, Op, register
from ..rounding import LINEAR
from ..types import TensorType, Type
from ._rules import accumulation_dtype, cast, filled, ops, reshape
from ._types import RING, Types, fail, require_dtype, require_i64, require_one_dtype, sizes_text


def _require_places(name: str, places: Types, sizes: tuple[Size, Size, Size], env: DimEnv) -> None:
    """The places of entries, and one walk or two. `sizes`: of entries, rows and columns."""
    entries, rows, columns = sizes
    expected = (entries, entries, rows, entries, columns, entries)[: len(places)]
    for place in places:
        require_i64(name, place)
    if not all(
        place.rank == 1 and env.equal(place.shape[0], size)
        for place, size in zip(places, expected, strict=True)
    ):
        fail(f"{name}: of {entries} entries in {rows} rows and {columns} columns, expected rows, "
             "columns, and ends and order of the rows, and of the columns, got "
             + ", ".join(sizes_text(place.shape) for place in places))


def _split(name: str, types: Types) -> tuple[TensorType, TensorType, Types]:
    if len(types) not in (6, 8):
        fail(f"{name}: takes two tensors and 4 or 6 of places, got {len(types)}", TypeError)
    first, second, *places = types
    require_dtype(name, require_one_dtype(name, (first, second)), RING)
    if any(place.rank != 1 for place in places):
        fail(f"{name}: places are vectors, got {', '.join(sizes_text(p.shape) for p in places)}")
    return first, second, tuple(places)


def _product_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    name = "sparse_product"
    values, dense, places = _split(name, types)
    if values.rank != 1 or dense.rank != 2:
        fail(f"{name}: expected entries [N] and a matrix, got {sizes_text(values.shape)} and "
             f"{sizes_text(dense.shape)}")
    rows = places[2].shape[0]
    _require_places(name, places, (values.shape[0], rows, dense.shape[0]), env)
    return TensorType(values.dtype, (rows, dense.shape[1]))


def _sampled_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    name = "sparse_sampled"
    left, right, places = _split(name, types)
    if left.rank != 2 or right.rank != 2 or not env.equal(left.shape[1], right.shape[1]):
        fail(f"{name}: expected matrices with rows of one size, got {sizes_text(left.shape)} and "
             f"{sizes_text(right.shape)}")
    entries = places[0].shape[0]
    _require_places(name, places, (entries, left.shape[0], right.shape[0]), env)
    return TensorType(left.dtype, (entries,))


# --- in primitives -------------------------------------------------------------------------------


def _sampled(left: Any, right: Any, rows: Any, columns: Any, *walks: Any) -> Any:
    dtype, wide = left.type.dtype, accumulation_dtype(left.type.dtype)
    a, b = (cast(ops.index(x, at, dim=0), wide) for x, at in ((left, rows), (right, columns)))
    return cast(ops.sum(a * b, dims=(1,), keepdim=False), dtype)


def by_positions(values: Any, dense: Any, rows: Any, columns: Any, count: Size) -> Any:
    """sparse_product where nobody has said how rows, of which there are `count`, are walked."""
    dtype, wide = dense.type.dtype, accumulation_dtype(dense.type.dtype)
    taken = cast(ops.index(dense, columns, dim=0), wide)
    scaled = taken * reshape(cast(values, wide), (*values.type.shape, 1))
    zero = filled(dense, (count, dense.type.shape[1]), 0, wide)
    return cast(ops.index_put(zero, scaled, rows, dim=0, accumulate=True), dtype)


def _turned(values: Any, g: Any, places: Any, count: Size) -> Any:
    """The matrix that is turned, of `count` rows, times g."""
    rows, columns, *walks = places
    if len(walks) == 4:
        return ops.sparse_product(values, g, columns, rows, *walks[2:], *walks[:2])
    return by_positions(values, g, columns, rows, count)


# --- gradients -----------------------------------------------------------------------------------


def _product_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    (g,), (values, dense, *places) = grads, inputs
    of_values = of_dense = None
    if needs[0]:
        of_values = ops.sparse_sampled(g, dense, *places)
    if needs[1]:
        of_dense = _turned(values, g, places, dense.type.shape[0])
    return (of_values, of_dense, *[None] * len(places))


def _sampled_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    (g,), (left, right, *places) = grads, inputs
    of_left = of_right = None
    if needs[0]:
        of_left = ops.sparse_product(g, right, *places)
    if needs[1]:
        of_right = _turned(g, left, places, right.type.shape[0])
    return (of_left, of_right, *[None] * len(places))


# --- records -------------------------------------------------------------------------------------

register(
    Op(
        "sparse_product", "index", _product_type, _product_vjp,
        cost=None, rounding=LINEAR, takes_complex=True,
        doc="[R, W]: of each row, the sum of its entries times rows of dense [C, W], from entries "
        "[N], dense, rows [N], columns [N], ends [R] and order [N] of the rows, and, where "
        "gradients are to be quick, ends [C] and order [N] of the columns.",
    )
)
register(
    Op(
        "sparse_sampled", "composite", _sampled_type, _sampled_vjp, _sampled,
        cost=None, rounding=LINEAR, takes_complex=True,
        doc="[N]: of each entry, the sum of left [R, W] at its row times right [C, W] at its "
        "column; places as of sparse_product.",
    )
)
