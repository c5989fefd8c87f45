"""Several tensors as one, and rearrangements that copy: cat, stack, flip, roll, tril, pad-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir import dtypes, ops

from .. import promote
from ..context import local
from ..dispatch import apply
from ..errors import kind_name, located, warn_once
from ..ownership import owns_result
from ..recalled import recalled
from ..replayed import replayed
from ..result_layouts import in_rows
from ..tensor import Tensor
from .arguments import (
    as_sequence,
    environment,
    named,
    recorded_as,
    shape,
    variadic,
    with_out,
    wrap_dim,
    wrap_dims,
)
from .few_joined import CatBackward0, StackBackward0, few_joined
from .parts import slice_dim
from .shape import transpose, unsqueeze
from .zero_gradient import flat_in


def _tensors(name: str, tensors: Any, some: bool = False) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        raise TypeError(located(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        ))
    given = list(tensors)
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(located(
                f"expected Tensor as element {i} in argument 0, but got {kind_name(x)}"
            ))
    if some and not given:
        raise RuntimeError(located(f"{name} expects a non-empty TensorList"))
    return given


@few_joined(CatBackward0)
@replayed
@with_out
def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after another along `dim`; their dtypes are promoted."""
    dim = dim if axis is None else axis
    given = _tensors("cat", tensors)
    if not given:
        raise ValueError(located("torch.cat(): expected a non-empty list of Tensors"))
    dtype = promote.result_type(*given)
    for i, x in enumerate(given):
        if x.ndim == 0:
            raise RuntimeError(located(
                f"zero-dimensional tensor (at position {i}) cannot be concatenated"
            ))
    # torch skips tensors of shape [0], whatever the rank of the others
    kept = [x for x in given if shape(x) != (0,)] or given[:1]
    dim = wrap_dim(dim, kept[0].ndim)
    for i, x in enumerate(kept):
        if x.ndim != kept[0].ndim:
            raise RuntimeError(located(
                "Tensors must have same number of dimensions: got "
                f"{kept[0].ndim} and {kept[i].ndim}"
            ))
    result: Tensor = apply(ops.concat, *[promote.cast(x, dtype) for x in kept], dim=dim)
    if len(kept) < len(given):
        for x in given:
            if shape(x) == (0,):
                result = flat_in(x, result)
    return result


concat = concatenate = cat


@few_joined(StackBackward0)
@replayed
@with_out
@owns_result
@recorded_as("StackBackward0")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors along a new dim. Raises RuntimeError unless they have one shape."""
    given = _tensors("stack", tensors, some=True)
    dim = wrap_dim(dim, given[0].ndim + 1)
    first = shape(given[0])
    env = environment()
    for i, x in enumerate(given):
        sizes = shape(x)
        same = len(sizes) == len(first) and all(
            env.equal(a, b) for a, b in zip(first, sizes, strict=True)
        )
        if not same:
            raise RuntimeError(located(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 "
                f"and {list(sizes)} at entry {i}"
            ))
    # of images with their channels last, the result has them so; views of each take time
    if dim < len(first) and (local.trace is None or len(first) in (4, 5)):
        sizes = (*first[:dim], len(given), *first[dim:])
        result: Tensor = apply(ops.reshape, cat(given, dim), shape=sizes)
        return result
    return cat([unsqueeze(x, dim) for x in given], dim)


def _at_least(x: Tensor, rank: int) -> Tensor:
    if rank >= 1 and x.ndim == 0:
        x = x.reshape(1)
    if rank >= 2 and x.ndim == 1:
        x = unsqueeze(x, 0)
    if rank >= 3 and x.ndim == 2:
        x = unsqueeze(x, -1)
    return x


def _atleast(rank: int, name: str) -> Any:
    def function(*tensors: Any) -> Any:
        if len(tensors) == 1:
            if isinstance(tensors[0], Tensor):
                return _at_least(tensors[0], rank)
            tensors = tuple(tensors[0])
        return tuple(_at_least(x, rank) for x in tensors)

    function.__name__ = name
    function.__doc__ = f"Each tensor with at least {rank} dimensions."
    return function


atleast_1d = _atleast(1, "atleast_1d")
atleast_2d = _atleast(2, "atleast_2d")
atleast_3d = _atleast(3, "atleast_3d")


@with_out
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side: along dim 1, or dim 0 for 1-d tensors."""
    given = [_at_least(x, 1) for x in _tensors("hstack", tensors, some=True)]
    return cat(given, 0 if given[0].ndim == 1 else 1)


@with_out
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One above another."""
    return cat([_at_least(x, 2) for x in _tensors("vstack", tensors, some=True)], 0)


row_stack = vstack


@with_out
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Along dim 2."""
    return cat([_at_least(x, 3) for x in _tensors("dstack", tensors, some=True)], 2)


@with_out
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side; 1-d tensors are columns."""
    given = [
        x.reshape(-1, 1) if x.ndim < 2 else x
        for x in _tensors("column_stack", tensors, some=True)
    ]
    return cat(given, 1)


@replayed
@variadic("dims")
def flip(input: Tensor, *dims: Any) -> Tensor:
    """A copy with the order along `dims` reversed."""
    given = as_sequence(dims[0]) if len(dims) == 1 else dims
    chosen = wrap_dims(given, input.ndim) if given else ()
    result: Tensor = apply(ops.flip, input, dims=chosen)
    return result


def fliplr(input: Tensor) -> Tensor:
    """Reversed along dim 1."""
    if input.ndim < 2:
        raise RuntimeError(located("Input must be >= 2-d."))
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Reversed along dim 0."""
    if input.ndim < 1:
        raise RuntimeError(located("Input must be >= 1-d."))
    return flip(input, 0)


