"""Views and rearrangements of one tensor."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dim import floordiv, product
from graphc.ir.dtypes import DType

from .. import views
from ..dispatch import apply
from ..errors import located, warn_once
from ..recalled import recalled
from ..storage import strides_of
from ..tensor import Tensor, alias, current, from_array, held
from .arguments import (
    as_sequence,
    as_size,
    environment,
    named,
    numpy_names,
    shape,
    shape_of,
    variadic,
    wrap_dim,
)
from .copies import contiguous

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
            ))
        raise _invalid_shape(sizes, elements)
    if isinstance(rest, int) and isinstance(elements, int) and elements % rest:
        raise _invalid_shape(sizes, elements)
    return tuple(
        floordiv(elements, rest) if i == unknown[0] else size for i, size in enumerate(sizes)
    )


def _invalid_shape(sizes: Shape, elements: Any) -> RuntimeError:
    return RuntimeError(located(
        f"shape '{[*sizes]}' is invalid for input of size {elements}"
    ))


@recalled
@variadic("shape")
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The elements in order in another shape: a view where the strides allow, else a copy."""
    result = _reshape(input, infer_shape(shape_of(shape, "reshape"), _elements(input)))
    return result if result._base is not None else named(result, "UnsafeViewBackward0")


def _elements(x: Tensor) -> Any:
    return x._graphc_type.elements


def _reshape(x: Tensor, sizes: Shape) -> Tensor:
    result: Tensor = apply(ops.reshape, x, shape=sizes)
    return result


