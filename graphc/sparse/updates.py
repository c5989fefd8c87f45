"""Sparse gradients: what they do to dense tensors, and those of embeddings."""

from __future__ import annotations

from typing import Any

from ..frontend.eager import is_plain
from ..frontend.errors import located
from ..frontend.function import Function
from ..frontend.tensor import Tensor, from_array
from ..ir import dtypes
from .conversions import coalesced, entries_at
from .patterns import Pattern
from .tensor import SparseTensor, sparse


class Rows:
    """A sparse gradient, coalesced: its entries, and dense tensors at their places."""

    def __init__(self, gradient: SparseTensor) -> None:
        whole = coalesced(gradient)
        self.pattern: Pattern = whole._graphc_pattern
        self.values = whole._graphc_values

    def of(self, tensor: Tensor) -> Tensor:
        """What a dense tensor has there."""
        return entries_at(tensor, self.pattern)

    def add_to(self, tensor: Tensor, values: Tensor) -> None:
        """Add values, in place, to what a dense tensor has there."""
        if not is_plain(tensor) or values.dtype is not tensor.dtype:
            tensor.add_(sparse(self.pattern, values))
            return
        pattern = self.pattern
        rows = tensor._graphc_array.reshape(
            pattern.places, *pattern.dense_size
        )  # of the same memory
        rows[pattern.keys()] += values._graphc_array
        tensor._graphc_storage.version += 1


class EmbeddingRows(Function):
    """Rows of a table, whose gradient is sparse: an entry for each position that was read."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor, padding: int, scaled: bool) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.size, ctx.padding, ctx.scaled = tuple(weight.shape), padding, scaled
        return weight[indices] if indices.ndim else weight[int(indices)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if ctx.scaled:
            raise RuntimeError(located(
                "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
            ))
        (indices,) = ctx.saved_tensors
        places = indices.reshape(-1)
        rows = gradient.reshape(-1, ctx.size[1])
        if ctx.padding >= 0:
            kept = from_array((places._graphc_array != ctx.padding).nonzero()[0])
            places, rows = places.index_select(0, kept), rows.index_select(0, kept)
        if places.dtype is not dtypes.i64:
            places = places.to(dtypes.i64)
        found = Pattern.at(places._graphc_array.reshape(1, -1).copy(), ctx.size, False)
        return sparse(found, rows), None, None, None