@replayed
@owns_result
@recorded_as("RollBackward0")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted along `dims` (flattened without one), around the ends."""
    if dims is None or dims == ():
        flat = roll(input.reshape(-1), shifts, 0)
        return flat.reshape(shape(input))  # type: ignore[no-any-return]
    moves, along = as_sequence(shifts), as_sequence(dims)
    if len(moves) != len(along):
        raise RuntimeError(located(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(along)}"
        ))
    for shift, dim in zip(moves, along, strict=True):
        dim = wrap_dim(dim, input.ndim)
        size = shape(input)[dim]
        if isinstance(size, int) and size == 0:
            continue
        shift = shift % size
        if isinstance(shift, int) and shift == 0:
            continue
        cut = size - shift
        input = cat([slice_dim(input, dim, cut, size), slice_dim(input, dim, 0, cut)], dim)
    return input


@replayed
@owns_result
@recorded_as("Rot90Backward0")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by k quarter turns in the plane of `dims`."""
    if len(dims) != 2:
        raise RuntimeError(located(
            f"expected total rotation dims == 2, but got dims = {len(dims)}"
        ))
    if input.ndim < 2:
        raise RuntimeError(located(
            f"expected total dims >= 2, but got total dims = {input.ndim}"
        ))
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == input.ndim:
        raise RuntimeError(located(
            "expected rotation dims to be different, but got dim0 = "
            f"{dims[0]} and dim1 = {dims[1]}"
        ))
    a, b = (wrap_dim(d, input.ndim) for d in dims)
    k %= 4
    if k == 0:
        return input.clone()  # type: ignore[no-any-return]
    if k == 2:
        return flip(input, a, b)
    return transpose(flip(input, b), a, b) if k == 1 else flip(transpose(input, a, b), b)


def triangle_mask(rows: Any, columns: Any, diagonal: int, lower: bool) -> Tensor:
    """bool [rows, columns]: at or below (above) the diagonal."""
    i = apply(ops.iota, shape=(rows, 1), dim=0, dtype=dtypes.i64)
    j = apply(ops.iota, shape=(1, columns), dim=1, dtype=dtypes.i64)
    if diagonal:
        i = apply(ops.add, i, promote.operand(diagonal, dtypes.i64))
    result: Tensor = apply(ops.le if lower else ops.ge, j, i)
    return result


def _triangle(name: str, lower: bool) -> Any:
    def function(input: Tensor, diagonal: int = 0) -> Tensor:
        sizes = shape(input)
        if len(sizes) < 2:
            raise RuntimeError(located(f"{name}: input tensor must have at least 2 dimensions"))
        mask = triangle_mask(sizes[-2], sizes[-1], diagonal, lower)
        zero = promote.operand(False if input.dtype is dtypes.bool_ else 0, input.dtype)
        result: Tensor = apply(ops.where, mask, input, zero)
        return named(in_rows(result), title)

    title = f"{name.capitalize()}Backward0"
    function.__name__ = name
    function.__doc__ = f"The {'lower' if lower else 'upper'} triangle; the rest is 0."
    return replayed(with_out(function))


tril = _triangle("tril", True)
triu = _triangle("triu", False)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; indexing "ij" (matrix) or "xy" (Cartesian)."""
    given = list(tensors[0]) if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else [
        *tensors
    ]
    if not given:
        raise RuntimeError(located("meshgrid expects a non-empty TensorList"))
    for i, each in enumerate(given):
        if not isinstance(each, Tensor):
            raise TypeError(located(
                f"expected Tensor as element {i} in argument 0, but got {kind_name(each)}"
            ))
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(located(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        ))
    if indexing is None:
        warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument."
        )
    swap = indexing == "xy" and len(given) >= 2
    if swap:
        given[0], given[1] = given[1], given[0]
    lines = [shape(x) for x in given]
    for line in lines:
        if len(line) > 1:
            raise RuntimeError(located(
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                f"{list(line)}"
            ))
    sizes = tuple([line[0] if line else 1 for line in lines])
    grids = [_grid(x, i, sizes) for i, x in enumerate(given)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@recalled
def _grid(line: Tensor, along: int, sizes: Any) -> Tensor:
    """A line's numbers along one dim, repeated in the others."""
    column = tuple(n if d == along else 1 for d, n in enumerate(sizes))
    grid: Tensor = apply(ops.expand, apply(ops.reshape, line, shape=column), shape=sizes)
    return grid


@replayed
@recorded_as("StackBackward0")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of 1-d tensors, one a row."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([grid.reshape(-1) for grid in meshgrid(*tensors, indexing="ij")], dim=1)


@recorded_as("BlockDiagBackward0")
def block_diag(*tensors: Tensor) -> Tensor:
    """The matrices along the diagonal of a larger one."""
    dtype = promote.result_type(*tensors)
    blocks = [promote.cast(_at_least(x, 2), dtype) for x in tensors]
    columns = sum(shape(x)[1] for x in blocks)
    rows = []
    left = 0
    for x in blocks:
        width = shape(x)[1]
        right = columns - left - width
        padded = apply(
            ops.pad, x, low=(0, left), high=(0, right), interior=(0, 0), value=0.0
        )
        rows.append(padded)
        left += width
    return cat(rows, 0)
