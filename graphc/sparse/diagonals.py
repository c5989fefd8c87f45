"""A sparse matrix of its diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.errors import located
from ..frontend.layouts import sparse_coo
from ..frontend.tensor import Tensor, from_array
from .patterns import Pattern
from .tensor import outside, sparse


@outside
def spdiags(
    diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None
) -> Tensor:
    """A matrix whose diagonals `offsets` are the rows of `diagonals`, whose j-th element is in
    column j. pytorch.org/docs/stable/generated/torch.sparse.spdiags.html"""
    rows = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    places = offsets._graphc_array.reshape(-1).astype(np.int64)
    if places.size != rows.shape[0]:
        raise RuntimeError(located(
            f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets "
            f"({places.size})"
        ))
    if np.unique(places).size != places.size:
        raise RuntimeError(located("Offset tensor contains duplicate values"))
    height, width = (int(n) for n in shape)
    which = np.repeat(np.arange(places.size), rows.shape[1])
    column = np.tile(np.arange(rows.shape[1]), places.size)
    row = column - places[which]
    kept = np.flatnonzero((row >= 0) & (row < height) & (column < width))
    pattern = Pattern.at(np.stack([row[kept], column[kept]]), (height, width), False)
    values = rows.reshape(-1).index_select(0, from_array(kept))
    found: Tensor = sparse(pattern, values)
    return found if layout in (None, sparse_coo) else found.to_sparse(layout=layout)
