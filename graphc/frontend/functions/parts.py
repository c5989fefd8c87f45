"""Parts of a tensor along a dim, as views: narrow, select, split, chunk, unbind."""

from __future__ import annotations

import itertools
from typing import Any

from graphc.ir import ops
from graphc.ir.dim import floordiv

from ..dispatch import apply
from ..errors import located
from ..numbers import is_traced_number
from ..recalled import recalled
from ..recalled_parts import recalled_parts
from ..tensor import Tensor
from .arguments import as_size, environment, named, shape, wrap_dim

Shape = tuple[Any, ...]


@recalled
def slice_dim(x: Tensor, dim: int, start: Any, stop: Any, step: int = 1) -> Tensor:
    """x[..., start:stop:step, ...] along `dim`; 0 <= start <= stop <= size (IR sizes)."""
    sizes = shape(x)
    starts: list[Any] = [0] * len(sizes)
    stops = list(sizes)
    steps = [1] * len(sizes)
    starts[dim], stops[dim], steps[dim] = start, stop, step
    result: Tensor = apply(
        ops.slice, x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps)
    )
    return result


def drop_dim(x: Tensor, dim: int) -> Tensor:
    """Without dim `dim`, which has size 1."""
    sizes = shape(x)
    result: Tensor = apply(ops.reshape, x, shape=sizes[:dim] + sizes[dim + 1 :])
    return result


@recalled
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The slice at `index` of `dim`, without that dim."""
    sizes = shape(input)
    if not sizes:
        raise IndexError(located("select() cannot be applied to a 0-dim tensor."))
    dim = wrap_dim(dim, len(sizes))
    index = as_size(index)
    size = sizes[dim]
    env = environment()
    place = index if env.not_negative(index) else index + size
    if not env.not_negative(place) or not env.at_most(place + 1, size):
        raise IndexError(located(
            f"select(): index {index} out of range for tensor of size {list(sizes)} at dimension "
            f"{dim}"
        ))
    return named(drop_dim(slice_dim(input, dim, place, place + 1), dim), "SelectBackward0")


@recalled
def narrow(input: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """`length` elements of `dim` from `start`."""
    sizes = shape(input)
    if not sizes:
        raise RuntimeError(located("narrow() cannot be applied to a 0-dim tensor."))
    dim = wrap_dim(dim, len(sizes))
    if isinstance(start, Tensor) and (start.ndim or not start.dtype.is_integer):
        raise RuntimeError(located("start must be an 0-dim integral Tensor."))
    start, length, size = as_size(start), as_size(length), sizes[dim]
    env = environment()
    if not env.not_negative(length):
        raise RuntimeError(located("narrow(): length must be non-negative."))
    if isinstance(size, int) and isinstance(start, int) and not -size <= start <= size:
        raise IndexError(located(
            f"start out of range (expected to be in range of [-{size}, {size}], but got {start})"
        ))
    if not env.not_negative(start):
        start = start + size
    if not env.at_most(start + length, size):
        raise RuntimeError(located(
            f"start ({start}) + length ({length}) exceeds dimension size ({size})."
        ))
    return slice_dim(input, dim, start, start + length)


@recalled_parts
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, without it."""
    sizes = shape(input)
    if not sizes:
        raise IndexError(located("Dimension specified as 0 but tensor has no dimensions"))
    dim = wrap_dim(dim, len(sizes))
    count = environment().specialise(sizes[dim])
    return _several("Unbind", [select(input, dim, i) for i in range(count)])


def _several(name: str, pieces: list[Tensor]) -> tuple[Tensor, ...]:
    """The views that one function gives: autograd does not follow writes to one of them."""
    for i, piece in enumerate(pieces):
        named(piece, f"{name}Backward0")._graphc_several = f"Output {i} of {name}"
    return tuple(pieces)


