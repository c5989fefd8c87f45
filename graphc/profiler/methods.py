"""Methods of graphc's own classes that are blocks of a profile, as long as somebody records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from ..frontend.context import local
from ..frontend.nodes import OpNode
from ..utils.data import dataloader

Open: TypeAlias = Callable[[str], AbstractContextManager[Any]]


def _gradient(node: Any) -> str:
    return f"autograd::engine::evaluate_function: {node.name()}"


def _batch(batches: Any) -> str:
    return f"enumerate(DataLoader)#{type(batches).__name__}.__next__"


_METHODS: tuple[tuple[type, str, Callable[[Any], str]], ...] = (
    (OpNode, "gradients", _gradient),
    (dataloader._SingleProcessDataLoaderIter, "__next__", _batch),
    (dataloader._MultiProcessingDataLoaderIter, "__next__", _batch),
)


def watch(block: Open) -> Callable[[], None]:
    """From here on each of their runs outside of recordings is in `block(name)`. What is given ends
    it."""
    for kind, method, name in _METHODS:
        setattr(kind, method, _within(getattr(kind, method), name, block))

    def end() -> None:
        for kind, method, _ in _METHODS:
            setattr(kind, method, getattr(kind, method).__wrapped__)

    return end


def _within(run: Callable[..., Any], name: Callable[[Any], str], block: Open) -> Any:
    @functools.wraps(run)
    def watched(self: Any, *args: Any) -> Any:
        if local.trace is not None:
            return run(self, *args)
        with block(name(self)):
            return run(self, *args)

    return watched
