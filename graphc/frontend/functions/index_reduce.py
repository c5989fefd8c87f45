"""index_reduce: slices combined into a tensor at positions of a dim."""

from __future__ import annotations

from typing import Any

from ..errors import located
from ..ownership import owns_result
from ..tensor import Tensor
from .arguments import shape, with_out, wrap_dim
from .gathering import scatter_reduce

_KINDS = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


@with_out
@owns_result
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:
    """A copy with source's slices combined in at `index`: "prod", "mean", "amax" or "amin"."""
    if reduce not in _KINDS:
        raise RuntimeError(located(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        ))
    if index.ndim > 1:
        raise IndexError(located("index_reduce(): Index is supposed to be a vector"))
    if source.dtype is not input.dtype:
        raise RuntimeError(located(
            "index_reduce(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype} and (source) {source.dtype}"
        ))
    if input.ndim == 0:
        flat = index_reduce(
            input.reshape(1), 0, index.reshape(1), source.reshape(1), reduce,
            include_self=include_self,
        )
        return flat.reshape(())  # type: ignore[no-any-return]
    along = wrap_dim(dim, input.ndim)
    sizes: list[Any] = [1] * input.ndim
    sizes[along] = -1
    values = source.reshape(1) if source.ndim == 0 else source
    places = index.reshape(sizes).expand(shape(values))
    return scatter_reduce(
        input, along, places, values, _KINDS[reduce], include_self=include_self
    )