@recalled
@variadic("size")
def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same memory in another shape, or read as another dtype.

    Raises RuntimeError where the strides do not allow it.
    """
    if dtype is None and len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        dtype = shape[0]
    if dtype is not None:
        return view_dtype(self, dtype)
    sizes = infer_shape(shape_of(shape, "view"), _elements(self))
    if not viewable(self, sizes):
        raise RuntimeError(located(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        ))
    return _reshape(self, sizes)


def viewable(x: Tensor, sizes: Shape) -> bool:
    """Whether the strides allow a view of these sizes."""
    state = current(x)
    if state._graphc_trace is None:
        array = state._graphc_array
        if array.flags.c_contiguous:
            return True
        have: Shape = array.shape
        strides: Shape = strides_of(array)
    else:
        have, strides = state._graphc_traced.type.shape, state._graphc_traced.strides
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


@recalled
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims start_dim .. end_dim as one."""
    sizes = shape(input)
    start, end = wrap_dim(start_dim, len(sizes)), wrap_dim(end_dim, len(sizes))
    if start > end:
        raise RuntimeError(located(
            "flatten() has invalid args: start_dim cannot come after end_dim"
        ))
    if not sizes:
        return _reshape(input, (1,))
    if start == end:
        return input
    return _reshape(input, (*sizes[:start], product(sizes[start : end + 1]), *sizes[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """One dimension; contiguous."""
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
        ))
    return view(input, *have[:dim], *new, *have[dim + 1 :])


@recalled
@numpy_names
def squeeze(input: Tensor, dim: Any = None, *dims: Any) -> Tensor:
    """Without its dims of size 1, or without those of `dim` (and others) that have size 1."""
    dim = (dim, *dims) if dims else dim
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
    form = 0 if dim is None else 2 if isinstance(dim, (tuple, list)) else 1
    return named(result, f"SqueezeBackward{form}")


@recalled
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dim of size 1 at `dim`."""
    sizes = shape(input)
    dim = wrap_dim(dim, len(sizes) + 1)
    return named(_reshape(input, (*sizes[:dim], 1, *sizes[dim:])), "UnsqueezeBackward0")


# --- the dims in another order -----------------------------------------------------------------


@recalled
@variadic("dims")
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
        ))
    wrapped = tuple(wrap_dim(d, rank) for d in order)
    if len(set(wrapped)) != rank:
        raise RuntimeError(located("permute(): duplicate dims are not allowed."))
    result: Tensor = apply(ops.permute, input, dims=wrapped)
    return result


@recalled
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dims exchanged."""
    rank = input.ndim
    a, b = wrap_dim(dim0, rank), wrap_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return named(apply(ops.permute, input, dims=tuple(order)), "TransposeBackward0")


swapdims = transpose


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dims exchanged, under NumPy's name."""
    return transpose(input, axis0, axis1)


@recalled
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix. Raises RuntimeError for more than 2 dimensions."""
    rank = input.ndim
    if rank > 2:
        raise RuntimeError(located(
            f"t() expects a tensor with <= 2 dimensions, but self is {rank}D"
        ))
    return named(apply(ops.permute, input, dims=tuple(range(rank - 1, -1, -1))), "TBackward0")


def reverse_dims(x: Tensor) -> Tensor:
    """The dims in reverse order: x.T. torch warns, once, where that is no matrix."""
    if x.ndim != 2:
        _warn_of_rank(x.ndim)
    return _reversed(x)


@recalled
def _reversed(x: Tensor) -> Tensor:
    result: Tensor = apply(ops.permute, x, dims=tuple(range(x.ndim - 1, -1, -1)))
    return result


def _warn_of_rank(rank: int) -> None:
    if rank == 0:
        warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these "
                  "cases.")
        return
    warn_once(
        "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
        "deprecated and it will throw an error in a future release. Consider `x.mT` to transpose "
        "batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the "
        "dimensions of a tensor."
    )


def matrix_transpose(self: Tensor) -> Tensor:
    """The last two dims exchanged."""
    if self.ndim == 0:
        warn_once("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these "
                  "cases.")
        return self.permute(())  # type: ignore[no-any-return]
    if self.ndim < 2:
        raise RuntimeError(located(
            "tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{self.ndim}-D tensor."
        ))
    return transpose(self, -2, -1)


def adjoint(input: Tensor) -> Tensor:
    """The last two dims exchanged, and conjugated."""
    turned = matrix_transpose(input)
    return apply(ops.conj, turned) if input.dtype.is_complex else turned


def matrix_adjoint(input: Tensor) -> Tensor:
    """adjoint() of a matrix, or of a number. Raises RuntimeError for other ranks."""
    if input.ndim not in (0, 2):
        cure = " For batches of matrices, consider using tensor.mH" if input.ndim > 2 else ""
        raise RuntimeError(located(
            "tensor.H is only supported on matrices (2-D tensors). Got "
            f"{input.ndim}-D tensor.{cure}"
        ))
    if input.ndim:
        return adjoint(input)
    return apply(ops.conj, input) if input.dtype.is_complex else input


@recalled
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
        ))
    for name, dims in (("source", origins), ("destination", places)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(located(f"movedim: repeated dim in `{name}` ({dims})"))
    order = [-1] * rank
    if rank == 0:
        origins = places = []
    for origin, place in zip(origins, places, strict=True):
        order[place] = origin
    rest = iter([d for d in range(rank) if d not in origins])
    full = tuple(next(rest) if d < 0 else d for d in order)
    result: Tensor = apply(ops.permute, input, dims=full)
    return result


moveaxis = movedim


def view_dtype(self: Tensor, dtype: DType) -> Tensor:
    """The same bytes read as another dtype; the last dim's size changes with the element size."""
    if dtype is self.dtype:
        return alias(self)
    array = held(self, "view(dtype)", "convert with .to(dtype), or call it outside")
    if array.ndim == 0 and array.itemsize != dtype.itemsize:
        raise RuntimeError(located(
            f"self.dim() cannot be 0 to view {self.dtype} as {dtype} (different element sizes)"
        ))
    try:
        seen = array.view(dtype.numpy)
    except ValueError as error:
        raise RuntimeError(located(f"view(dtype): {error}")) from None
    result = from_array(seen)
    result._graphc_storage = self._graphc_storage
    return result
