"""Views and rearrangements of one tensor."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dim import floordiv, product

from .. import views
from ..dispatch import apply
from ..errors import located
from ..storage import strides_of
from ..tensor import Tensor, current
from .arguments import (
    as_sequence,
    as_size,
    broadcast_sizes,
    environment,
    named,
    numpy_names,
    shape,
    shape_of,
    wrap_dim,
)

Shape = tuple[Any, ...]


# --- the same elements in another shape --------------------------------------------------------


def infer_shape(sizes: Shape, elements: Any) -> Shape:
    """`sizes` with its -1 replaced. Raises RuntimeError where the elements do not fit."""
    unknown = [i for i, size in enumerate(sizes) if isinstance(size, int) and size < 0]
    if not unknown:
        return sizes
    if len(unknown) > 1:
        raise RuntimeError(located("only one dimension can be inferred"))
    if sizes[unknown[0]] != -1:
        raise RuntimeError(located(f"invalid shape dimension {sizes[unknown[0]]}"))
    rest = product(size for i, size in enumerate(sizes) if i != unknown[0])
    if isinstance(rest, int) and rest == 0:
        if elements == 0:
            raise RuntimeError(located(
                f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            ))  # fmt: skip
        raise _invalid_shape(sizes, elements)
    if isinstance(rest, int) and isinstance(elements, int) and elements % rest:
        raise _invalid_shape(sizes, elements)
    return tuple(
        floordiv(elements, rest) if i == unknown[0] else size for i, size in enumerate(sizes)
    )


def _invalid_shape(sizes: Shape, elements: Any) -> RuntimeError:
    return RuntimeError(located(
        f"shape '{[*sizes]}' is invalid for input of size {elements}"
    ))  # fmt: skip


def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The elements in order in another shape: a view where the strides allow, else a copy."""
    return _reshape(input, infer_shape(shape_of(shape), _elements(input)))


def _elements(x: Tensor) -> Any:
    return x._type.elements


def _reshape(x: Tensor, sizes: Shape) -> Tensor:
    result: Tensor = apply(ops.reshape, x, shape=sizes)
    return result


def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same memory in another shape, or read as another dtype.

    Raises RuntimeError where the strides do not allow it.
    """
    if dtype is None and len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        dtype = shape[0]
    if dtype is not None:
        from .conversion import view_dtype

        return view_dtype(self, dtype)
    sizes = infer_shape(shape_of(shape), _elements(self))
    if not viewable(self, sizes):
        raise RuntimeError(located(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        ))  # fmt: skip
    return _reshape(self, sizes)


def viewable(x: Tensor, sizes: Shape) -> bool:
    """Whether the strides allow a view of these sizes."""
    state = current(x)
    if state._trace is None:
        array = state._array
        if array.flags.c_contiguous:
            return True
        have, strides = array.shape, strides_of(array)
    else:
        have, strides = state._traced.type.shape, state._traced.strides
    env = environment()
    if not env.equal(product(sizes), product(have)):
        return True  # the type rule says what is wrong
    return views.reshape_strides(have, strides, sizes, env) is not None


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """view() with the shape of `other`."""
    return view(self, *shape(other))


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape() with the shape of `other`."""
    return _reshape(self, shape(other))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims start_dim .. end_dim as one."""
    sizes = shape(input)
    start, end = wrap_dim(start_dim, len(sizes)), wrap_dim(end_dim, len(sizes))
    if start > end:
        raise RuntimeError(located(
            "flatten() has invalid args: start_dim cannot come after end_dim"
        ))  # fmt: skip
    if not sizes:
        return _reshape(input, (1,))
    if start == end:
        return input
    return _reshape(input, (*sizes[:start], product(sizes[start : end + 1]), *sizes[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """One dimension; contiguous."""
    from .conversion import contiguous

    return _reshape(contiguous(input), (_elements(input),))


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Dim `dim` as several; one of `sizes` may be -1."""
    have: Shape = shape(input)
    dim = wrap_dim(dim, len(have))
    new: Shape = tuple(as_size(size) for size in as_sequence(sizes))
    if not new:
        raise RuntimeError(located("unflatten: sizes must be non-empty"))
    with suppress(RuntimeError):  # the message below says more
        new = infer_shape(new, have[dim])
    if -1 in new or not environment().equal(product(new), have[dim]):
        raise RuntimeError(located(
            f"unflatten: Provided sizes {list(as_sequence(sizes))} don't multiply up to the size "
            f"of dim {dim} ({have[dim]}) in the input tensor"
        ))  # fmt: skip
    return view(input, *have[:dim], *new, *have[dim + 1 :])


