"""CUDA C from kernels; and torch.backends.cuda, whose flags change nothing."""

from typing import Any

from graphc.backends import flags as _flags

globals().update(_flags.CUDA)


def __getattr__(name: str) -> Any:  # for type checkers: the flags come from a table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
