"""Embeddings and one-hot codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.context import local
from ...frontend.dispatch import apply
from ...frontend.errors import located
from ...frontend.functions.arguments import recorded_as
from ...frontend.grad_mode import no_grad
from ...frontend.placement import place_at
from ...frontend.tensor import Tensor, from_array
from ...ir import ops
from ...ir.late import late

_updates: Any = late("graphc.sparse.updates")


@recorded_as("EmbeddingBackward0")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:
    """Rows of weight [V, D] at integer positions. Raises IndexError out of [0, V).

    `sparse`: the gradient of `weight` is a sparse tensor; a compiled function that records it runs
    in segments.
    """
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_indices(input, "embedding")
    if max_norm is not None:
        with no_grad():
            rows = T.unique(input)
            norms = weight[rows].norm(norm_type, 1, keepdim=True)
            scale = T.where(norms > max_norm, max_norm / (norms + 1e-7), T.ones_like(norms))
            weight[rows] = weight[rows] * scale
    indices = input if input.dtype is T.int64 else input.long()
    if sparse and local.grad and weight.requires_grad and not local.exporting:
        return _with_sparse_gradient(indices, weight, padding_idx, scale_grad_by_freq)
    result: Tensor = apply(ops.index, weight, _not_negative(indices, weight.shape[0]), dim=0)
    if scale_grad_by_freq:
        result = _by_frequency(result, indices, weight.shape[0])
    if padding_idx is not None:
        # rows at padding_idx take no gradient
        position = padding_idx % weight.shape[0]
        padded = (indices == position).unsqueeze(-1)
        result = T.where(padded, result.detach(), result)
    return result


def _with_sparse_gradient(
    indices: Tensor, weight: Tensor, padding_idx: int | None, scaled: bool
) -> Tensor:
    trace = local.trace
    if trace is not None:
        trace.end_segment("an embedding with a sparse gradient", "sparse=False")
        with trace.suspended():
            return _with_sparse_gradient(indices, weight, padding_idx, scaled)
    rows = int(weight.shape[0])
    padding = -1 if padding_idx is None else padding_idx % rows
    found: Tensor = _updates.EmbeddingRows.apply(
        weight, _not_negative(indices, rows), padding, scaled
    )
    return found


def check_indices(input: Tensor, name: str) -> None:
    """Raise RuntimeError for indices that are not int64 or int32."""
    if input.dtype not in (T.int64, T.int32):
        raise RuntimeError(located(
            "Expected tensor for argument #1 'indices' to have one of the following scalar "
            f"types: Long, Int; but got {input.type()} instead (while checking arguments for "
            f"{name}). Cure: indices.long()"
        ))


def _by_frequency(rows: Tensor, indices: Tensor, count: int) -> Tensor:
    """The rows, their gradients divided by how often each index occurs."""
    flat = indices.reshape(-1)
    often = T.zeros(count, dtype=rows.dtype).scatter_add(0, flat, T.ones_like(flat).to(rows.dtype))
    share = (rows - rows.detach()) / often[indices].unsqueeze(-1)  # a zero with a gradient
    return rows.detach() + share


_FEW = 64


def _not_negative(indices: Tensor, rows: int) -> Tensor:
    """Indices of which the operator refuses the negative ones too, which it would wrap."""
    if local.trace is not None or place_at(indices) is not None:
        return T.where(indices < 0, rows, indices)
    array = indices._graphc_array
    if 0 < array.size <= _FEW:  # a list's smallest is found before a ufunc has begun
        known = array.ravel().tolist()
        fit = min(known) >= 0 and max(known) < rows
    else:
        fit = not array.size or 0 <= array.min() <= array.max() < rows
    if not fit:
        wrong = array.min() if array.min() < 0 else array.max()
        raise IndexError(f"index out of range in self: {wrong} (embedding of {rows} rows)")
    return indices


def _codes(classes: np.ndarray, count: int) -> Tensor:
    codes = np.zeros((classes.size, count), np.int64)
    codes[np.arange(classes.size), classes.reshape(-1)] = 1
    return from_array(codes.reshape(*classes.shape, count))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 codes with a new last dim of num_classes."""
    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1
    if tensor.dtype is not T.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if local.trace is None and place_at(tensor) is None and tensor.numel():
        if tensor._graphc_array.min() < 0:
            raise RuntimeError("Class values must be non-negative.")
        if tensor._graphc_array.max() >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
        if local.counted is None:
            return _codes(tensor._graphc_array, int(num_classes))
    codes = T.zeros((*tensor.shape, num_classes), dtype=tensor.dtype)
    return codes.scatter(-1, tensor.unsqueeze(-1), 1)  # checks the range of the classes