@numpy_names
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without its dims of size 1, or without those of `dim` that have size 1."""
    sizes = shape(input)
    env = environment()
    if dim is None:
        chosen = set(range(len(sizes)))
    else:
        chosen = {wrap_dim(d, len(sizes)) for d in as_sequence(dim)}
    kept = tuple(
        size for i, size in enumerate(sizes) if i not in chosen or not env.equal(size, 1)
    )
    result = _reshape(input, kept)
    return named(result, "SqueezeBackward0" if dim is None else "SqueezeBackward1")


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dim of size 1 at `dim`."""
    sizes = shape(input)
    dim = wrap_dim(dim, len(sizes) + 1)
    return named(_reshape(input, (*sizes[:dim], 1, *sizes[dim:])), "UnsqueezeBackward0")


# --- the dims in another order -------------------------------------------------------------------


def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dims in another order. Raises RuntimeError unless each is named once."""
    order = as_sequence(dims[0]) if len(dims) == 1 else dims
    rank = input.ndim
    if len(order) != rank:
        raise RuntimeError(located(
            # "sparse_coo" is torch's word, for all tensors
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal "
            f"to len(dims) = {len(order)}"
        ))  # fmt: skip
    wrapped = tuple(wrap_dim(d, rank) for d in order)
    if len(set(wrapped)) != rank:
        raise RuntimeError(located("permute(): duplicate dims are not allowed."))
    result: Tensor = apply(ops.permute, input, dims=wrapped)
    return result


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dims exchanged."""
    rank = input.ndim
    a, b = wrap_dim(dim0, rank), wrap_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return named(apply(ops.permute, input, dims=tuple(order)), "TransposeBackward0")


swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix. Raises RuntimeError for more than 2 dimensions."""
    if input.ndim > 2:
        raise RuntimeError(located(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D"
        ))  # fmt: skip
    return named(reverse_dims(input), "TBackward0")


def reverse_dims(x: Tensor) -> Tensor:
    """The dims in reverse order: x.T."""
    result: Tensor = apply(ops.permute, x, dims=tuple(reversed(range(x.ndim))))
    return result


def matrix_transpose(self: Tensor) -> Tensor:
    """The last two dims exchanged."""
    if self.ndim < 2:
        raise RuntimeError(located(
            "tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{self.ndim}-D tensor."
        ))  # fmt: skip
    return transpose(self, -2, -1)


adjoint = matrix_transpose


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dims `source` moved to `destination`; the others keep their order."""
    rank = input.ndim
    origins = [wrap_dim(d, rank) for d in as_sequence(source)]
    places = [wrap_dim(d, rank) for d in as_sequence(destination)]
    if len(origins) != len(places):
        raise RuntimeError(located(
            "movedim: Invalid source or destination dims: source "
            f"({list(as_sequence(source))} dims) should contain the same number of dims as "
            f"destination ({list(as_sequence(destination))} dims)"
        ))  # fmt: skip
    for name, dims in (("source", origins), ("destination", places)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(located(f"movedim: repeated dim in `{name}` ({dims})"))
    order = [-1] * rank
    for origin, place in zip(origins, places, strict=True):
        order[place] = origin
    rest = iter([d for d in range(rank) if d not in origins])
    full = tuple(next(rest) if d < 0 else d for d in order)
    result: Tensor = apply(ops.permute, input, dims=full)
    return result


moveaxis = movedim


# --- parts ---------------------------------------------------------------------------------------


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
    return _reshape(x, sizes[:dim] + sizes[dim + 1 :])


def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The slice at `index` of `dim`, without that dim."""
    sizes = shape(input)
    if not sizes:
        raise IndexError(located("select() cannot be applied to a 0-dim tensor."))
    dim = wrap_dim(dim, len(sizes))
    index = as_size(index)
    size = sizes[dim]
    env = environment()
    negative = isinstance(index, int) and index < 0
    place = index + size if negative else index
    if not env.at_most(0, place) or not env.at_most(place + 1, size):
        raise IndexError(located(
            f"select(): index {index} out of range for tensor of size {list(sizes)} at dimension "
            f"{dim}"
        ))  # fmt: skip
    return named(drop_dim(slice_dim(input, dim, place, place + 1), dim), "SelectBackward0")


def narrow(input: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """`length` elements of `dim` from `start`."""
    sizes = shape(input)
    if not sizes:
        raise RuntimeError(located("narrow() cannot be applied to a 0-dim tensor."))
    dim = wrap_dim(dim, len(sizes))
    start, length, size = as_size(start), as_size(length), sizes[dim]
    env = environment()
    if isinstance(length, int) and length < 0:
        raise RuntimeError(located("narrow(): length must be non-negative."))
    if isinstance(start, int) and start < 0:
        if isinstance(size, int) and start < -size:
            raise IndexError(located(
                f"start out of range (expected to be in range of [-{size}, {size}], but got "
                f"{start})"
            ))  # fmt: skip
        start = start + size
    if not env.at_most(start + length, size):
        raise RuntimeError(located(
            f"start ({start}) + length ({length}) exceeds dimension size ({size})."
        ))  # fmt: skip
    return slice_dim(input, dim, start, start + length)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, without it."""
    sizes = shape(input)
    if not sizes:
        raise RuntimeError(located("Dimension specified as 0 but tensor has no dimensions"))
    dim = wrap_dim(dim, len(sizes))
    count = environment().specialise(sizes[dim])
    return tuple(drop_dim(slice_dim(input, dim, i, i + 1), dim) for i in range(count))


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `dim`: of one size (the last may be smaller), or of the sizes given."""
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
        ))  # fmt: skip
    size = sizes[dim]
    if isinstance(step, int) and step == 0:
        if size != 0:
            raise RuntimeError(located(
                "split_size can only be 0 if dimension size is 0, but got dimension size of "
                f"{size}"
            ))  # fmt: skip
        return (slice_dim(tensor, dim, 0, 0),)
    if env.equal(size, step):
        return (slice_dim(tensor, dim, 0, size),)
    total, step = env.specialise(size), env.specialise(step)
    starts = range(0, max(total, 1), step)
    return tuple(slice_dim(tensor, dim, s, min(s + step, total)) for s in starts)


def _split_sizes(x: Tensor, pieces: Shape, dim: int) -> tuple[Tensor, ...]:
    size = shape(x)[dim]
    if any(isinstance(p, int) and p < 0 for p in pieces):
        raise RuntimeError(located(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(pieces)}"
        ))  # fmt: skip
    total: Any = 0
    for piece in pieces:
        total = total + piece
    if not environment().equal(total, size):
        raise RuntimeError(located(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(pieces)}"
        ))  # fmt: skip
    result = []
    start: Any = 0
    for piece in pieces:
        result.append(slice_dim(x, dim, start, start + piece))
        start = start + piece
    return tuple(result)


split_with_sizes = split


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
    if env.divides(chunks, size) and not env.equal(size, 0):
        step = floordiv(size, chunks)
        return tuple(slice_dim(input, dim, step * i, step * (i + 1)) for i in range(chunks))
    total = env.specialise(size)
    step = -(-total // chunks)
    if step == 0:
        return tuple(slice_dim(input, dim, 0, 0) for _ in range(chunks))
    return split(input, step, dim)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `dim`: so many, as equal as can be; or cut at the given indices."""
    dim = wrap_dim(dim, input.ndim)
    size = environment().specialise(shape(input)[dim])
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise RuntimeError(located(
                f"number of sections must be larger than 0, got {count}"
            ))  # fmt: skip
        small, extra = divmod(size, count)
        cuts = [0]
        for i in range(count):
            cuts.append(cuts[-1] + small + (i < extra))
        return tuple(slice_dim(input, dim, a, b) for a, b in zip(cuts, cuts[1:], strict=False))
    bounds = [slice(None, i).indices(size)[1] for i in indices_or_sections]
    edges = list(zip([0, *bounds], [*bounds, size], strict=True))
    return tuple(slice_dim(input, dim, a, max(a, b)) for a, b in edges)


# --- repetition ------------------------------------------------------------------------------


def expand(input: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Dims of size 1 repeated (without a copy) to `sizes`; -1 keeps a size."""
    want = shape_of(sizes if size is None else (size,))
    have = shape(input)
    extra = len(want) - len(have)
    if extra < 0:
        raise RuntimeError(located(
            f"expand({input.dtype}{list(have)}, size={list(want)}): the number of sizes provided "
            f"({len(want)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(have)})"
        ))  # fmt: skip
    full: list[Any] = []
    for i, n in enumerate(want):
        if isinstance(n, int) and n == -1:
            if i < extra:
                raise RuntimeError(located(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, "
                    f"non-existing dimension {i}"
                ))  # fmt: skip
            n = have[i - extra]
        full.append(n)
    result: Tensor = apply(ops.expand, input, shape=tuple(full))
    return result


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand() to the shape of `other`."""
    return expand(self, *shape(other))


def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """expand() to `size`."""
    return expand(input, *as_sequence(size))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    common = broadcast_sizes(*(shape(x) for x in given))
    return tuple(expand(x, *common) for x in given)


@numpy_names
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """A new tensor with copies of this one along each dim."""
    counts = shape_of(repeats)
    have = shape(self)
    extra = len(counts) - len(have)
    if extra < 0:
        raise RuntimeError(located(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        ))  # fmt: skip
    if any(isinstance(n, int) and n < 0 for n in counts):
        raise RuntimeError(located(
            f"Trying to create tensor with negative dimension: repeat{counts}"
        ))  # fmt: skip
    sizes = (1,) * extra + have
    spread = tuple(n for size in sizes for n in (1, size))
    grown = tuple(n for c, size in zip(counts, sizes, strict=True) for n in (c, size))
    final = tuple(c * size for c, size in zip(counts, sizes, strict=True))
    from .conversion import clone_contiguous

    expanded: Tensor = apply(ops.expand, _reshape(self, spread), shape=grown)
    return _reshape(clone_contiguous(expanded), final)


def tile(input: Tensor, *dims: Any) -> Tensor:
    """repeat() with missing leading counts taken as 1."""
    counts = shape_of(dims)
    return repeat(input, *((1,) * (input.ndim - len(counts)) + counts))


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (of `dim`; of the flattened tensor without one) repeated in place.

    `repeats` is an int, or a 1-d tensor with a count per element.
    """
    from .conversion import clone_contiguous

    if repeats is None:
        input, repeats, dim = _positions(input), input, 0
    if dim is None:
        input, dim = reshape(input, -1), 0
    sizes = shape(input)
    dim = wrap_dim(dim, len(sizes))
    if isinstance(repeats, Tensor) and repeats.ndim == 1 and shape(repeats)[0] == 1:
        repeats = repeats.item()
    if isinstance(repeats, Tensor) and repeats.ndim == 0:
        repeats = repeats.item()
    if isinstance(repeats, Tensor):
        from .gathering import repeat_by_counts

        return repeat_by_counts(input, repeats, dim, output_size)
    count = as_size(repeats)
    if isinstance(count, int) and count < 0:
        raise RuntimeError(located(f"Repeats must be non-negative, got {count}"))
    before, after = sizes[: dim + 1], sizes[dim + 1 :]
    wide: Tensor = apply(
        ops.expand, _reshape(input, (*before, 1, *after)), shape=(*before, count, *after)
    )
    return _reshape(clone_contiguous(wide), (*sizes[:dim], sizes[dim] * count, *after))


def _positions(counts: Tensor) -> Tensor:
    result: Tensor = apply(ops.iota, shape=shape(counts), dim=0, dtype=dtypes.i64)
    return result
