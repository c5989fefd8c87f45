"""torch.sparse_coo_tensor, sparse_csr_tensor and the like. What they are given is checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.functions.arguments import check_dtype
from ..frontend.layouts import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
)
from ..frontend.tensor import Tensor, from_array
from ..ir import dtypes
from .patterns import BLOCKED, BY_ROWS, Compressed, Pattern, ascends
from .tensor import SparseTensor, outside, sparse


def _error(message: str) -> RuntimeError:
    return RuntimeError(located(message))


def _as_tensor(value: Any, dtype: Any = None) -> Tensor:
    found: Tensor = value if isinstance(value, Tensor) else T.tensor(value)
    if isinstance(found, SparseTensor):
        raise _error(
            f"expected a dense tensor, but got one of layout {found.layout}. Cure: x.to_dense()"
        )
    return found if dtype is None or found.dtype is dtype else found.to(dtype)


def check_place(device: Any) -> None:
    """Raise NotImplementedError for another device than the CPU."""
    if device is not None and T.device(device).type != "cpu":
        raise NotImplementedError(located(
            f"graphc has sparse tensors on the CPU alone, not on {device}. Cure: x.to_dense()"
        ))


def _sizes(size: Any) -> tuple[int, ...]:
    return tuple([int(n) for n in size])


# --- COO -----------------------------------------------------------------------------------------


@outside
def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None, layout: Any = None,
) -> SparseTensor:
    """Entries [n, *dense sizes] at the places `indices` [sparse dims, n]; with a size alone, no
    entries. Raises RuntimeError where they do not fit together, whatever check_invariants says.

    pytorch.org/docs/stable/generated/torch.sparse_coo_tensor.html
    """
    if layout not in (None, sparse_coo):
        raise _error(f"sparse_coo_tensor: expected the layout torch.sparse_coo, got {layout}")
    check_place(device)
    kind = check_dtype(dtype)
    if values is None:
        given = indices if size is None else size
        if given is None:
            raise TypeError(located("sparse_coo_tensor() needs a size, or indices and values"))
        return _finish(_empty(_sizes(given), kind), requires_grad)
    entries = _as_tensor(values, kind)
    if entries.ndim == 0:
        entries = entries.reshape(1)
    places = _places(indices)
    found = _checked(places, entries, None if size is None else _sizes(size), is_coalesced)
    return _finish(found, requires_grad)


def _empty(size: tuple[int, ...], dtype: Any) -> SparseTensor:
    pattern = Pattern.at(np.zeros((len(size), 0), np.int64), size, False)
    return sparse(pattern, T.empty(0, dtype=dtype))


def _finish(x: SparseTensor, requires_grad: bool) -> SparseTensor:
    return x.requires_grad_() if requires_grad else x  # type: ignore[return-value]


def _places(indices: Any) -> Tensor:
    """int64 [sparse dims, entries]."""
    found = _as_tensor(indices)
    if found.ndim != 2:
        raise _error(
            f"indices must be sparse_dim x nnz, but got: {list(found.shape)}"
        )
    if (found.dtype.is_float or found.dtype is dtypes.bool_) and found.numel():
        raise _error(f"indices must be integers, but got: {found.dtype}")
    return from_array(
        np.array(found._graphc_array, np.int64, order="C")
    )  # nobody else writes there


def _checked(
    places: Tensor, values: Tensor, size: tuple[int, ...] | None, is_coalesced: bool | None = None
) -> SparseTensor:
    array = places._graphc_array
    dims, count = array.shape
    if values.ndim < 1 or values.shape[0] != count:
        raise _error(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{count}, nnz from values: {values.shape[0]}"
        )
    dense = tuple(values.shape[1:])
    low = array.min(1) if count else np.zeros(dims, np.int64)
    high = array.max(1) if count else np.full(dims, -1)
    for dim in range(dims):
        if low[dim] < 0:
            raise _error(f"found negative index {low[dim]} for dim {dim}")
    if size is None:
        size = (*[int(n) + 1 for n in high], *dense)
    if len(size) != dims + len(dense):
        raise _error(
            f"number of dimensions must be sparse_dim ({dims}) + dense_dim ({len(dense)}), but "
            f"got {len(size)}"
        )
    if size[dims:] != dense:
        raise _error(
            f"values has incorrect size, expected {[count, *size[dims:]]}, got "
            f"{list(values.shape)}"
        )
    for dim in range(dims):
        if high[dim] >= size[dim]:
            raise _error(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found "
                f"index {high[dim]}"
            )
    pattern = Pattern(places, size, False)
    if is_coalesced:
        if not ascends(pattern.keys()):
            raise _error(
                "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            )
        pattern.coalesced = True
    return sparse(pattern, values)


class LegacyType:
    """torch.sparse.FloatTensor, and the like: called with (indices, values, size); isinstance()."""

    def __init__(self, name: str, dtype: Any) -> None:
        self.__name__, self.dtype = name, dtype
        self.is_sparse, self.layout = True, sparse_coo

    def __repr__(self) -> str:
        return f"<class 'torch.sparse.{self.__name__}'>"

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, SparseTensor) and value.dtype is self.dtype

    @outside
    def __call__(self, *args: Any) -> SparseTensor:
        if not args:
            return _empty((0,), self.dtype)
        if len(args) == 1 or not isinstance(args[0], Tensor):
            size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            return _empty(_sizes(size), self.dtype)
        size = _sizes(args[2]) if len(args) > 2 else None
        return _checked(_places(args[0]), _as_tensor(args[1], self.dtype), size)


# --- compressed ----------------------------------------------------------------------------------


_NAMES = {
    sparse_csr: ("crow_indices", "col_indices", "rows", "columns"),
    sparse_csc: ("ccol_indices", "row_indices", "columns", "rows"),
    sparse_bsr: ("crow_indices", "col_indices", "block rows", "block columns"),
    sparse_bsc: ("ccol_indices", "row_indices", "block columns", "block rows"),
}


@outside
def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:
    """A matrix in a compressed layout: where each row (column) begins, the columns (rows) of its
    entries, and these. Raises RuntimeError where they do not fit together."""
    if layout not in _NAMES:
        raise _error(
            "sparse_compressed_tensor: expected a compressed layout (torch.sparse_csr, ...), got "
            f"{layout}"
        )
    check_place(device)
    entries = _as_tensor(values, check_dtype(dtype))
    starts, plain = _line_indices(compressed_indices), _line_indices(plain_indices)
    if starts.dtype is not plain.dtype:
        raise _error(
            "compressed_indices and plain_indices must have the same dtype, got "
            f"{starts.dtype} and {plain.dtype}"
        )
    blocked = layout in BLOCKED
    if starts.ndim != 1 or plain.ndim != 1 or entries.ndim != (3 if blocked else 1):
        raise NotImplementedError(located(
            f"graphc has {layout} of single matrices, without dense dims; got indices of "
            f"{starts.ndim} and {plain.ndim} dims and values of {entries.ndim}. Cure: make a "
            "tensor of each matrix, or a dense one"
        ))
    block = (int(entries.shape[1]), int(entries.shape[2])) if blocked else (1, 1)
    pattern = _compressed(layout, starts, plain, entries, size, block)
    return _finish(sparse(pattern, entries), requires_grad)


def _line_indices(indices: Any) -> Tensor:
    found = _as_tensor(indices)
    if found.dtype not in (dtypes.i64, dtypes.i32):
        if found.numel():
            raise _error(f"expected int32 or int64 indices, but got {found.dtype}")
        found = found.to(dtypes.i64)
    return from_array(found._graphc_array.copy())


def _compressed(
    kind: layout, starts: Tensor, plain: Tensor, entries: Tensor, size: Any,
    block: tuple[int, int],
) -> Compressed:
    begin_name, plain_name, lines_name, others_name = _NAMES[kind]
    begins, others = starts._graphc_array.astype(np.int64), plain._graphc_array.astype(np.int64)
    lines = begins.size - 1
    if lines < 0:
        raise _error(f"{begin_name} must have at least one element")
    along = block if kind in BY_ROWS else block[::-1]
    most = int(others.max()) + 1 if others.size else 0
    if size is None:
        lengths = (lines * along[0], most * along[1])
        found = lengths if kind in BY_ROWS else lengths[::-1]
    else:
        found = _sizes(size)  # type: ignore[assignment]
    if len(found) != 2:
        raise NotImplementedError(located(
            f"graphc has {kind} of single matrices, this size is {list(found)}. Cure: make a "
            "tensor of each matrix of a batch"
        ))
    wanted = found if kind in BY_ROWS else found[::-1]
    if wanted[0] != lines * along[0]:
        raise _error(
            f"{begin_name}.shape[-1] must be equal to the number of {lines_name} + 1 "
            f"({wanted[0] // max(along[0], 1) + 1}), but got {begins.size}"
        )
    if wanted[1] % max(along[1], 1):
        raise _error(f"size {list(found)} is no multiple of the blocks {list(block)}")
    if others.size != entries.shape[0]:
        raise _error(
            f"number of specified elements must be the same: {plain_name} has {others.size}, "
            f"values has {entries.shape[0]}"
        )
    if begins[0] != 0 or begins[-1] != others.size or (np.diff(begins) < 0).any():
        raise _error(
            f"`{begin_name}` must begin with 0, never decrease, and end with the number of entries "
            f"({others.size})"
        )
    if others.size and (others.min() < 0 or most > wanted[1] // max(along[1], 1)):
        raise _error(
            f"`0 <= {plain_name} < {others_name}` is not satisfied: found {others.min()} to "
            f"{others.max()}, there are {wanted[1] // max(along[1], 1)} {others_name}"
        )
    pattern = Compressed(kind, starts, plain, (int(found[0]), int(found[1])), block)
    if not ascends(pattern.lines() * max(int(wanted[1]), 1) + others):
        raise _error(
            f"`{plain_name}` must be sorted and distinct along each of the {lines_name}"
        )
    return pattern


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """A matrix in compressed rows. Options as of sparse_compressed_tensor()."""
    return _made(sparse_csr, crow_indices, col_indices, values, size, options)


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """A matrix in compressed columns. Options as of sparse_compressed_tensor()."""
    return _made(sparse_csc, ccol_indices, row_indices, values, size, options)


def sparse_bsr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """A matrix in compressed rows of blocks. Options as of sparse_compressed_tensor()."""
    return _made(sparse_bsr, crow_indices, col_indices, values, size, options)


def sparse_bsc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseTensor:
    """A matrix in compressed columns of blocks. Options as of sparse_compressed_tensor()."""
    return _made(sparse_bsc, ccol_indices, row_indices, values, size, options)


def _made(
    kind: layout, compressed: Any, plain: Any, values: Any, size: Any, options: dict[str, Any]
) -> SparseTensor:
    options.pop("layout", None)
    found: SparseTensor = sparse_compressed_tensor(
        compressed, plain, values, size, layout=kind, **options
    )
    return found


# --- files ---------------------------------------------------------------------------------------


def rebuild_sparse_tensor(kind: layout, data: Any) -> SparseTensor:
    """What pickles and files of tensors call: torch._utils._rebuild_sparse_tensor."""
    if not isinstance(kind, layout):
        raise TypeError(f"expected a layout, got {type(kind).__name__}")
    if kind is sparse_coo:
        indices, values, size, *more = data
        ordered = more[0] if more else None
        return sparse_coo_tensor(indices, values, size, is_coalesced=ordered)
    if kind in _NAMES:
        compressed, plain, values, size = data
        return sparse_compressed_tensor(compressed, plain, values, size, layout=kind)
    raise NotImplementedError(f"rebuilding sparse tensor for layout {kind}")


def parts_of(x: SparseTensor) -> tuple[layout, tuple[Any, ...]]:
    """The arguments of rebuild_sparse_tensor()."""
    pattern, values = x._graphc_pattern, x._graphc_values.detach()
    if isinstance(pattern, Pattern):
        return sparse_coo, (pattern.indices.detach(), values, x.shape, pattern.coalesced)
    return pattern.layout, (pattern.starts.detach(), pattern.plain.detach(), values, x.shape)
