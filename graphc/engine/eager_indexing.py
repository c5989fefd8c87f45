"""Reading and writing at positions, on many numbers: the shapes that code for all sizes is made of.

Positions along a dim see what is before, along and behind it. Of whole rows, NumPy has loops as
good, but where several rows are added up in one place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..ir.op import Attrs
from ..ir.types import TensorType
from .eager_form import Form, Shape, Types, is_many

# bytes of a row that NumPy copies as fast as memory goes
_ROW = 64


def _around(shape: Any, dim: int, along: Sequence[tuple[str, int]]) -> Shape:
    """What is before, along and behind some dims, of which `along` says the sizes."""
    return (
        ("o", math.prod(shape[:dim])), *along, ("i", math.prod(shape[dim + len(along) :]))
    )


def _others(shape: Any, dim: int) -> tuple[Any, Any]:
    return shape[:dim], shape[dim + 1 :]


def _gather(types: Types, attrs: Attrs) -> Form | None:
    x: Any = types[0].shape
    index: Any = types[1].shape
    dim = attrs["dim"]
    if not x or not is_many(types[1]) or _others(x, dim) != _others(index, dim):
        return None
    places = _around(index, dim, [("k", index[dim])])
    inputs = (_around(x, dim, [("m", x[dim])]), *[places] * (len(types) - 1))
    return Form(inputs, {**attrs, "dim": 1})


def _behind(type_: TensorType, dim: int) -> int:
    """The bytes behind a dim."""
    numbers: Any = type_.shape[dim + 1 :]
    return math.prod(numbers) * type_.dtype.numpy.itemsize


def _index(types: Types, attrs: Attrs) -> Form | None:
    x, *indices = types
    last = attrs["dim"] + len(indices) - 1
    if len(indices) == 1 or _behind(x, last) >= _ROW:
        return None  # NumPy's take(), or its loop over rows
    return _indexed(x, None, indices, attrs)


def _index_put(types: Types, attrs: Attrs) -> Form | None:
    x, source, *indices = types
    if not attrs["accumulate"]:
        return None
    return _indexed(x, source, indices, attrs)


def _indexed(
    x: TensorType, source: TensorType | None, indices: Types, attrs: Attrs
) -> Form | None:
    """All positions of one shape, and a source that is one number or of the shape indexed."""
    dim, count = attrs["dim"], len(indices)
    places: Any = indices[0].shape
    if any(t.shape != places for t in indices):
        return None
    sizes: Any = x.shape
    along = [(f"m{at}", size) for at, size in enumerate(sizes[dim : dim + count])]
    line = (("k", math.prod(places)),)
    inputs = [_around(sizes, dim, along), *[line] * count]
    if source is not None:
        found = (*sizes[:dim], *places, *sizes[dim + count :])
        if source.shape not in ((), found):
            return None
        before, behind = _around(sizes, dim, along)[0], _around(sizes, dim, along)[-1]
        inputs.insert(1, (before, *line, behind) if source.shape else ())
    return Form(tuple(inputs), {**attrs, "dim": 1})


_KNOWN_WIDTH = 256  # up to which code is made for a matrix of so many columns


def _width(type_: TensorType) -> tuple[str, Any]:
    size: Any = type_.shape[1]
    return ("" if size <= _KNOWN_WIDTH else "w", size)


def _places(types: Types, rows: Any) -> list[Shape]:
    """Rows and columns, and one walk or two."""
    count: Any = types[0].shape[0]
    columns: Any = types[-2].shape[0]
    line: Shape = (("n", count),)
    return [line, line, (("m", rows),), line, (("k", columns),), line][: len(types)]


def _sparse_product(types: Types, attrs: Attrs) -> Form | None:
    values, dense, *places = types
    matrix = (("k", dense.shape[0]), _width(dense))
    inputs = ((("n", values.shape[0]),), matrix, *_places(places, places[2].shape[0]))
    return Form(inputs, attrs)  # type: ignore[arg-type]


def _sparse_sampled(types: Types, attrs: Attrs) -> Form | None:
    left, right, *places = types
    matrices = [(("m", left.shape[0]), _width(left)), (("k", right.shape[0]), _width(right))]
    return Form((*matrices, *_places(places, left.shape[0])), attrs)  # type: ignore[arg-type]


INDEXING = {
    "gather": _gather, "scatter": _gather, "index": _index, "index_put": _index_put,
    "sparse_product": _sparse_product, "sparse_sampled": _sparse_sampled,
}