@recalled_parts
def split(
    tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None
) -> tuple[Tensor, ...]:
    """Pieces along `dim`: of one size (the last may be smaller), or of the sizes given."""
    if split_size is not None:  # the method's name for it
        split_size_or_sections = split_size
    sizes = shape(tensor)
    if not sizes:
        raise RuntimeError(located("split expects at least a 1-dimensional tensor"))
    dim = wrap_dim(dim, len(sizes))
    if isinstance(split_size_or_sections, (tuple, list)):
        return _split_sizes(tensor, tuple(as_size(s) for s in split_size_or_sections), dim)
    step = as_size(split_size_or_sections)
    env = environment()
    if isinstance(step, int) and step < 0:
        raise RuntimeError(located(
            f"split expects split_size be non-negative, but got split_size={step}"
        ))
    size = sizes[dim]
    if isinstance(step, int) and step == 0:
        if size != 0:
            raise RuntimeError(located(
                "split_size can only be 0 if dimension size is 0, but got dimension size of "
                f"{size}"
            ))
        return _several("Split", [slice_dim(tensor, dim, 0, 0)])
    if env.equal(size, step):
        return _several("Split", [slice_dim(tensor, dim, 0, size)])
    total, step = env.specialise(size), env.specialise(step)
    starts = range(0, max(total, 1), step)
    return _several(
        "Split", [slice_dim(tensor, dim, s, min(s + step, total)) for s in starts]
    )


def _split_sizes(x: Tensor, pieces: Shape, dim: int) -> tuple[Tensor, ...]:
    size = shape(x)[dim]
    if any(isinstance(p, int) and p < 0 for p in pieces):
        raise RuntimeError(located(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(pieces)}"
        ))
    total: Any = 0
    for piece in pieces:
        total = total + piece
    if not environment().equal(total, size):
        raise RuntimeError(located(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(pieces)}"
        ))
    result = []
    start: Any = 0
    for piece in pieces:
        result.append(slice_dim(x, dim, start, start + piece))
        start = start + piece
    return _several("SplitWithSizes", result)


def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the given sizes along `dim`."""
    return split(input, split_sizes, dim)


@recalled_parts
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size along `dim`; the last may be smaller."""
    sizes = shape(input)
    if not sizes:
        raise RuntimeError(located("chunk expects at least a 1-dimensional tensor"))
    if chunks <= 0:
        raise RuntimeError(located(f"chunk expects `chunks` to be greater than 0, got: {chunks}"))
    dim = wrap_dim(dim, len(sizes))
    size = sizes[dim]
    env = environment()
    if type(size) is int and type(chunks) is int:
        even = size > 0 and size % chunks == 0
    else:
        even = env.divides(chunks, size) and not env.equal(size, 0)
    if even:
        step = floordiv(size, chunks)
        return _several(
            "Split", [slice_dim(input, dim, step * i, step * (i + 1)) for i in range(chunks)]
        )
    total = env.specialise(size)
    step = -(-total // chunks)
    if step == 0:
        return _several("SplitWithSizes", [slice_dim(input, dim, 0, 0) for _ in range(chunks)])
    return split(input, step, dim)


def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
    sections: Any = None,
) -> tuple[Tensor, ...]:
    """Pieces along `dim`: so many, as equal as can be; or cut at the given indices."""
    if indices_or_sections is None:
        indices_or_sections = sections if indices is None else indices
    if input.ndim == 0:
        raise RuntimeError(located(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        ))
    dim = wrap_dim(dim, input.ndim)
    size = environment().specialise(shape(input)[dim])
    if is_traced_number(indices_or_sections):
        indices_or_sections = indices_or_sections.__index__()
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise RuntimeError(located(
                f"number of sections must be larger than 0, got {count}"
            ))
        small, extra = divmod(size, count)
        cuts = [0]
        for i in range(count):
            cuts.append(cuts[-1] + small + (i < extra))
        return tuple(slice_dim(input, dim, a, b) for a, b in itertools.pairwise(cuts))
    cuts = [as_size(i) for i in indices_or_sections]
    bounds = [slice(None, environment().specialise(i)).indices(size)[1] for i in cuts]
    edges = list(zip([0, *bounds], [*bounds, size], strict=True))
    return tuple(slice_dim(input, dim, a, max(a, b)) for a, b in edges)
