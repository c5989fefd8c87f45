"""Compiled functions that are given sparse tensors: no guard asks what these are."""

from __future__ import annotations

from typing import Any

from ...frontend.errors import TraceError, located


class SparseArgument(TraceError):
    """A call whose arguments say by no key which version is theirs."""

    def __init__(self, number: int) -> None:
        super().__init__(located(
            f"argument {number} of a compiled function is a sparse tensor. Cure: give it "
            "x.indices() and x.values(), or leave out fullgraph=True"
        ))


def around(compiled: Any, error: SparseArgument, args: Any, kwargs: Any) -> Any:
    """A call in segments, in which all that is done to sparse tensors is eager, as are the later
    calls. Raises the error where the user asks for one graph."""
    if compiled.fullgraph:
        raise error
    with compiled._lock:
        segments = compiled._turn().opened_by(error)
    return segments.call(compiled.function, args, kwargs)
