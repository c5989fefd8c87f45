"""torch.layout, and what is raised where code wants the one array of a tensor that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .context import local


class layout:
    """torch.strided: elements in one array; torch.sparse_coo and others: entries and places."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> Any:
        return get_layout, (repr(self),)


strided, sparse_coo = layout("strided"), layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
LAYOUTS: Mapping[str, layout] = {
    repr(each): each
    for each in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)
}


def get_layout(name: str) -> layout:
    """The layout of this name: "torch.sparse_coo". Raises ValueError."""
    found = LAYOUTS.get(name)
    if found is None:
        raise ValueError(f"unknown layout {name!r}: graphc has {', '.join(LAYOUTS)}")
    return found


class NotDense(AttributeError):
    """The array of a tensor that is not in one array. Short ways of eager mode, which ask nothing
    before they read it, come to this: what is raised leads to what is done instead."""

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self.tensor = tensor

    def __str__(self) -> str:
        kind = self.tensor.layout
        return (
            f"a tensor of the layout {kind} has no dense memory, which this needs. "
            "Cure: x.to_dense()"
        )


def again(error: NotDense, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a function of dense tensors that met a sparse one under a trace gives outside of it, the
    segment being over. Raises the error where there is no trace."""
    trace = local.trace
    if trace is None:
        raise error
    trace.end_segment("a sparse tensor", "work with its indices() and values() inside the function")
    with trace.suspended():
        return function(*args, **kwargs)
